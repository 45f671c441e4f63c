"""Both sides of every diff of docs/migrate.md run, and each makes a loader of batches."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.peers.examples.test_documentation import REPOSITORY, blocks

PAGE = REPOSITORY / "docs" / "migrate.md"
DIFFS = blocks(PAGE, "diff")

#: What a reader has, whatever library was used before.
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
#: What a reader has in addition, by a word of the diff that needs it.
FURTHER = {
    "tio.": """
import torchio as tio
image = torch.arange(512.0).reshape(1, 8, 8, 8)
subjects = tio.SubjectsDataset([tio.Subject(mri=tio.ScalarImage(tensor=image)) for _ in range(4)])
sampler = tio.UniformSampler(4)
class PatchesOf:
    def __init__(self, subjects, sampler, per_volume=4):
        self.subjects = subjects
        self.sampler = sampler
        self.per_volume = per_volume
    def __len__(self):
        return len(self.subjects) * self.per_volume
    def __getitem__(self, index):
        subject = self.subjects[index // self.per_volume]
        patch = next(iter(self.sampler(subject)))
        return patch["mri"].data
""",
    "grain": """
import grain
class Augment(grain.transforms.RandomMap):
    def random_map(self, element, rng):
        return element + rng.normal(0, 0.1)
""",
}
#: Modules that a diff needs, by a word of it.
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
    is_well_formed = re.fullmatch(r"(?:[-+ ].*\n)+", diff)
    assert is_well_formed, "lines that go, lines that come, and lines that stay"
    program = [READERS]
    for word, code in FURTHER.items():
        if word in diff:
            pytest.importorskip(NEEDS[word])
            program.append(code)
    for line in diff.splitlines():
        if line[0] in (sign, " "):
            program.append(line[1:])
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(re.sub("(num_workers|worker_count)=4", r"\1=0", "\n".join(program)), names)
    try:
        batches = list(islice(names.get("aug", names["loader"]), 2))
    finally:
        if "aug" in names:
            names["aug"]._finish()
    assert len(batches) == 2
    for batch in batches:
        assert len(np.asarray(first_array(batch))) > 0


def test_there_are_as_many_diffs_as_ways_to_come_here() -> None:
    assert len(DIFFS) == len(re.findall("^## ", PAGE.read_text(), re.MULTILINE))


def first_array(batch: Any) -> Any:
    """Return the first array of a batch that may be nested."""
    while isinstance(batch, dict):
        batch = next(iter(batch.values()))
    return batch
