"""The test of pipelines of any library: their batches are the same in all ways."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from detaug import DeterministicAugmenter
from tests.peers.items import ITEMS, Example, loads
from tests.processes.purity.ways import AS_A_USER_HAS_IT, EPOCHS, Findings, run_all_ways
from tests.support.augmenters import workers


class Conformance:
    """The test of every example in EXAMPLES; each library has a subclass."""

    EXAMPLES: ClassVar[tuple[Example, ...]]

    def test_batches_are_right_in_all_ways(
        self, example: Example, tmp_path: Path, start_method: str, num_processes: int
    ) -> None:
        findings = in_all_ways(example, tmp_path, start_method, num_processes)
        assert findings.words == []
        assert findings.different() == []
        worker_pids = {pid for _, pid in loads(tmp_path)} - {os.getpid()}
        assert worker_pids or "cache" in example.name.lower(), "no worker made anything"

        epochs = [findings.epoch("0 workers", epoch) for epoch in EPOCHS]
        samples: list[bytes] = []
        for batch in chain.from_iterable(epochs):
            samples.extend(image.tobytes() for image in batch["image"])
        assert len(samples) >= 2 * (ITEMS - 1)
        assert len(set(samples)) == len(samples), "two samples share their draws"

        if example.indices:
            for batches in epochs:
                items: list[int] = []
                for batch in batches:
                    items.extend(np.unique(batch["index"]).tolist())
                assert sorted(items) == list(range(ITEMS)), "every item comes once an epoch"


def in_all_ways(example: Example, folder: Path, start_method: str, num_processes: int) -> Findings:
    """Run an example in all ways; the batches that are returned have images and indices alone.

    Args:
        example: the pipeline.
        folder: where loads are recorded.
        start_method: of the workers.
        num_processes: number of workers where there are any.
    """

    def make(num_processes: int) -> DeterministicAugmenter:
        options: dict[str, Any] = {
            "num_processes": num_processes,
            "executor": workers(num_processes, start_method),
        }
        if num_processes:
            options["check"] = AS_A_USER_HAS_IT if example.checked else False
        return example.build(folder, seed=4, **options)

    findings = run_all_ways(make, (0, num_processes))
    for batches in findings.batches.values():
        for key, batch in batches.items():
            batches[key] = plain(batch)
    return findings


def plain(batch: Any) -> dict[str, np.ndarray]:
    """Return images, labels and indices of a batch as arrays, without a library's meta data."""
    arrays = {}
    for key in ("image", "label", "index"):
        if key not in batch:
            continue
        value = batch[key]
        if isinstance(value, torch.Tensor):
            value = value.as_subclass(torch.Tensor).numpy()
        arrays[key] = np.ascontiguousarray(value)
    return arrays
