"""Cross-validation folds and train/validation splits that depend only on the *set* of ids and the seed.

scikit-learn, seeded from the seed tree, splits the sorted ids: neither their order nor their container matters. With
``stable=True`` the place of every id follows from itself alone, by blake2b keyed with the seed.
"""

from __future__ import annotations

import hashlib
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from detaug.seeding.tree import SeedTree, positive_int

Id = str | int
Labels = Mapping[Any, Any]


class Split(NamedTuple):
    """Two disjoint lists of ids, each in ascending order (strings by code point, integers by value).

    Unpacks (``for train, val in kfold(...)``) and answers to nnU-Net's keys (``split["train"]``, ``split["val"]``).
    """

    train: list[Any]
    val: list[Any]

    def __getitem__(self, key: Any) -> Any:
        return self.as_dict()[key] if isinstance(key, str) else tuple.__getitem__(self, key)

    def as_dict(self) -> dict[str, list[Any]]:
        """``{"train": [...], "val": [...]}``, as nnU-Net's ``splits_final.json`` has it; copies, ready for JSON."""
        return {"train": list(self.train), "val": list(self.val)}


def kfold(
    ids: Iterable[Id],
    k: int,
    seed: int | Sequence[int] | None,
    *,
    groups: Labels | None = None,
    stratify: Labels | None = None,
    stable: bool = False,
) -> list[Split]:
    """`k` splits; every id is in the validation list of exactly one of them.

    scikit-learn's `KFold`, `StratifiedKFold` or, with groups, `StratifiedGroupKFold`, shuffled, on the sorted ids.

    Args:
        ids: all strings or all integers (NumPy's too; Python's are returned), without duplicates. Of paths, pass the names:
            folders differ between machines.
        k: number of folds, 2 … number of ids (of groups, where there are groups).
        seed: as `SeedTree` takes it; None draws one and logs it.
        groups: id → group; it may have more ids. No group is divided.
        stratify: id → stratum. Every fold gets its share of every stratum, as nearly as groups allow.
        stable: adding or removing ids (of an existing group, too) moves no other id to another fold. Each id (or group, whose
            name must then be a string or an integer) finds its fold by itself, so sizes are only about equal:
            n/k ± sqrt(n/k). Not with `stratify`.

    Raises:
        TypeError: `ids` is a single string, holds other types or both; `k` or the seed is no integer.
        ValueError: no ids; duplicates; k below 2 or larger than the number of ids or groups; an id without a group or
            stratum; `stable` with `stratify`; a stable fold without ids; scikit-learn's own.
    """
    from sklearn.model_selection import KFold, StratifiedGroupKFold, StratifiedKFold

    names, of_group, of_stratum, noun = _sorted(ids, groups, stratify, stable)
    folds, units = positive_int("k", k), len(set(of_group or names))
    if not 2 <= folds <= units:
        raise ValueError(f"k must be within 2 ... {units}, the number of {noun}, got {folds}")
    tree = SeedTree(seed).child("splits/kfold")
    if stable:
        fold_of = np.array([position * folds >> 64 for position in _positions(of_group or names, tree)])
        vals = [np.flatnonzero(fold_of == fold) for fold in range(folds)]
        if empty := [fold for fold, val in enumerate(vals) if not val.size]:
            raise ValueError(
                f"with stable=True each of the {units} {noun} finds its fold by itself, and none is in fold "
                f"{', '.join(map(str, empty))} of {folds}: pass a smaller k, another seed, or stable=False"
            )
    else:
        kind = StratifiedGroupKFold if of_group else StratifiedKFold if of_stratum else KFold
        splitter = kind(folds, shuffle=True, random_state=tree.integer(bits=32))
        # with a single stratum, StratifiedGroupKFold balances sizes
        strata: list[Any] = of_stratum or [0] * len(names)
        vals = [val for _, val in splitter.split(names, strata, of_group)]
    return [_split(names, val) for val in vals]


def train_val_split(
    ids: Iterable[Id],
    fraction: float,
    seed: int | Sequence[int] | None,
    groups: Labels | None = None,
    stratify: Labels | None = None,
    *,
    stable: bool = False,
) -> Split:
    """One split. **`fraction` is the share of the ids that goes to validation**: 0.2 trains on four fifths.

    scikit-learn's `train_test_split`, or `GroupShuffleSplit`, on the sorted ids.

    Args:
        ids: as in `kfold`.
        fraction: 0 < fraction < 1. The validation list has ``ceil(fraction * n)`` ids (or groups).
        seed: as in `kfold`, of which this split is independent.
        groups, stratify: as in `kfold`; for both at once take one of `kfold`'s splits.
        stable: adding or removing ids moves no other id to the other side, and raising `fraction` moves ids only from
            training to validation. Sizes are approximate: n·fraction ± sqrt(n·fraction·(1 − fraction)). Not with `stratify`.

    Raises:
        TypeError: as `kfold`.
        ValueError: as `kfold`; `fraction` is no number between 0 and 1, or leaves one side empty; groups with strata.
    """
    from sklearn.model_selection import GroupShuffleSplit, train_test_split

    names, of_group, of_stratum, noun = _sorted(ids, groups, stratify, stable)
    if isinstance(fraction, (bool, str)) or not 0 < fraction < 1:
        raise ValueError(
            f"fraction is the share of ids for validation, between 0 and 1 (both excluded), got {fraction!r}"
        )
    if of_group and of_stratum:
        raise ValueError("groups and stratify at once: take one of kfold's splits, which balances both")
    tree = SeedTree(seed).child("splits/train_val")
    how: dict[str, Any] = {"test_size": float(fraction), "random_state": tree.integer(bits=32)}
    if stable:
        val = [i for i, position in enumerate(_positions(of_group or names, tree)) if position < fraction * 2.0**64]
        if len(val) in (0, len(names)):
            raise ValueError(
                f"with stable=True each of the {noun} finds its side by itself, and {'all' if val else 'none'} are on the "
                "validation side: pass another fraction or seed, or stable=False"
            )
    elif of_group:
        val = next(GroupShuffleSplit(1, **how).split(names, groups=of_group))[1]
    else:
        val = train_test_split(range(len(names)), stratify=of_stratum, **how)[1]
    return _split(names, val)


def _split(names: list[Id], val: Iterable[int]) -> Split:
    chosen = {names[i] for i in val}
    return Split([each for each in names if each not in chosen], sorted(chosen))


def _positions(names: Sequence[Any], tree: SeedTree) -> list[int]:
    """0 … 2**64 − 1, uniform, for each name independently of the others."""
    secret = b"".join(word.to_bytes(4, "little") for word in tree.entropy)
    plain = [_plain("with stable=True, the name of a group", name) for name in names]
    texts = [b"s" + each.encode("utf-8", "surrogatepass") if isinstance(each, str) else b"i%d" % each for each in plain]
    hashes = [hashlib.blake2b(text, digest_size=16, key=secret).digest() for text in texts]
    return [int.from_bytes(each[:8], "big") for each in hashes]


def _sorted(
    ids: Any, groups: Labels | None, stratify: Labels | None, stable: bool
) -> tuple[list[Any], list[Any] | None, list[str] | None, str]:
    """The ids in ascending order, their groups and strata in that order, and a noun for messages."""
    if stable and stratify is not None:
        raise ValueError(
            "stable=True places each id by itself, so it cannot balance strata: leave out stratify or stable (or split "
            "each stratum by itself and join the lists)"
        )
    names = sorted(checked_ids(ids))
    of_group = None if groups is None else _labels("groups", groups, names)
    strata = None if stratify is None else [str(each) for each in _labels("stratify", stratify, names)]
    return names, of_group, strata, "ids" if groups is None else "groups"


def checked_ids(ids: Iterable[Any]) -> list[Any]:
    """`ids` in their order, as Python strings or Python integers. Raises as `kfold`."""
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise TypeError(f"ids must be a collection of strings or integers, got {ids!r}: put it in a list")
    listed = [_plain("an id", item) for item in ids]
    if not listed:
        raise ValueError("there are no ids to split")
    if len({type(item) for item in listed}) > 1:
        raise TypeError("ids must be all strings or all integers, got both: turn them into one kind first")
    twice = sorted(item for item, count in Counter(listed).items() if count > 1)
    if twice:
        raise ValueError(f"ids must be distinct, {len(twice)} come more than once: {shown(twice)}")
    return listed


def _plain(what: str, value: Any) -> Id:
    if isinstance(value, str):
        return str.__str__(value)
    try:
        if not isinstance(value, (bool, np.bool_)):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"{what} must be a string or an integer (of a path, its name), got {value!r}")


def _labels(what: str, labels: Any, names: Sequence[Id]) -> list[Any]:
    """One label for each of `names`.

    Raises:
        TypeError: `labels` is no mapping.
        ValueError: an id without a label (or with None or NaN).
    """
    if not isinstance(labels, Mapping):
        raise TypeError(f"{what} must be a mapping from id, got {labels!r}")
    found = [labels.get(name) for name in names]
    missing = [name for name, label in zip(names, found, strict=True) if label is None or label != label]
    if missing:
        raise ValueError(f"{what} has nothing for {len(missing)} of {len(names)} ids: {shown(missing)}")
    return found


def shown(items: Sequence[Any]) -> str:
    """The first five, for a message."""
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return ", ".join(repr(item) for item in items[:5]) + more
