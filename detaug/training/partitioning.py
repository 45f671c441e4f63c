"""The arithmetic below `detaug.training.splits`: ids to keyed units, units to folds.

A *unit* is what is never divided: one id, or one group of them. Units are in the order of their keys, which depend on the
seed and the ids alone. Everything here is pure and exact: Python integers, no random state, no rounding.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detaug.seeding import SeedTree

Id = str | int

_SHOWN = 5
# After these, what thousands of groups could still gain is a fraction of an id.
_PASSES = 8


@dataclass(frozen=True)
class Unit:
    """Ids that stay together.

    Attributes:
        key: 16 bytes of blake2b, then the hashed bytes themselves; units are ordered by it.
        ids: at least one.
        strata: how many of the ids are in which stratum; empty without strata.
    """

    key: bytes
    ids: tuple[Id, ...]
    strata: Mapping[Any, int]

    @property
    def position(self) -> int:
        """0 … 2**64 − 1, uniform: where the unit falls by itself, whatever else there is."""
        return int.from_bytes(self.key[:8], "big")


def checked_ids(ids: Iterable[Any]) -> list[Id]:
    """`ids` in the order in which they came, as Python strings or Python integers.

    Raises:
        TypeError: one string; not iterable; another type; strings and integers mixed.
        ValueError: none; duplicates.
    """
    if isinstance(ids, (str, bytes)):
        raise TypeError(
            f"ids must be a collection of ids, got the single {type(ids).__name__} {ids!r}: put it in a list"
        )
    try:
        listed = [_plain("an id", item) for item in ids]
    except TypeError as error:
        if not isinstance(ids, Iterable):
            raise TypeError(f"ids must be a collection of strings or integers, got {ids!r}") from None
        raise error
    if not listed:
        raise ValueError("there are no ids to split")
    strings = [item for item in listed if isinstance(item, str)]
    if strings and len(strings) < len(listed):
        number = next(item for item in listed if not isinstance(item, str))
        raise TypeError(
            f"ids must be all strings or all integers, got both, such as {strings[0]!r} and {number!r}: "
            "turn them into one kind first"
        )
    if len(set(listed)) < len(listed):
        twice = sorted(item for item, count in Counter(listed).items() if count > 1)
        raise ValueError(f"ids must be distinct, {len(twice)} come more than once: {shown(twice)}")
    return listed


def _plain(what: str, value: Any) -> Id:
    if isinstance(value, str):
        return str.__str__(value)
    if not isinstance(value, (bool, np.bool_)):
        try:
            return operator.index(value)
        except TypeError:
            pass
    advice = ": pass its name as a string" if hasattr(value, "__fspath__") else ""
    raise TypeError(f"{what} must be a string or an integer, got {value!r} of type {type(value).__name__}{advice}")


def labels_by_id(what: str, labels: Any, given: Any, ids: Sequence[Id]) -> dict[Id, Any]:
    """id → group or stratum.

    Args:
        what: "groups" or "stratify", for messages.
        labels: a mapping (which may know more ids), or as many labels as ids, in the ids' order.
        given: the ids as the caller passed them; `ids` are the same, checked.

    Raises:
        TypeError: a single string; labels in order for ids without an order; a label that cannot be hashed.
        ValueError: an id without a label (None and NaN are none); another number of labels than ids.
    """
    if isinstance(labels, Mapping):
        missing = [item for item in ids if item not in labels]
        if missing:
            raise ValueError(f"{what} has nothing for {len(missing)} of {len(ids)} ids: {shown(sorted(missing))}")
        return {item: _label(what, item, labels[item]) for item in ids}
    if isinstance(labels, (str, bytes, set, frozenset)) or not isinstance(labels, Iterable):
        raise TypeError(f"{what} must be a mapping from id, or a sequence as long as the ids, got {labels!r}")
    if isinstance(given, (set, frozenset)):
        raise TypeError(f"ids is a set, which has no order that {what} could be in: pass {what} as a mapping from id")
    listed = list(labels)
    if len(listed) != len(ids):
        raise ValueError(
            f"{what} has {len(listed)} entries for {len(ids)} ids: there must be one for each id, in order"
        )
    return {item: _label(what, item, label) for item, label in zip(ids, listed, strict=True)}


def _label(what: str, item: Id, label: Any) -> Any:
    if getattr(label, "ndim", None) == 0:  # scalars of NumPy and torch: the latter are hashed by identity
        label = label.item()
    try:
        missing = label is None or bool(label != label)
    except (TypeError, ValueError):
        missing = True
    try:
        hash(label)
    except TypeError:
        raise TypeError(
            f"{what} has {label!r} for id {item!r}, which cannot be compared by hash: pass strings"
        ) from None
    if missing:
        raise ValueError(f"{what} has {label!r} for id {item!r}: every id needs a label; name one for those without")
    return label


def units(
    ids: Sequence[Id],
    group_of: Mapping[Id, Any] | None,
    stratum_of: Mapping[Id, Any] | None,
    tree: SeedTree,
    *,
    keyed_by_label: bool,
) -> list[Unit]:
    """The units of these ids, in the order of their keys.

    A group's key is the least of its ids' keys, so that names of groups do not matter; or, `keyed_by_label`, that of
    its name, so that its ids may change.

    Raises:
        TypeError: keyed by a label that is neither a string nor an integer.
    """
    secret = b"".join(word.to_bytes(4, "little") for word in tree.entropy)
    members: dict[Any, list[Id]] = {}
    for item in sorted(ids):
        members.setdefault(item if group_of is None else group_of[item], []).append(item)
    made = []
    for label, together in members.items():
        hashed = [_plain("with stable=True, the name of a group", label)] if keyed_by_label else together
        strata = {} if stratum_of is None else Counter(stratum_of[item] for item in together)
        made.append(Unit(min(_key(item, secret) for item in hashed), tuple(together), strata))
    return sorted(made, key=lambda unit: unit.key)


def _key(item: Id, secret: bytes) -> bytes:
    encoded = b"s" + item.encode("utf-8", "surrogatepass") if isinstance(item, str) else b"i%d" % item
    return hashlib.blake2b(encoded, digest_size=16, key=secret).digest() + encoded


def deal(single: Sequence[Unit], folds: int) -> list[int]:
    """A fold for each of these units of one id.

    Stratum after stratum is dealt out like one pack of cards, without starting over: sizes differ by at most one over
    the folds, of every stratum and in all.
    """
    fold_of = [0] * len(single)
    for card, index in enumerate(index for pack in _packs(single) for index in pack):
        fold_of[index] = card % folds
    return fold_of


def take_shares(single: Sequence[Unit], wanted: int) -> list[Unit]:
    """`wanted` of these units of one id, of each stratum its share rounded down or up (largest remainders first)."""
    packs = _packs(single)
    quota, remainder = zip(*(divmod(wanted * len(pack), len(single)) for pack in packs), strict=True)
    left = wanted - sum(quota)
    rounded_up = set(sorted(range(len(packs)), key=lambda i: -remainder[i])[:left])
    return [single[index] for i, pack in enumerate(packs) for index in pack[: quota[i] + (i in rounded_up)]]


def _packs(single: Sequence[Unit]) -> list[list[int]]:
    packs: dict[Any, list[int]] = {}
    for index, unit in enumerate(single):
        packs.setdefault(next(iter(unit.strata), None), []).append(index)
    return list(packs.values())


def balance(groups: Sequence[Unit], folds: int) -> list[int]:
    """A fold for each unit: heaviest first, each to the fold where it adds least to the variance of the shares.

    The share of a fold is counted in all ids and in the ids of each stratum, each as a part of its total, which gives
    small strata the weight of large ones. Without strata that is the fold with the fewest ids (as in scikit-learn's
    GroupKFold); with them, the idea of its StratifiedGroupKFold. Ties go to the fold with fewer ids, then to the
    lower number. No fold stays empty where there are as many units as folds.
    """
    counts, weight = _weighted_counts(groups)
    heaviest_first = sorted(range(len(groups)), key=lambda i: -sum(weight[s] * c * c for s, c in counts[i].items()))
    held: list[Counter[Any]] = [Counter() for _ in range(folds)]
    fold_of = [0] * len(groups)
    for i in heaviest_first:
        added = [sum(weight[s] * fold[s] * c for s, c in counts[i].items()) for fold in held]
        best = min(range(folds), key=lambda f: (added[f], held[f][_ALL], f))
        held[best].update(counts[i])
        fold_of[i] = best
    return fold_of


def take_groups(groups: Sequence[Unit], wanted: int) -> list[Unit]:
    """Units with about `wanted` ids, and of each stratum about the same share; neither none nor all.

    Units are taken or given back, in the order of their keys, for as long as one alone brings the sizes closer (least
    squares of the same shares as in `balance`), in a few passes over all of them.
    """
    counts, weight = _weighted_counts(groups)
    total: Counter[Any] = Counter()
    for count in counts:
        total.update(count)
    # n times (what is held, less what is wanted): integers
    size = total[_ALL]
    excess = {s: -wanted * of_stratum for s, of_stratum in total.items()}
    taken = [False] * len(groups)
    on_side = {False: len(groups), True: 0}

    def change(i: int) -> int:
        sign = -size if taken[i] else size
        return sum(weight[s] * sign * c * (2 * excess[s] + sign * c) for s, c in counts[i].items())

    def flip(i: int) -> None:
        for s, c in counts[i].items():
            excess[s] += -size * c if taken[i] else size * c
        on_side[taken[i]] -= 1
        taken[i] = not taken[i]
        on_side[taken[i]] += 1

    flip(min(range(len(groups)), key=lambda i: (change(i) >= 0, i if change(i) < 0 else change(i), i)))
    for _ in range(_PASSES):
        for i in range(len(groups)):
            if change(i) < 0 and on_side[taken[i]] > 1:
                flip(i)
    return [unit for i, unit in enumerate(groups) if taken[i]]


_ALL = object()


def _weighted_counts(groups: Sequence[Unit]) -> tuple[list[Counter[Any]], dict[Any, int]]:
    """Per unit: ids in all and per stratum; and per stratum an integer proportional to 1 / total²."""
    counts = [Counter({_ALL: len(unit.ids), **unit.strata}) for unit in groups]
    total: Counter[Any] = Counter()
    for count in counts:
        total.update(count)
    scale = math.lcm(*total.values()) ** 2
    return counts, {s: scale // of_stratum**2 for s, of_stratum in total.items()}


def shown(items: Sequence[Any]) -> str:
    """The first few, for a message."""
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(repr(item) for item in items[:_SHOWN]) + more
