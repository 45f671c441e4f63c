"""Splits: of the set of ids and the seed, nothing else; groups whole, strata in proportion, stable where asked for."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detaug import SeedTree
from detaug.training import Split, kfold, train_val_split

CASES = [f"case_{number:03d}" for number in range(23)]
GROUPS = {case: f"patient {number // 3}" for number, case in enumerate(CASES)}
STRATA = {case: "ab"[number % 4 == 0] for number, case in enumerate(CASES)}
ASKED = [{}, {"groups": GROUPS}, {"stratify": STRATA}, {"groups": GROUPS, "stratify": STRATA}, {"stable": True}]


def test_a_split_unpacks_and_answers_to_nnunets_keys() -> None:
    split = train_val_split(CASES, 0.2, 1)
    train, val = split
    assert (split["train"], split["val"], split.as_dict()) == (train, val, {"train": train, "val": val})
    assert train == sorted(train)
    with pytest.raises(KeyError, match="test"):
        split["test"]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: " and ".join(asked) or "plain")
def test_neither_order_nor_container_matter_and_each_id_is_validated_on_once(asked) -> None:
    shuffled = random.Random(3).sample(CASES, len(CASES))
    expected = kfold(CASES, 3, 7, **asked)
    for container in (
        shuffled,
        tuple(shuffled),
        set(CASES),
        dict.fromkeys(shuffled),
        np.array(shuffled),
        iter(shuffled),
    ):
        assert kfold(container, 3, 7, **asked) == expected
    assert Counter(case for fold in expected for case in fold.val) == Counter(CASES)
    assert all(sorted(fold.train + fold.val) == CASES for fold in expected)
    if len(asked) < 2:
        assert train_val_split(shuffled, 0.3, 7, **asked) == train_val_split(CASES, 0.3, 7, **asked)


def test_scikit_learn_makes_them_from_the_sorted_ids() -> None:
    from sklearn.model_selection import KFold

    seed = SeedTree(7).child("splits/kfold").integer(bits=32)
    folds = KFold(5, shuffle=True, random_state=seed).split(CASES)
    assert [fold.val for fold in kfold(CASES, 5, 7)] == [[CASES[i] for i in val] for _, val in folds]


def test_seeds_matter_and_folds_and_splits_of_one_seed_are_independent() -> None:
    assert kfold(CASES, 5, 1) != kfold(CASES, 5, 2)
    assert kfold(CASES, 5, [1, 2]) == kfold(CASES, 5, [1, 2])
    assert train_val_split(CASES, 0.2, 1) not in kfold(CASES, 5, 1)


@pytest.mark.parametrize("asked", [{}, {"stable": True}, {"stratify": STRATA}], ids=str)
def test_no_group_is_divided(asked) -> None:
    for fold in kfold(CASES, 3, 5, groups=GROUPS, **asked):
        assert not {GROUPS[case] for case in fold.train} & {GROUPS[case] for case in fold.val}
    if not asked:
        split = train_val_split(CASES, 0.3, 5, groups=GROUPS)
        assert not {GROUPS[case] for case in split.train} & {GROUPS[case] for case in split.val}


def test_strata_are_in_proportion() -> None:
    for fold in kfold(CASES, 3, 5, stratify=STRATA):
        counts = Counter(STRATA[case] for case in fold.val)
        assert counts["b"] == 2
        assert counts["a"] in (5, 6)


@settings(max_examples=25, deadline=None)
@given(
    st.sets(st.integers(0, 10**6), min_size=60, max_size=80),
    st.sets(st.integers(0, 10**6), max_size=40),
    st.integers(0, 2**70),
)
def test_adding_ids_moves_none_when_stable(ids, more, seed) -> None:
    small, large = kfold(ids, 2, seed, stable=True), kfold(ids | more, 2, seed, stable=True)
    assert all(set(before.val) <= set(after.val) for before, after in zip(small, large, strict=True))
    fewer, many = train_val_split(ids, 0.3, seed, stable=True), train_val_split(ids, 0.6, seed, stable=True)
    assert set(fewer.val) <= set(many.val)


def test_stable_folds_never_change() -> None:
    assert [fold.val for fold in kfold(range(10), 2, 1, stable=True)] == STABLE


STABLE = [[0, 1, 2, 5, 6, 8], [3, 4, 7, 9]]


def test_a_new_id_of_an_old_group_joins_it_when_stable() -> None:
    folds = kfold([*CASES, "new"], 2, 3, groups={**GROUPS, "new": "patient 0"}, stable=True)
    assert ["case_000" in fold.val for fold in folds] == ["new" in fold.val for fold in folds]


@pytest.mark.parametrize(
    ("ids", "error", "says"),
    [
        ("case", TypeError, "put it in a list"),
        (5, TypeError, "collection"),
        ([], ValueError, "no ids"),
        (["a", 1], TypeError, "one kind"),
        ([1.5], TypeError, "string or an integer"),
        ([True], TypeError, "string or an integer"),
        (["a", "b", "a"], ValueError, "more than once: 'a'"),
    ],
)
def test_bad_ids_are_refused(ids, error, says) -> None:
    with pytest.raises(error, match=says):
        kfold(ids, 2, 1)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"k": 1}, ValueError, "within 2 ... 23, the number of ids"),
        ({"k": 24}, ValueError, "got 24"),
        ({"k": 9, "groups": GROUPS}, ValueError, "within 2 ... 8, the number of groups"),
        ({"k": 2.0}, TypeError, "k must"),
        ({"seed": -1}, ValueError, "seed"),
        ({"groups": {"case_000": 1}}, ValueError, "groups has nothing for 22 of 23 ids"),
        ({"stratify": [1] * 23}, TypeError, "stratify must be a mapping"),
        ({"groups": "ab"}, TypeError, "groups must be a mapping"),
        ({"stratify": {**STRATA, "case_001": float("nan")}}, ValueError, "'case_001'"),
        ({"stratify": STRATA, "stable": True}, ValueError, "cannot balance strata"),
        ({"k": 23, "stable": True}, ValueError, "none is in fold"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, says) -> None:
    with pytest.raises(error, match=says):
        kfold(**{"ids": CASES, "k": 3, "seed": 1, **arguments})


@pytest.mark.parametrize("fraction", [0, 1, -0.1, float("nan"), "0.2", True])
def test_bad_fractions_are_refused(fraction) -> None:
    with pytest.raises((TypeError, ValueError), match="fraction"):
        train_val_split(CASES, fraction, 1)


def test_groups_with_strata_are_kfolds() -> None:
    with pytest.raises(ValueError, match="take one of kfold's splits"):
        train_val_split(CASES, 0.2, 1, GROUPS, STRATA)
    assert isinstance(kfold(CASES, 3, 1, groups=GROUPS, stratify=STRATA)[0], Split)
