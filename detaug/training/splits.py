"""Cross-validation folds and train/validation splits that depend only on the *set* of ids and the seed.

Every id has a key: blake2b of the id, keyed with the seed. Ids are dealt in the order of their keys, so neither the order
in which they come, nor the container, nor Python's hash seed, nor NumPy's version enters a split (NumPy promises stable
streams for bit generators only, NEP 19). scikit-learn's KFold and train_test_split shuffle *positions*: there the same
ids in another order give another split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from detaug.seeding import SeedTree, positive_int
from detaug.training import partitioning
from detaug.training.partitioning import Id


class Split(NamedTuple):
    """Two disjoint lists of ids, each in ascending order (strings by code point, integers by value).

    Unpacks (``for train, val in kfold(...)``) and answers to nnU-Net's keys (``split["train"]``, ``split["val"]``).
    """

    train: list[Any]
    val: list[Any]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self._fields:
                raise KeyError(f"a split has 'train' and 'val', not {key!r}")
            return getattr(self, key)
        return tuple.__getitem__(self, key)

    def as_dict(self) -> dict[str, list[Any]]:
        """``{"train": [...], "val": [...]}``, as nnU-Net's ``splits_final.json`` has it; copies, ready for JSON."""
        return {"train": list(self.train), "val": list(self.val)}


Labels = Mapping[Any, Any] | Sequence[Any]


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

    Args:
        ids: all strings or all integers (NumPy's too; they come back as Python's), in any order and any container, a
            generator as well. No duplicates. Of paths, pass the names: a folder is another one on another machine.
        k: number of folds, 2 … number of ids (of groups, where there are groups).
        seed: as `SeedTree` takes it; ``None`` draws one and logs it.
        groups: id → group (a mapping, or a sequence as long as an ordered `ids`). No group is ever divided. The
            heaviest groups are placed first, each where it balances the folds best; where group sizes leave little
            choice, the seed has little to say.
        stratify: id → stratum, likewise. Every fold gets its share of every stratum: without groups, sizes per
            stratum differ by at most one, and so do the folds' sizes. A stratum of fewer than k ids is in that many
            folds. With groups, a best effort: each group goes to the fold where it adds least to the variance of the
            strata's shares (the idea of scikit-learn's StratifiedGroupKFold).
        stable: adding or removing ids (of an existing group, too) never moves another id to another fold. Each id (or
            group, by its name, which must be a string or an integer) then falls by itself into a fold, so the folds'
            sizes are only about equal: n/k ± sqrt(n/k). Not with `stratify`.

    Returns:
        `k` splits, fold 0 first. Without `stable`, groups and strata, fold sizes differ by at most one, larger ones
        first. What the groups and strata are called does not matter unless `stable`; who shares one does.

    Raises:
        TypeError: `ids` is a single string, or holds something else than strings or integers, or both kinds; `k` or
            the seed is no integer; labels that cannot be hashed.
        ValueError: no ids; duplicates; k below 2 or larger than the number of ids or groups; an id without a group or
            stratum; `stable` with `stratify`, or a stable fold that is empty.
    """
    listed = partitioning.checked_ids(ids)
    folds = positive_int("k", k)
    if folds < 2:
        raise ValueError(f"k must be at least 2, got {folds}: every fold is validated on by a model trained on others")
    if folds > len(listed):
        raise ValueError(
            f"k={folds} is larger than the number of ids, {len(listed)}: pass a k of at most {len(listed)}"
        )
    group_of, stratum_of = _labels_of(ids, listed, groups, stratify, stable)
    tree = SeedTree(seed).child("splits/kfold")
    units = partitioning.units(listed, group_of, stratum_of, tree, keyed_by_label=stable)
    if folds > len(units):
        raise ValueError(f"k={folds} is larger than the number of groups, {len(units)}: no group is ever divided")
    if stable:
        fold_of = [unit.position * folds >> 64 for unit in units]
    elif group_of is None:
        fold_of = partitioning.deal(units, folds)
    else:
        fold_of = partitioning.balance(units, folds)
    validation: list[list[Any]] = [[] for _ in range(folds)]
    for unit, fold in zip(units, fold_of, strict=True):
        validation[fold] += unit.ids
    empty = [fold for fold, members in enumerate(validation) if not members]
    if empty:
        raise ValueError(
            f"with stable=True each of the {len(units)} {_noun(group_of)} falls into a fold by itself, and none fell "
            f"into fold {', '.join(map(str, empty))} of {folds}: take a smaller k, another seed, or stable=False"
        )
    return [_split(listed, members) for members in validation]


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

    Args:
        ids: as in `kfold`.
        fraction: 0 < fraction < 1. The validation list has ``round(fraction * n)`` ids (Python's `round`: halves go
            to the even number).
        seed: as `SeedTree` takes it; ``None`` draws one and logs it. A split and the folds of one seed are
            independent of each other.
        groups: as in `kfold`. Groups are taken in the order of their keys as long as each brings the validation
            list closer to its size, which is then met only as nearly as whole groups allow.
        stratify: as in `kfold`. Without groups, each stratum has its share of the validation list rounded down or
            up (largest remainders first), so one of very few ids may be all on one side. With groups, a best effort.
        stable: adding or removing ids never moves another id to the other side, and raising `fraction` moves ids only
            from training to validation. Sizes are only about right: n·fraction ± sqrt(n·fraction·(1 − fraction)).
            Not with `stratify`.

    Raises:
        TypeError: as `kfold`; `fraction` is no number.
        ValueError: as `kfold`; `fraction` is not within 0 … 1, or leaves one side empty.
    """
    listed = partitioning.checked_ids(ids)
    share = _checked_fraction(fraction)
    group_of, stratum_of = _labels_of(ids, listed, groups, stratify, stable)
    tree = SeedTree(seed).child("splits/train_val")
    units = partitioning.units(listed, group_of, stratum_of, tree, keyed_by_label=stable)
    if len(units) < 2:
        raise ValueError(f"two sides need at least 2 {_noun(group_of)}, got {len(units)}")
    wanted = round(share * len(listed))
    if stable:
        chosen = [unit for unit in units if unit.position < share * 2.0**64]  # exact: a power of two
    elif wanted in (0, len(listed)):
        side = "validation" if wanted == 0 else "training"
        raise ValueError(
            f"fraction={fraction!r} of {len(listed)} ids is {wanted} for validation, which leaves {side} empty: "
            f"for one id, pass a fraction of {1 / len(listed):.3g} for validation or {1 - 1 / len(listed):.3g} for training"
        )
    elif group_of is None:
        chosen = partitioning.take_shares(units, wanted)
    else:
        chosen = partitioning.take_groups(units, wanted)
    if len(chosen) in (0, len(units)):
        raise ValueError(
            f"with stable=True each of the {len(units)} {_noun(group_of)} falls on one side by itself, and "
            f"{'none' if not chosen else 'all'} fell on the validation side: take another fraction or seed, or stable=False"
        )
    return _split(listed, [member for unit in chosen for member in unit.ids])


def _split(ids: list[Any], validation: Iterable[Any]) -> Split:
    val = set(validation)
    ordered = sorted(ids)
    return Split([item for item in ordered if item not in val], [item for item in ordered if item in val])


def _labels_of(
    given: Any, ids: list[Any], groups: Labels | None, stratify: Labels | None, stable: bool
) -> tuple[dict[Any, Any] | None, dict[Any, Any] | None]:
    if stable and stratify is not None:
        raise ValueError(
            "stable=True places each id by itself, whatever other ids there are, so it cannot balance strata: "
            "leave out stratify or stable (or split each stratum by itself and join the lists)"
        )
    return (
        None if groups is None else partitioning.labels_by_id("groups", groups, given, ids),
        None if stratify is None else partitioning.labels_by_id("stratify", stratify, given, ids),
    )


def _noun(group_of: Mapping[Any, Any] | None) -> str:
    return "ids" if group_of is None else "groups"


def _checked_fraction(fraction: Any) -> float:
    if isinstance(fraction, (bool, str, bytes)):
        raise TypeError(f"fraction must be a number between 0 and 1, got {fraction!r}")
    try:
        number = float(fraction)
    except (TypeError, ValueError):
        raise TypeError(f"fraction must be a number between 0 and 1, got {fraction!r}") from None
    if not 0 < number < 1:
        raise ValueError(
            f"fraction is the share of ids that goes to validation and must lie between 0 and 1 (both excluded), "
            f"got {fraction!r}"
        )
    return number
