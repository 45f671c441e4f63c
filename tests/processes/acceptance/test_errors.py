"""An exception in a loader or transform: what it holds, what is printed of it and in which order,
and what comes after it.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from batchgenerators.transforms.abstract_transforms import Compose

from detaug import transforms as t
from detaug.errors import BatchError
from tests.support.augmenters import Maker, cases_with_workers
from tests.support.comparing import fingerprints_of
from tests.support.faults import RaisesAt, ReaderError, UnpicklableError

pytestmark = pytest.mark.timeout(120)

#: By kind: the class, what is shown of the error, and attributes that it keeps.
KINDS: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "value": (ValueError, "voxel spacing is zero", {}),
    "key": (KeyError, "case_017", {}),
    "reader": (ReaderError, "broken in line 3", {"file": "case_017.nii.gz", "line": 3}),
    "unpicklable": (UnpicklableError, "holds a lock", {}),
    "assertion": (AssertionError, "", {}),
    "memory": (MemoryError, "no room for case_017", {}),
    "file": (FileNotFoundError, "case_017.nii.gz", {"errno": 2, "filename": "case_017.nii.gz"}),
}


def shown(error: BaseException) -> str:
    """What a user sees when nobody catches it."""
    return "".join(traceback.format_exception(error))


def run_into_error(
    augmenter: Any, error: type[BaseException] = ValueError
) -> tuple[list[Any], Any]:
    batches: list[Any] = []
    with pytest.raises(error) as caught:
        batches.extend(islice(augmenter, 50))
    return batches, caught.value


@pytest.mark.parametrize(
    ("kind", "n"), cases_with_workers(KINDS, 2, {"value", "reader", "unpicklable", "file"})
)
def test_error_shows_where_it_was_raised_and_how_to_replay_it_and_keeps_what_it_holds(
    make: Maker, kind: str, n: int
) -> None:
    expected, words, attributes = KINDS[kind]
    _, error = run_into_error(make(RaisesAt((3,), kind), None, n, seed=1), expected)
    text = shown(error)
    assert "read_the_broken_case" in text, "the function that raised is in the traceback"
    assert "raise error" in text, "and so is its line"
    assert "epoch 0" in text.lower()
    assert "step 3" in text.lower()
    assert "replay(0, 3)" in text.replace("epoch=", "").replace("step=", "")
    assert words in text
    for name, value in attributes.items():
        assert getattr(error if hasattr(error, name) else error.__cause__, name) == value


@pytest.mark.parametrize("n", [0, 2])
def test_after_an_error_restart_or_set_epoch_run_into_it_again(make: Maker, n: int) -> None:
    augmenter = make(RaisesAt((2,)), None, n, seed=1, batches_per_epoch=6)
    expected = fingerprints_of(run_into_error(augmenter)[0])
    augmenter.set_epoch(0)
    assert fingerprints_of(run_into_error(augmenter)[0]) == expected
    augmenter.restart()
    batches, _ = run_into_error(augmenter)
    assert fingerprints_of(batches) == expected[len(expected) - len(batches) :]


@pytest.mark.parametrize("kind", ["value", "reader"])
def test_replay_of_the_failing_step_raises_the_error_here(make: Maker, kind: str) -> None:
    augmenter = make(RaisesAt((2,), kind), None, 2, seed=1)
    run_into_error(augmenter, KINDS[kind][0])
    with pytest.raises(KINDS[kind][0]) as caught:
        augmenter.replay(0, 2)
    frames = {frame.name for frame in traceback.extract_tb(caught.value.__traceback__)}
    assert "read_the_broken_case" in frames, "the debugger can walk into the frame that raised"


class Ones:
    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> dict[str, Any]:
        return {"data": np.ones((2, 1, 4, 4), np.float32)}


class BrokenLoader(Ones):
    def __next__(self) -> dict[str, Any]:
        raise OSError("the header is cut off")


class Scale:
    def __call__(self, **batch: Any) -> dict[str, Any]:
        raise ValueError("the spacing is zero")


class Chain:
    def __call__(self, **batch: Any) -> Any:
        try:
            return {}["spacing"]
        except KeyError as error:
            raise ValueError("this case has no spacing") from error


ENDINGS: dict[str, tuple[Any, Any, str, str]] = {
    "loader": (BrokenLoader, None, "the header is cut off", "raise OSError("),
    "transform": (Ones, Scale(), "the spacing is zero", "raise ValueError("),
    "composition": (Ones, Compose([Scale()]), "the spacing is zero", "raise ValueError("),
    "chain": (Ones, Chain(), "this case has no spacing", "raise ValueError("),
}


@pytest.mark.parametrize(("ending", "n"), cases_with_workers(ENDINGS, 1, {"loader", "chain"}))
def test_the_message_is_the_first_line_and_after_the_users_lines_the_last(
    make: Maker, ending: str, n: int
) -> None:
    loader, transform, text, line = ENDINGS[ending]
    _, error = run_into_error(make(loader(), transform, n, seed=1), BatchError)
    lines = str(error).splitlines()
    assert text in lines[0]
    assert shown(error).splitlines()[-1] == lines[-1] == lines[0]
    assert [
        each for each in lines if "detaug" in each and "File" in each and "test_errors" not in each
    ] == []
    at_user = next(number for number, each in enumerate(lines) if line in each)
    at_epoch = next(number for number, each in enumerate(lines) if "epoch 0, step 0" in each)
    assert 0 < at_epoch < at_user
    assert "producer.py" in error.worker_traceback, "the whole of it is there for whoever wants it"
    printed = shown(error).replace(f'{line}"{text}")', "")  # the line of code
    assert printed.count(text) == 2 + (ending == "chain") * printed.count(f'"{text}") from error')


def test_error_of_a_native_transform_names_it_and_where_it_was_raised(make: Maker) -> None:
    _, error = run_into_error(make(Ones(), t.Compose([t.Mirror((0, 1, 2))]), 0, seed=1), BatchError)
    assert "Mirror.draw" in str(error)
    assert "spatial ax" in str(error).splitlines()[0]


class Cases:
    """A data set of which one item, or the batch that has it, is broken."""

    def __init__(self, broken: int | None = 7, together: bool = False) -> None:
        self.broken = broken
        if together:
            self.__getitems__ = lambda indices: [self[index] for index in indices]

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        if index == self.broken:
            raise ValueError("label 5 is out of range")
        return np.zeros(3, np.float32)


@pytest.mark.parametrize("n", [0, 1])
def test_error_of_a_data_set_names_the_index(make: Maker, n: int) -> None:
    _, error = run_into_error(make.from_dataset(Cases(), 3, num_processes=n, seed=1), BatchError)
    assert "item 7 of the data set for epoch 0, step " in str(error)
    assert error.indices == (7,)
    assert pickle.loads(pickle.dumps(error)).indices == (7,)


def refuse(samples: list[Any]) -> Any:
    raise ValueError("shapes differ")


@pytest.mark.parametrize(
    ("dataset", "options", "expected"),
    [
        (Cases(together=True), {}, (6, 7, 8)),
        (Cases(None), {"collate_fn": refuse}, (0, 1, 2)),
        (
            Cases(None),
            {"collate_fn": lambda samples: {"data": np.stack(samples)}, "transform": Scale()},
            (0, 1, 2),
        ),
    ],
    ids=["__getitems__", "collate_fn", "transform"],
)
def test_error_of_a_whole_batch_names_its_indices(
    make: Maker, dataset: Cases, options: dict[str, Any], expected: tuple[int, ...]
) -> None:
    augmenter = make.from_dataset(dataset, 3, shuffle=False, num_processes=0, seed=1, **options)
    _, error = run_into_error(augmenter, BatchError)
    assert f"(items {', '.join(map(str, expected))} of the data set)" in str(error)
    assert error.indices == expected
