"""Splits: functions of the set of ids and the seed; partitions; sizes; groups, strata; stability."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detaug.training.splits import Split, kfold, train_val_split

CASES = [f"case_{i:03d}" for i in range(10)]
GROUP_OF = {case: i // 3 for i, case in enumerate(CASES)}
STRATUM_OF = {case: "ab"[i % 5 == 0] for i, case in enumerate(CASES)}

# Slow machines are no failures; the claims are simple ones.
few = settings(deadline=None, max_examples=40)
seeds = st.one_of(st.integers(0, 2**70), st.lists(st.integers(0, 2**40), min_size=1, max_size=3))
id_sets = st.one_of(
    st.sets(st.text(max_size=6), min_size=2, max_size=40), st.sets(st.integers(), min_size=2, max_size=40)
)
labels = st.integers(0, 6)


@st.composite
def problems(draw, grouped=False, stratified=False):
    """Ids in some order, k, a seed, and labels by id."""
    ids = draw(st.permutations(sorted(draw(id_sets))))
    group_of = {i: draw(labels) for i in ids} if grouped else None
    stratum_of = {i: draw(labels) for i in ids} if stratified else None
    most = len(set(group_of.values())) if grouped else len(ids)
    return ids, draw(st.integers(2, max(2, most))), draw(seeds), group_of, stratum_of, most


any_problem = st.one_of(*(problems(g, s) for g in (False, True) for s in (False, True)))


# ----- what a split is


def test_a_split_unpacks_and_answers_to_nnunets_keys():
    split = kfold(CASES, 5, 1)[0]
    train, val = split
    assert split["train"] is split.train is split[0] is train
    assert split["val"] is split.val is split[1] is val
    assert json.loads(json.dumps(split.as_dict())) == {"train": train, "val": val}
    assert split == pickle.loads(pickle.dumps(split)) == copy.deepcopy(split) == Split(train, val)
    with pytest.raises(KeyError, match="test"):
        split["test"]


def test_lists_are_in_ascending_order():
    for split in [*kfold([11, 2, -3, 100, 7], 2, 1), train_val_split([11, 2, -3, 100, 7], 0.4, 1)]:
        assert split.train == sorted(split.train)
        assert split.val == sorted(split.val)


# ----- the set of ids and the seed, and nothing else

# The numbers of the validation cases.
GOLDEN_FOLDS = {
    "plain": [[1, 6, 7, 8], [2, 5, 9], [0, 3, 4]],
    "integers": [[1, 4, 5, 8], [0, 2, 9], [3, 6, 7]],
    "list seed": [[1, 5, 6, 7], [0, 2, 8], [3, 4, 9]],
    "groups": [[6, 7, 8, 9], [0, 1, 2], [3, 4, 5]],
    "strata": [[3, 4, 5, 7], [6, 8, 9], [0, 1, 2]],
    "both": [[0, 1, 2, 9], [3, 4, 5], [6, 7, 8]],
    "stable": [[7, 9], [0, 1, 2, 3, 4, 5, 8], [6]],
    "stable groups": [[3, 4, 5, 6, 7, 8], [0, 1, 2, 9]],
}  # fmt: skip
GOLDEN_VALIDATION = {
    "plain": [0, 5, 6],
    "integers": [2, 3, 7],
    "groups": [0, 1, 2],
    "strata": [0, 1, 2, 6, 7],
    "both": [0, 1, 2],
    "stable": [0, 2, 5, 6],
}  # fmt: skip


@pytest.mark.parametrize("name", list(GOLDEN_FOLDS))
def test_these_folds_never_change(name):
    assert [_numbers(split.val) for split in _golden_folds()[name]] == GOLDEN_FOLDS[name]


@pytest.mark.parametrize("name", list(GOLDEN_VALIDATION))
def test_these_validation_lists_never_change(name):
    assert _numbers(_golden_splits()[name].val) == GOLDEN_VALIDATION[name]


def _numbers(ids):
    return [int(i.removeprefix("case_")) if isinstance(i, str) else i for i in ids]


def _golden_folds():
    return {
        "plain": kfold(CASES, 3, 7),
        "integers": kfold(range(10), 3, 7),
        "list seed": kfold(CASES, 3, [7, 2**64]),
        "groups": kfold(CASES, 3, 7, groups=GROUP_OF),
        "strata": kfold(CASES, 3, 7, stratify=STRATUM_OF),
        "both": kfold(CASES, 3, 7, groups=GROUP_OF, stratify=STRATUM_OF),
        "stable": kfold(CASES, 3, 7, stable=True),
        "stable groups": kfold(CASES, 2, 8, groups=GROUP_OF, stable=True),
    }


def _golden_splits():
    return {
        "plain": train_val_split(CASES, 0.3, 7),
        "integers": train_val_split(range(10), 0.3, 7),
        "groups": train_val_split(CASES, 0.3, 7, GROUP_OF),
        "strata": train_val_split(CASES, 0.5, 7, stratify=STRATUM_OF),
        "both": train_val_split(CASES, 0.3, 7, GROUP_OF, STRATUM_OF),
        "stable": train_val_split(CASES, 0.3, 7, stable=True),
    }


@pytest.mark.parametrize(
    "container",
    [
        list, tuple, set, frozenset, dict.fromkeys, iter, np.array, lambda ids: ids[::-1],
        lambda ids: np.array(ids, dtype=object), lambda ids: dict.fromkeys(ids).keys(), lambda ids: (i for i in ids),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ids", [CASES, list(range(10))])
def test_neither_order_nor_container_matter(container, ids):
    assert kfold(container(ids), 3, 7) == kfold(ids, 3, 7)
    assert train_val_split(container(ids), 0.3, 7) == train_val_split(ids, 0.3, 7)
    assert {type(item) for item in kfold(container(ids), 3, 7)[0].train} == {type(ids[0])}


@few
@given(any_problem, st.randoms(use_true_random=False), st.sampled_from([0.2, 0.5, 0.7]))
def test_order_does_not_matter_with_groups_and_strata_either(problem, rnd, fraction):
    ids, k, seed, groups, strata, most = problem
    shuffled = rnd.sample(ids, len(ids))
    in_order = {"groups": groups, "stratify": strata}
    aligned = {what: None if of is None else [of[i] for i in shuffled] for what, of in in_order.items()}
    if k <= most:
        assert kfold(ids, k, seed, **in_order) == kfold(shuffled, k, seed, **aligned)
    if 0 < round(fraction * len(ids)) < len(ids) and most > 1:
        assert train_val_split(ids, fraction, seed, **in_order) == train_val_split(shuffled, fraction, seed, **aligned)


def test_another_interpreter_with_another_hash_seed_gives_the_same():
    code = (
        "import sys, json; from detaug.training.splits import *\n"
        "ids = {f'case_{i}' for i in range(30)}; groups = {i: i[-1] for i in ids}\n"
        "splits = kfold(ids, 4, 3) + kfold(ids, 3, 3, groups=groups, stratify={i: i[:6] for i in ids})\n"
        "print(json.dumps(splits + [train_val_split(ids, 0.2, 3, groups), train_val_split(ids, 0.2, 3, stable=True)]))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert said[0] == said[1] != ""


def test_seeds_matter():
    assert len({str(kfold(CASES, 3, seed)) for seed in range(20)}) == 20
    for groups, stable in [(None, False), (GROUP_OF, False), (None, True)]:
        made = {str(_or_none(train_val_split, CASES, 0.3, seed, groups, stable=stable)) for seed in range(20)}
        assert len(made) > 2


def test_folds_and_splits_of_one_seed_are_independent():
    ids = range(1000)
    fold = set(kfold(ids, 5, 7)[0].val)
    assert 10 < len(fold & set(train_val_split(ids, 0.2, 7).val)) < 80


def test_no_seed_is_drawn_and_logged(caplog):
    first, second = kfold(range(100), 5, None), kfold(range(100), 5, None)
    assert first != second
    assert caplog.text.count("no seed was given") == 2


def test_names_of_groups_and_strata_do_not_matter_unless_stable():
    renamed = {case: f"patient {9 - group}" for case, group in GROUP_OF.items()}
    assert kfold(CASES, 3, 7, groups=renamed) == kfold(CASES, 3, 7, groups=GROUP_OF)
    assert train_val_split(CASES, 0.3, 7, renamed) == train_val_split(CASES, 0.3, 7, GROUP_OF)


@few
@given(problems(), st.booleans())
def test_groups_of_one_are_no_groups(problem, stable):
    ids, k, seed, *_ = problem
    single = {i: i for i in ids}
    assert _or_none(kfold, ids, k, seed, stable=stable) == _or_none(kfold, ids, k, seed, groups=single, stable=stable)
    plain, grouped = (_or_none(train_val_split, ids, 0.5, seed, groups, stable=stable) for groups in (None, single))
    assert plain == grouped


def _or_none(split, *args, **kwargs):
    try:
        return split(*args, **kwargs)
    except ValueError:
        return None


# ----- partition and sizes


@few
@given(any_problem, st.booleans())
def test_each_id_is_validated_on_exactly_once_and_no_group_is_divided(problem, stable):
    ids, k, seed, groups, strata, most = problem
    if k > most:
        return
    try:
        splits = kfold(ids, k, seed, groups=groups, stratify=None if stable else strata, stable=stable)
    except ValueError as error:
        assert "stable" in str(error)  # noqa: PT017
        assert stable
        return
    assert len(splits) == k
    assert sorted(i for split in splits for i in split.val) == sorted(ids)
    for train, val in splits:
        assert train
        assert val
        assert sorted(train + val) == sorted(ids)
        if groups:
            assert not {groups[i] for i in train} & {groups[i] for i in val}


@few
@given(problems(stratified=True), st.booleans())
def test_fold_sizes_differ_by_at_most_one_in_all_and_per_stratum(problem, stratified):
    ids, k, seed, _, strata, _ = problem
    sizes, per_stratum = [], {stratum: [] for stratum in set(strata.values())}
    for _, val in kfold(ids, k, seed, stratify=strata if stratified else None):
        sizes.append(len(val))
        count = Counter(strata[i] for i in val)
        for stratum, counts in per_stratum.items():
            counts.append(count[stratum])
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1
    if stratified:
        assert all(max(counts) - min(counts) <= 1 for counts in per_stratum.values())


@few
@given(any_problem, st.floats(0.01, 0.99))
def test_validation_has_its_share(problem, fraction):
    ids, _, seed, groups, strata, most = problem
    wanted = round(fraction * len(ids))
    if wanted in (0, len(ids)) or most < 2:
        with pytest.raises(ValueError, match=r"empty|at least 2"):
            train_val_split(ids, fraction, seed, groups, strata)
        return
    train, val = train_val_split(ids, fraction, seed, groups, strata)
    assert train
    assert val
    assert sorted(train + val) == sorted(ids)
    if groups is None:
        assert len(val) == wanted
        if strata:
            held, total = Counter(strata[i] for i in val), Counter(strata.values())
            assert all(abs(held[s] - wanted * total[s] / len(ids)) < 1 for s in total)
    else:
        assert not {groups[i] for i in train} & {groups[i] for i in val}
        if strata is None:
            assert abs(len(val) - wanted) <= max(Counter(groups.values()).values())


def test_groups_are_balanced():
    group_of = dict(enumerate(np.repeat(np.arange(40), np.arange(1, 41))))
    sizes = [len(val) for _, val in kfold(group_of, 5, 3, groups=group_of)]
    assert max(sizes) - min(sizes) <= 2
    for seed in range(10):
        assert abs(len(train_val_split(group_of, 0.2, seed, group_of).val) - 164) <= 5


def test_groups_and_strata_together_are_kept_as_well_as_groups_allow():
    group_of = {i: i // 4 for i in range(400)}
    stratum_of = {i: "rare" if i // 4 % 10 == 0 else "common" for i in range(400)}
    for seed in range(5):
        for _, val in kfold(group_of, 5, seed, groups=group_of, stratify=stratum_of):
            assert Counter(stratum_of[i] for i in val) == {"rare": 8, "common": 72}
        _, val = train_val_split(group_of, 0.2, seed, group_of, stratum_of)
        assert Counter(stratum_of[i] for i in val) == {"rare": 8, "common": 72}
    alone = [Counter(stratum_of[i] for i in val)["rare"] for _, val in kfold(group_of, 5, 0, groups=group_of)]
    assert alone != [8] * 5


def test_a_stratum_of_fewer_ids_than_folds_is_in_that_many_folds():
    stratum_of = {i: i >= 18 for i in range(20)}
    assert sorted(sum(i >= 18 for i in val) for _, val in kfold(stratum_of, 5, 3, stratify=stratum_of)) == [
        0,
        0,
        0,
        1,
        1,
    ]


# ----- stable


@few
@given(st.sets(st.integers(0, 10**6), min_size=60, max_size=80), st.sets(st.integers(0, 10**6), max_size=40), seeds)
def test_adding_ids_moves_none_when_stable(ids, more, seed):
    folds, later = (kfold(some, 3, seed, stable=True) for some in (ids, ids | more))
    for before, after in zip(folds, later, strict=True):
        assert set(before.val) == set(after.val) & ids
    split, later_split = (train_val_split(some, 0.3, seed, stable=True) for some in (ids, ids | more))
    assert set(split.val) == set(later_split.val) & ids
    assert set(split.val) <= set(train_val_split(ids, 0.5, seed, stable=True).val)


def test_adding_ids_moves_others_when_not_stable():
    assert any(
        set(a.val) != set(b.val) - {100} for a, b in zip(kfold(range(100), 5, 1), kfold(range(101), 5, 1), strict=True)
    )


def test_a_new_id_of_an_old_group_joins_it_when_stable():
    group_of = {i: f"patient {i % 50}" for i in range(100)}
    grown = {**group_of, **{-i: f"patient {i}" for i in range(1, 70)}}
    for before, after in zip(*(kfold(g, 4, 1, groups=g, stable=True) for g in (group_of, grown)), strict=True):
        assert set(before.val) == set(after.val) & set(group_of)
        assert not {grown[i] for i in after.val} & {grown[i] for i in after.train}


def test_stable_sizes_are_about_right():
    for seed in range(2):
        assert all(abs(len(val) - 800) < 5 * 800**0.5 for _, val in kfold(range(4000), 5, seed, stable=True))
        assert abs(len(train_val_split(range(4000), 0.2, seed, stable=True).val) - 800) < 5 * 640**0.5


# ----- bad input


@pytest.mark.parametrize(
    ("ids", "error", "says"),
    [
        ("case_000", TypeError, "put it in a list"),
        (b"case", TypeError, "put it in a list"),
        (7, TypeError, "collection"),
        (None, TypeError, "collection"),
        ([], ValueError, "no ids"),
        (["a", "b", "a", "c", "c"], ValueError, "'a', 'c'"),
        ([1, 2, np.int64(2)], ValueError, ": 2"),
        (["a", 1], TypeError, "'a' and 1"),
        ([1.0, 2.0], TypeError, "float"),
        ([True, False], TypeError, "bool"),
        ([b"a", b"b"], TypeError, "bytes"),
        ([None, "a"], TypeError, "NoneType"),
        ([Path("a"), Path("b")], TypeError, "name"),
        (np.zeros((3, 2), int), TypeError, "ndarray"),
    ],
)
def test_bad_ids_are_refused(ids, error, says):
    with pytest.raises(error, match=says):
        kfold(ids, 2, 0)
    with pytest.raises(error, match=says):
        train_val_split(ids, 0.5, 0)


@pytest.mark.parametrize(
    ("k", "error", "says"),
    [
        (0, ValueError, "at least 1"), (1, ValueError, "at least 2"), (-3, ValueError, "negative"),
        (11, ValueError, "k=11 is larger than the number of ids, 10"), (2.0, TypeError, "k must be"),
        ("5", TypeError, "k must be"), (True, TypeError, "k must be"), (None, TypeError, "k must be"),
    ],
)  # fmt: skip
def test_bad_k_is_refused(k, error, says):
    with pytest.raises(error, match=says):
        kfold(CASES, k, 0)


@pytest.mark.parametrize(
    ("fraction", "error"),
    [(0, ValueError), (1, ValueError), (1.5, ValueError), (-0.1, ValueError), (float("nan"), ValueError),
     ("0.2", TypeError), (None, TypeError), (True, TypeError), (0.01, ValueError), (0.99, ValueError)],
)  # fmt: skip
def test_bad_fractions_are_refused(fraction, error):
    with pytest.raises(error, match="fraction"):
        train_val_split(CASES, fraction, 0)


@pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), (1.0, TypeError), ("7", TypeError), (True, TypeError)])
def test_bad_seeds_are_refused(seed, error):
    with pytest.raises(error, match="seed"):
        kfold(CASES, 2, seed)


@pytest.mark.parametrize("what", ["groups", "stratify"])
@pytest.mark.parametrize(
    ("labels", "error", "says"),
    [
        ({"case_000": 1}, ValueError, "nothing for 9 of 10"),
        ([1] * 9, ValueError, "9 entries for 10"),
        ("abcdefghij", TypeError, "mapping"),
        (3, TypeError, "mapping"),
        ([None] * 10, ValueError, "every id needs"),
        ([float("nan")] * 10, ValueError, "every id needs"),
        ([[1]] * 10, TypeError, "hash"),
    ],
)
def test_bad_labels_are_refused(what, labels, error, says):
    with pytest.raises(error, match=says):
        kfold(CASES, 2, 0, **{what: labels})


def test_labels_in_order_need_ids_in_order():
    with pytest.raises(TypeError, match="set"):
        kfold(set(CASES), 2, 0, groups=list(range(10)))


def test_more_folds_than_groups_are_refused():
    with pytest.raises(ValueError, match="k=5 is larger than the number of groups, 4"):
        kfold(CASES, 5, 0, groups=GROUP_OF)
    with pytest.raises(ValueError, match="at least 2 groups"):
        train_val_split(CASES, 0.5, 0, dict.fromkeys(CASES, 1))


def test_what_stable_cannot_do_is_refused():
    with pytest.raises(ValueError, match="strata"):
        kfold(CASES, 2, 0, stratify=STRATUM_OF, stable=True)
    with pytest.raises(ValueError, match="smaller k"):
        kfold(CASES, 10, 0, stable=True)
    with pytest.raises(ValueError, match="another fraction"):
        train_val_split(CASES[:2], 0.01, 0, stable=True)
    with pytest.raises(TypeError, match="name of a group"):
        kfold(CASES, 2, 0, groups={case: (group,) for case, group in GROUP_OF.items()}, stable=True)


def test_labels_of_numpy_and_torch_are_compared_by_value():
    torch = pytest.importorskip("torch")
    expected = kfold(CASES, 3, 7, groups=GROUP_OF)
    listed = [GROUP_OF[case] for case in CASES]
    for same in (np.array(listed), torch.tensor(listed), [np.float32(group) for group in listed]):
        assert kfold(CASES, 3, 7, groups=same) == expected
