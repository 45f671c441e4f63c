"""What must hold for everybody's pipelines, whatever library they are made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from detaug import DeterministicAugmenter
from tests.peers.items import ITEMS, Example, loads
from tests.processes.purity.ways import AS_A_USER_HAS_IT, EPOCHS, Findings, run_all_ways
from tests.support.augmenters import workers


class Conformance:
    """The test of every example in EXAMPLES; a class below this one per library."""

    EXAMPLES: ClassVar[tuple[Example, ...]]

    def test_batches_are_right_in_all_ways(
        self, example: Example, tmp_path: Path, start_method: str, num_processes: int
    ) -> None:
        found = in_all_ways(example, tmp_path, start_method, num_processes)
        assert found.words == []
        assert found.different() == []
        makers = {process for _, process in loads(tmp_path)} - {os.getpid()}
        assert makers or "cache" in example.name.lower(), "no worker made anything"
        epochs = [found.epoch("0 workers", epoch) for epoch in EPOCHS]
        samples = [row.tobytes() for epoch in epochs for batch in epoch for row in batch["image"]]
        assert len(samples) >= 2 * (ITEMS - 1)
        assert len(set(samples)) == len(samples), "two samples share their draws"
        if example.indices:
            for epoch in epochs:
                items = [int(index) for batch in epoch for index in np.unique(batch["index"])]
                assert sorted(items) == list(range(ITEMS)), "every item comes once an epoch"


def in_all_ways(example: Example, folder: Path, start_method: str, num_processes: int) -> Findings:
    """With the images and indices alone of every batch."""

    def make(num_processes: int) -> DeterministicAugmenter:
        options = {"num_processes": num_processes, "executor": workers(num_processes, start_method)}
        checks = {"check": AS_A_USER_HAS_IT if example.checked else False} if num_processes else {}
        return example.build(folder, seed=4, **checks, **options)

    found = run_all_ways(make, (0, num_processes))
    for batches in found.batches.values():
        batches.update({key: plain(batch) for key, batch in batches.items()})
    return found


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
