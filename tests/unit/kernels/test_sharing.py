"""Which kernel an interpreter compiles next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from detaug.kernels import labels, normals, threefry
from detaug.kernels.compiling import Kernel
from detaug.kernels.sharing import Parts, choose, parts_of, work_of


def own(name: str, length: int) -> Parts:
    return {cast(Callable[..., Any], name): length}


def chosen(parts: Mapping[str, Parts], ours: Parts, *others: Parts) -> str:
    named = cast(Mapping[Kernel, Parts], parts)
    return str(choose(named, named, ours, others))


SHARED = own("shared", 50)
MANY = {f"other {n}": own(f"other {n}", 100) for n in range(20)}


def test_parts_are_the_kernel_and_what_it_calls_directly_or_not() -> None:
    parts = parts_of(normals.add_normals)
    called = cast(Any, normals)
    assert {normals.add_normals.dispatcher.py_func, called.fill_piece.py_func, called.normal_pair.py_func} <= set(parts)
    assert threefry.random_words.dispatcher.py_func not in parts
    assert all(parts.values())


def test_every_signature_counts() -> None:
    function = labels.pick.dispatcher.py_func
    assert parts_of(labels.pick)[function] == len(labels.pick.signatures) * len(function.__code__.co_code)


def test_what_kernels_share_is_work_once() -> None:
    alone = sum(parts_of(normals.add_normals).values())
    assert work_of([normals.add_normals, normals.add_normals]) == work_of([normals.add_normals]) == alone
    both = work_of([normals.add_normals, threefry.random_words])
    assert alone < both < alone + sum(parts_of(threefry.random_words).values())


def test_an_interpreter_goes_on_with_what_shares_code_with_its_own() -> None:
    small = {**own("small", 1), **SHARED}
    assert chosen({**MANY, "small": small}, SHARED, own("other", 1)) == "small"


def test_it_leaves_to_another_what_shares_code_with_that_ones() -> None:
    large = {**own("large", 150), **SHARED}
    assert chosen({**MANY, "large": large}, {}, SHARED) in MANY
    assert chosen({**MANY, "large": large}, {}, own("other", 1)) == "large"


def test_the_longest_comes_first_where_it_would_be_waited_for() -> None:
    waiting = {"long": {**own("long", 2500), **SHARED}, **MANY}
    assert chosen(waiting, {}, SHARED) == "long"
    assert chosen({"last": own("last", 1)}, {}, SHARED) == "last"
