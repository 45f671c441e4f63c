"""Texts that a pipeline holds in the order of a set, which is another one in every run of the program."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import numpy as np

from detaug.purity.references import is_the_users_own, parts_of, walk

#: Of fewer texts, more than one order in 4,000 is a set's by accident.
_FEWEST, _MOST = 8, 100_000
#: So many values are looked at.
_MOST_VALUES = 20_000
_TEXTS = (str, bytes, PurePath)
_CONTAINERS = (dict, list, tuple)


def in_a_sets_order(roots: Mapping[str, Any]) -> str:
    """Where the first such texts are: the keys of a dict, the items of a list, a tuple or an array. Empty: nowhere.

    Private attributes of a library's objects are passed over: Albumentations keeps its targets in one, and whether their order
    shows in a batch is for the run-time check to find.
    """
    for path, value in walk(roots.items(), _MOST_VALUES, parts=_not_private):
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "US":
            value = value.tolist()
        if isinstance(value, _CONTAINERS) and is_a_sets_order(value):
            return path
    return ""


def _not_private(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    has_private = not isinstance(value, _CONTAINERS) and not is_the_users_own(value)
    return (
        (path + label, part)
        for label, part in parts_of(value)
        if not (has_private and label.startswith("._"))
    )


def is_a_sets_order(texts: Collection[Any]) -> bool:
    """Whether these are different texts in the order in which a set of them lies in its table.

    A set's table has a power of two places, and a text's place is its hash modulo that, or one behind where others took it.
    """
    if not _FEWEST <= len(texts) <= _MOST or not any(
        all(isinstance(text, kind) for text in texts) for kind in _TEXTS
    ):
        return False
    if len(set(texts)) < len(texts) or list(texts) == sorted(texts):
        return False
    places = 1 << (len(texts) * 5 // 3).bit_length()
    return any(
        _descents(texts, size) <= len(texts) // 6 - 1 for size in (places, places * 2, places * 4)
    )


def _descents(texts: Collection[Any], places: int) -> int:
    homes = [hash(text) % places for text in texts]
    return sum(one > other for one, other in pairwise(homes))
