"""Pipelines of TorchIO: subjects with an image and a label map, and its queue of patches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from detaug import DeterministicAugmenter
from tests.peers.conformance import Conformance, in_all_ways
from tests.peers.items import ITEMS, Example, image, note_load

torchio = pytest.importorskip("torchio", reason="TorchIO is not installed (the extra `peers`)")

SHAPE = (1, 12, 12, 10)


class Noted(torchio.SubjectsDataset):  # type: ignore[misc, name-defined]
    """A data set that records its loads."""

    def __init__(self, folder: Path, subjects: list[Any], **options: Any) -> None:
        super().__init__(subjects, **options)
        self.folder = str(folder)

    def __getitem__(self, index: int) -> Any:
        note_load(self.folder, int(index))
        return super().__getitem__(index)


def subjects() -> list[Any]:
    """Return equal subjects with an index each."""
    values = torch.from_numpy(image(*SHAPE))
    return [
        torchio.Subject(
            t1=torchio.ScalarImage(tensor=values),
            label=torchio.LabelMap(tensor=values.round()),
            index=index,
        )
        for index in range(ITEMS)
    ]


def all_kinds() -> Any:
    """Return a pipeline that moves voxels, chooses, and adds noise."""
    return torchio.Compose(
        [
            torchio.RandomAffine(scales=0.2, degrees=20),
            torchio.OneOf({torchio.RandomBiasField(): 0.5, torchio.RandomGamma(): 0.5}),
            torchio.RandomNoise(std=(0.1, 0.3)),
        ]
    )


def stack(samples: list[Any]) -> dict[str, Any]:
    """Collate subjects into a batch of tensors."""
    return {
        "image": torch.stack([sample["t1"].data for sample in samples]),
        "label": torch.stack([sample["label"].data for sample in samples]),
        "index": torch.tensor([int(sample["index"]) for sample in samples]),
    }


def of_subjects(folder: Path, **options: Any) -> DeterministicAugmenter:
    """Build an augmenter of whole subjects."""
    dataset = Noted(folder, subjects(), transform=all_kinds())
    return DeterministicAugmenter.from_dataset(dataset, 2, collate_fn=stack, **options)


class TestTorchIO(Conformance):
    EXAMPLES = (Example("affine, choice and noise", of_subjects, checked=True),)


def queue(folder: Path, **options: Any) -> DeterministicAugmenter:
    """Build an augmenter of TorchIO's queue.

    The queue returns patches in the order in which it loaded them: an item is not a function of its
    index.
    """
    patches = torchio.Queue(
        Noted(folder, subjects(), transform=all_kinds()),
        max_length=6,
        samples_per_volume=2,
        sampler=torchio.UniformSampler(6),
        num_workers=0,
    )
    return DeterministicAugmenter.from_dataset(patches, 2, collate_fn=stack, **options)


def test_a_queue_of_patches_is_refused_or_right(tmp_path: Path) -> None:
    findings = in_all_ways(Example("queue of patches", queue), tmp_path, "fork", 3)
    if findings.different():
        assert any("Queue" in words for words in findings.words), findings.words
