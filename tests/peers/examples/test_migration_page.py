"""Both sides of every diff of docs/migrate.md run, and each gives a loader of batches."""

from __future__ import annotations

import re
import textwrap
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.peers.examples.test_documentation import REPOSITORY, blocks

PAGE = REPOSITORY / "docs" / "migrate.md"
DIFFS = blocks(PAGE, "diff")

#: What a reader who comes from elsewhere has, by the line of the page's diff that needs it.
READERS = """
import copy
import numpy as np
import torch
from batchgenerators.dataloading.data_loader import DataLoader as Batchgenerators
from detaug import DeterministicAugmenter

class Endless(Batchgenerators):
    def generate_train_batch(self):
        return {"data": np.random.random((1, 1, 4, 4)).astype(np.float32)}

def transform(**batch):
    return batch

loader = Endless([1], 1, 2, infinite=True)
dataset = source = [np.full((1, 4, 4), i, np.float32) for i in range(8)]
"""
#: By a word of a diff, further names.
FURTHER = {
    "tio.": """
import torchio as tio
image = torch.arange(512.0).reshape(1, 8, 8, 8)
subjects = tio.SubjectsDataset([tio.Subject(mri=tio.ScalarImage(tensor=image)) for _ in range(4)])
sampler = tio.UniformSampler(4)
class PatchesOf:
    def __init__(self, subjects, sampler, per_volume=4):
        self.subjects, self.sampler, self.per_volume = subjects, sampler, per_volume
    def __len__(self):
        return len(self.subjects) * self.per_volume
    def __getitem__(self, index):
        return next(iter(self.sampler(self.subjects[index // self.per_volume])))["mri"].data
""",
    "grain": """
import grain
class Augment(grain.transforms.RandomMap):
    def random_map(self, element, rng):
        return element + rng.normal(0, 0.1)
""",
}
NEEDS = {
    "set_determinism": "monai",
    "StatefulDataLoader": "torchdata",
    "tio.": "torchio",
    "grain": "grain",
}


@pytest.mark.parametrize("sign", ["-", "+"], ids=["before", "after"])
@pytest.mark.parametrize(
    "diff", [diff for _, diff in DIFFS], ids=[f"line {line}" for line, _ in DIFFS]
)
def test_both_sides_of_a_diff_give_batches(diff: str, sign: str) -> None:
    assert re.fullmatch(r"(?:[-+ ].*\n)+", diff), (
        "a diff has lines that are taken away, lines that are put there, and lines that stay"
    )
    words = [word for word in FURTHER if word in diff]
    for word in words:
        pytest.importorskip(NEEDS[word])
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(READERS + "\n".join(textwrap.dedent(FURTHER[word]) for word in words), names)
    side = "\n".join(line[1:] for line in diff.splitlines() if line[0] in (sign, " "))
    exec(
        side.replace("num_workers=4", "num_workers=0").replace("worker_count=4", "worker_count=0"),
        names,
    )
    try:
        batches = list(islice(names.get("aug", names["loader"]), 2))
    finally:
        if "aug" in names:
            names["aug"]._finish()
    assert len(batches) == 2
    assert all(np.asarray(_first_array(batch)).shape[0] > 0 for batch in batches)


def test_there_are_as_many_diffs_as_ways_to_come_here() -> None:
    assert len(DIFFS) == len(re.findall("^## ", PAGE.read_text(), re.MULTILINE))


def _first_array(batch: Any) -> Any:
    while isinstance(batch, dict):
        batch = next(iter(batch.values()))
    return batch
