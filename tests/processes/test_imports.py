"""What comes with `import detaug`: nothing of a library before one of its classes is met."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.preloaded import run_code

CODE = """
import sys
import detaug
from detaug import DataLoader, DeterministicAugmenter
import torch

class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.full((2,), float(index))

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(4))

for data in (Images(), Stream()):
    shuffled = {} if isinstance(data, Stream) else {"shuffle": True}
    with DeterministicAugmenter.from_dataset(data, 2, num_processes=0, seed=1, **shuffled) as made:
        assert len(list(made)) == 2
    assert len(list(DataLoader(data, 2, seed=1, **shuffled))) == 2
with DeterministicAugmenter([{"data": 1}, {"data": 2}], None, 0, seed=1) as made:
    assert list(made) == [{"data": 1}, {"data": 2}]
absent = {"batchgenerators", "numpy.ma", "pandas", "scipy.ndimage", "skimage", "sklearn", "matplotlib"}
assert not absent & set(sys.modules), absent & set(sys.modules)

import detaug.batchgenerators
from batchgenerators.examples.multithreaded_dataloading import DummyDL
with DeterministicAugmenter(DummyDL(3), None, 0, seed=1) as made:
    assert made.num_streams == 3
    assert list(made) == list(range(100))
"""


def test_libraries_are_imported_when_their_classes_are_met(tmp_path: Path) -> None:
    done = run_code(CODE, folder=tmp_path, environment=os.environ)
    assert done.returncode == 0, done.stderr
