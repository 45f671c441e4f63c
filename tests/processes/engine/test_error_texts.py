"""What is printed of an error: the traceback from the user's lines on, every text once, and the data set's index."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from batchgenerators.transforms.abstract_transforms import Compose

from detaug import DeterministicAugmenter
from detaug import transforms as t
from detaug.errors import BatchError


def read_case() -> dict[str, Any]:
    raise OSError("the header is cut off")


class BrokenLoader:
    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> dict[str, Any]:
        return read_case()


class Ones:
    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> dict[str, Any]:
        return {"data": np.ones((2, 1, 4, 4), np.float32)}


class Scale:
    def __call__(self, **batch: Any) -> dict[str, Any]:
        raise ValueError("the spacing is zero")


class Chain:
    def __call__(self, **batch: Any) -> Any:
        try:
            return {}["spacing"]
        except KeyError as error:
            raise ValueError("this case has no spacing") from error


class Cases:
    """A data set of which one item, or the batch that has it, is broken."""

    def __init__(self, together: bool = False) -> None:
        if together:
            self.__getitems__ = lambda indices: [self[index] for index in indices]

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            raise ValueError("label 5 is out of range")
        return np.zeros(3, np.float32)


def error_of(augmenter: DeterministicAugmenter) -> BatchError:
    with augmenter, pytest.raises(BatchError) as caught:
        list(islice(augmenter, 10))
    return caught.value


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


ENDINGS: dict[str, tuple[Any, Any, str, str]] = {
    "loader": (BrokenLoader, None, "the header is cut off", "raise OSError("),
    "transform": (Ones, Scale(), "the spacing is zero", "raise ValueError("),
    "composition": (Ones, Compose([Scale()]), "the spacing is zero", "raise ValueError("),
    "chain": (Ones, Chain(), "this case has no spacing", "raise ValueError("),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_users_lines_come_first(ending: str) -> None:
    loader, transform, text, line = ENDINGS[ending]
    error = error_of(DeterministicAugmenter(loader(), transform, 0, seed=1))
    lines = str(error).splitlines()
    assert text in lines[0]
    assert [each for each in lines if "detaug" in each and "File" in each] == []
    at_user = next(number for number, each in enumerate(lines) if line in each)
    at_epoch = next(number for number, each in enumerate(lines) if "epoch 0, step 0" in each)
    assert at_user < at_epoch
    assert "producer.py" in error.worker_traceback, "the whole of it is there for whoever wants it"


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("n", [0, 1])
def test_text_is_printed_once(ending: str, n: int) -> None:
    loader, transform, text, line = ENDINGS[ending]
    error = error_of(DeterministicAugmenter(loader(), transform, n, seed=1))
    printed = shown(error).replace(f'{line}"{text}")', "")  # the line of code
    assert printed.count(text) == 1 + (ending == "chain") * printed.count(f'"{text}") from error')


def test_error_of_a_native_transform_names_it_and_where_it_was_raised() -> None:
    text = str(error_of(DeterministicAugmenter(Ones(), t.Compose([t.Mirror((0, 1, 2))]), 0, seed=1)))
    assert "Mirror.draw" in text
    assert "spatial ax" in text.splitlines()[0]


@pytest.mark.parametrize("n", [0, 1])
def test_error_of_a_data_set_names_the_index(n: int) -> None:
    error = error_of(DeterministicAugmenter.from_dataset(Cases(), 3, num_processes=n, seed=1))
    assert "item 7 of the data set for epoch 0, step " in str(error)
    assert error.indices == (7,)
    assert pickle.loads(pickle.dumps(error)).indices == (7,)


@pytest.mark.parametrize("where", ["__getitems__", "collate_fn", "transform"])
def test_error_of_a_whole_batch_names_its_indices(where: str) -> None:
    def collate(samples: list[Any]) -> Any:
        if where == "collate_fn":
            raise ValueError("shapes differ")
        return {"data": np.stack(samples)}

    augmenter = DeterministicAugmenter.from_dataset(
        Cases(together=True) if where == "__getitems__" else Ten(), 3, shuffle=False, num_processes=0, seed=1,
        collate_fn=collate, transform=Scale() if where == "transform" else None,
    )  # fmt: skip
    expected = (6, 7, 8) if where == "__getitems__" else (0, 1, 2)
    error = error_of(augmenter)
    assert f"(items {', '.join(map(str, expected))} of the data set)" in str(error)
    assert error.indices == expected


class Ten(Cases):
    def __getitem__(self, index: int) -> Any:
        return np.full(3, index, np.float32)
