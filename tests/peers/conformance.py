"""What must hold for everybody's pipelines, whatever library they are made of."""

from __future__ import annotations

import json
import os
import signal
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from detaug import DeterministicAugmenter, fingerprint
from tests.peers.items import ITEMS, Example, loads
from tests.support.augmenters import workers

#: A sequence of epochs with a jump.
EPOCHS = (0, 2)

_expected: dict[Example, dict[tuple[int, int], str]] = {}


class Conformance:
    """Tests of every example in the module's EXAMPLES, a class below this one per library."""

    def test_a_batch_made_alone_is_the_one_of_the_running_stream(self, example: Example, tmp_path: Path) -> None:
        expected = alone(example, tmp_path)
        assert expected == running(example, tmp_path, num_processes=0)

    def test_epochs_0_and_2_are_the_same_for_any_workers(
        self, example: Example, tmp_path: Path, start_method: str, num_processes: int
    ) -> None:
        options = {"num_processes": num_processes, "executor": workers(num_processes, start_method), "check": 100}
        made = running(example, tmp_path, **options)
        assert made == alone(example, tmp_path)
        makers = {process for _, process in loads(tmp_path)} - {os.getpid()}
        assert num_processes == 0 or makers or "cache" in example.name.lower(), "no worker made anything"

    def test_nothing_changes_when_workers_are_killed(
        self, example: Example, tmp_path: Path, start_method: str, num_processes: int
    ) -> None:
        if num_processes == 0:
            pytest.skip("there is no worker to kill")
        made = {}
        killed = set()
        with build(
            example, tmp_path, num_processes=num_processes, executor=workers(num_processes, start_method)
        ) as augmenter:
            for epoch in EPOCHS:
                augmenter.set_epoch(epoch)
                for number in range(len(augmenter)):
                    made.update(take(augmenter))
                    if number == 1:
                        killed.add(kill_a_worker(tmp_path, killed))
        assert made == alone(example, tmp_path)
        assert killed - {None} or "cache" in example.name.lower()

    def test_a_resumed_run_goes_on_with_the_same_batches(
        self, example: Example, tmp_path: Path, start_method: str, num_processes: int
    ) -> None:
        expected = alone(example, tmp_path)
        options = {"num_processes": num_processes, "executor": workers(num_processes, start_method)}
        for epoch in EPOCHS:
            with build(example, tmp_path, **options) as first:
                first.set_epoch(epoch)
                made = dict([*take(first).items(), *take(first).items()])
                state = json.loads(json.dumps(first.state_dict()))
            with build(example, tmp_path, **options) as second:
                second.load_state_dict(state)
                for _ in range(len(second) - 2):
                    made.update(take(second))
            assert made == {key: value for key, value in expected.items() if key[0] == epoch}

    def test_replay_gives_the_bytes_and_leaves_the_stream_alone(
        self, example: Example, tmp_path: Path, start_method: str, num_processes: int
    ) -> None:
        expected = alone(example, tmp_path)
        made = {}
        with build(
            example, tmp_path, num_processes=num_processes, executor=workers(num_processes, start_method)
        ) as augmenter:
            for epoch in EPOCHS:
                augmenter.set_epoch(epoch)
                for _ in range(len(augmenter)):
                    made.update(take(augmenter))
                    for key in ((0, 3), (2, 1)):
                        assert digest(augmenter.replay(*key)) == expected[key], f"replay of epoch, step {key}"
        assert made == expected

    def test_no_two_samples_share_their_draws(self, example: Example, tmp_path: Path) -> None:
        with build(example, tmp_path, num_processes=2) as augmenter:
            samples = []
            for epoch in EPOCHS:
                augmenter.set_epoch(epoch)
                for batch in augmenter:
                    images = plain(batch)["image"]
                    samples += [row.tobytes() for row in images]
        assert len(samples) >= 2 * (ITEMS - 1)
        assert len(set(samples)) == len(samples), f"{len(samples) - len(set(samples))} of {len(samples)} are repeated"

    def test_every_item_comes_once_an_epoch(self, example: Example, tmp_path: Path) -> None:
        if not example.indices:
            pytest.skip("it has no items")
        with build(example, tmp_path, num_processes=2) as augmenter:
            for epoch in EPOCHS:
                augmenter.set_epoch(epoch)
                met = {int(index): 0 for index in range(ITEMS)}
                for batch in augmenter:
                    for index in np.unique(plain(batch)["index"]):
                        met[int(index)] += 1
                assert set(met.values()) == {1}, f"epoch {epoch}: times that each item came: {met}"


def build(example: Example, folder: Path, **options: Any) -> DeterministicAugmenter:
    """With checks only where they cost no process, unless they are asked for."""
    checks = {"check": False} if options.get("num_processes") else {}
    return example.build(folder, seed=4, **{**checks, **options})


def alone(example: Example, folder: Path) -> dict[tuple[int, int], str]:
    """Every batch as a new augmenter's first and only one."""
    if example not in _expected:
        own = folder / uuid.uuid4().hex
        own.mkdir()
        found = {}
        with build(example, own, num_processes=0) as counting:
            steps = len(counting)
        for epoch in EPOCHS:
            for step in range(steps):
                with build(example, own, num_processes=0) as augmenter:
                    found[epoch, step] = digest(augmenter.replay(epoch, step))
        _expected[example] = found
    return _expected[example]


def running(example: Example, folder: Path, **options: Any) -> dict[tuple[int, int], str]:
    """The batches of the epochs, one after another."""
    made = {}
    with build(example, folder, **options) as augmenter:
        for epoch in EPOCHS:
            augmenter.set_epoch(epoch)
            for _ in range(len(augmenter)):
                made.update(take(augmenter))
    return made


def take(augmenter: DeterministicAugmenter) -> dict[tuple[int, int], str]:
    key = augmenter.epoch, augmenter.step
    return {key: digest(next(augmenter))}


def kill_a_worker(folder: Path, spared: set[int | None]) -> int | None:
    """SIGKILL a process that has loaded something; None where it is gone already, or all comes from a cache."""
    ours = {process.pid for process in psutil.Process().children(recursive=True)}
    for _, process in sorted(loads(folder), reverse=True):
        if process in ours and process not in spared:
            os.kill(process, signal.SIGKILL)
            return process
    return None


def plain(batch: Any) -> dict[str, Any]:
    """The images and indices of a batch as arrays, without what libraries keep beside them."""
    found = {}
    for key in ("image", "label", "index"):
        if key in batch:
            value = batch[key]
            if isinstance(value, torch.Tensor):
                value = value.as_subclass(torch.Tensor).numpy()
            found[key] = np.ascontiguousarray(value)
    return found


def digest(batch: Any) -> str:
    return fingerprint(plain(batch))
