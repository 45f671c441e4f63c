"""The augmenter in a forked child of the process that made it: a clear error where it would wait
for ever.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from detaug import DeterministicAugmenter, current, fingerprint
from tests.processes.engine.settings_pipelines import Counter, Shows, default_dtype
from tests.support.processes import worker_pids
from tests.support.waiting import exit_code, join, result_of, wait_readable

pytestmark = pytest.mark.timeout(60)


def in_child(do: Callable[[], Any]) -> Any:
    """What `do` gives in a forked child of this process; the text of the error if it raises."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                said = json.dumps(do())
            except Exception as error:
                said = json.dumps(f"{type(error).__name__}: {error}")
            os.write(write, said.encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = result_of(file.read, "the child has said what it found")
    assert exit_code(pid, "the child has ended") == 0
    return json.loads(text)


def started(num_processes: int = 2, take: int = 3) -> DeterministicAugmenter:
    augmenter = DeterministicAugmenter(
        Counter(), Shows(default_dtype), num_processes, seed=1, batches_per_epoch=100, check=False
    )
    for _ in range(take):
        next(augmenter)
    return augmenter


def print_of_next(augmenter: DeterministicAugmenter) -> str:
    return fingerprint(next(augmenter))


def print_of_next_method(augmenter: DeterministicAugmenter) -> str:
    return fingerprint(augmenter.next())


def batches_of_an_epoch(augmenter: DeterministicAugmenter) -> int:
    return len(list(augmenter))


WANTS_WORKERS: dict[str, Callable[[DeterministicAugmenter], Any]] = {
    "next": print_of_next,
    ".next": print_of_next_method,
    "for": batches_of_an_epoch,
    "_start": DeterministicAugmenter._start,
    "restart": DeterministicAugmenter.restart,
}


@pytest.mark.parametrize("take", [0, 3])
@pytest.mark.parametrize("use", WANTS_WORKERS)
def test_what_needs_workers_is_an_error_in_a_child(use: str, take: int) -> None:
    with started(take=take) as augmenter:
        said = in_child(partial(WANTS_WORKERS[use], augmenter))
        if said is not None:  # they are there already, and it had nothing to do
            assert said.startswith("RuntimeError: this augmenter was made in another process")
            assert f"pid {os.getpid()}" in said
        assert augmenter.step == take
        assert fingerprint(next(augmenter))


def test_moving_is_an_error_in_a_child_where_workers_run() -> None:
    with started() as augmenter:
        state = augmenter.state_dict()
        for move in (
            partial(augmenter.set_epoch, 2),
            partial(augmenter.load_state_dict, {**state, "step": 50}),
        ):
            assert "made in another process" in in_child(move)


def print_of_replay(augmenter: DeterministicAugmenter, step: int) -> str:
    return fingerprint(augmenter.replay(0, step))


def position(augmenter: DeterministicAugmenter) -> list[int]:
    return [len(augmenter), augmenter.epoch, augmenter.step]


def test_state_and_replay_work_in_a_child() -> None:
    with started() as augmenter:
        assert in_child(augmenter.state_dict) == augmenter.state_dict()
        replayed = partial(print_of_replay, augmenter, 1)
        assert in_child(replayed) == replayed()
        assert in_child(partial(position, augmenter)) == [100, 0, 3]


def test_closing_in_a_child_leaves_the_parents_workers_alone() -> None:
    with started() as augmenter:
        pids = worker_pids()

        def close() -> None:
            augmenter.close()
            augmenter.__exit__(None, None, None)

        assert in_child(close) is None
        # Its exit handlers run as well.
        child = multiprocessing.get_context("fork").Process(target=augmenter.close)
        child.start()
        join(child, "the child has closed the augmenter")
        assert child.exitcode == 0
        assert len([next(augmenter) for _ in range(50)]) == 50
        assert set(pids) <= set(worker_pids())


def test_without_workers_a_child_goes_on() -> None:
    with started(num_processes=0) as augmenter:
        assert in_child(partial(print_of_next, augmenter)) == print_of_next(augmenter)


class Waits(Counter):
    """In a thread that is not the main one: tells that it is there, and goes on when it may."""

    def __init__(self, there: int, may_go_on: int) -> None:
        self.there, self.may_go_on = there, may_go_on

    def __next__(self) -> dict[str, Any]:
        if threading.current_thread() is not threading.main_thread():
            os.write(self.there, b"!")
            os.read(self.may_go_on, 1)
        return super().__next__()


def test_without_workers_a_child_goes_on_though_another_thread_was_making_a_batch() -> None:
    (is_there, there), (may_go_on, go_on) = os.pipe(), os.pipe()
    augmenter = DeterministicAugmenter(Waits(there, may_go_on), None, 0, seed=1, check=False)
    expected = [print_of_replay(augmenter, step) for step in (1, 0)]
    thread = threading.Thread(target=next, args=(augmenter,), daemon=True)
    thread.start()
    wait_readable(is_there, "the thread makes a batch")

    def replay_and_next() -> list[str]:
        return [print_of_replay(augmenter, 1), print_of_next(augmenter)]

    assert in_child(replay_and_next) == expected
    os.write(go_on, b"!")
    join(thread, "the thread has its batch")
    assert augmenter.step == 1
    for end in (is_there, there, may_go_on, go_on):
        os.close(end)


class Wrapped(torch.utils.data.IterableDataset[Any]):
    def __init__(self, augmenter: DeterministicAugmenter) -> None:
        self.augmenter = augmenter

    def __iter__(self) -> Any:
        return self.augmenter


def test_torch_loader_with_workers_around_it_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # so long does torch wait for its own worker, which failed, before it ends it
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    with started() as augmenter:
        loader = torch.utils.data.DataLoader(
            Wrapped(augmenter), batch_size=None, num_workers=1, multiprocessing_context="fork"
        )
        with pytest.raises(RuntimeError, match="made in another process"):
            next(iter(loader))
        gc.collect()  # the iterator, here and not in another test


class Forks:
    """Each batch is looked at by a process that is forked from the worker, once the next batch is
    written.
    """

    go, child = -1, 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> dict[str, Any]:
        batch = current().empty((300_000,), np.float32)
        batch[:] = current().step
        looked = 0
        if self.child:
            os.close(self.go)
            looked = exit_code(self.child, "the child has looked at its batch")
        ready, self.go = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            os.close(self.go)
            # They must not lie where the batch does.
            beside = [np.full(300_000, -1, np.float32) for _ in range(20)]
            os.read(ready, 1)
            os._exit(int(not beside or not (batch == current().step).all()))
        os.close(ready)
        return {"data": batch, "looked": looked}


def test_children_of_a_worker_see_the_batch_that_was_being_made_and_no_later_one() -> None:
    with DeterministicAugmenter(Forks(), None, 1, seed=1, stateless=True, check=False) as augmenter:
        for step in range(6):
            batch = next(augmenter)
            assert batch["looked"] == 0
            assert (batch["data"] == step).all()


def test_a_child_sees_batches_of_workers_that_are_gone() -> None:
    held = []
    with DeterministicAugmenter(Forks(), None, 1, seed=1, stateless=True, check=False) as augmenter:
        held += [next(augmenter) for _ in range(3)]
        os.kill(worker_pids()[0], signal.SIGKILL)
        held += [next(augmenter) for _ in range(8)]

    def look() -> bool:
        # They must not lie where the batches do.
        beside = [np.full(300_000, -1, np.float32) for _ in range(20)]
        seen = [np.unique(batch["data"]).tolist() for batch in held]
        return len(beside) == 20 and seen == [[step] for step in range(len(held))]

    assert in_child(look) is True
