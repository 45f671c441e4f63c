"""Which examples, start methods and numbers of workers the tests of `Conformance` run with."""

from __future__ import annotations

import os

import pytest

from tests.peers.items import Example


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names, test = metafunc.fixturenames, metafunc.function.__name__
    examples = getattr(metafunc.module, "EXAMPLES", ())
    if "example" not in names:
        return
    if "start_method" in names:
        cases = [
            pytest.param(example, method, n, marks=_marks(example, test, method, n), id=f"{example}-{method}-{n}")
            for example in examples
            for method in example.start_methods
            for n in (0, 1, 3)
            if n or method == "fork"
        ]
        metafunc.parametrize(("example", "start_method", "num_processes"), cases)
    else:
        rarely = pytest.mark.slow
        cases = [pytest.param(each, marks=() if each.often else rarely, id=str(each)) for each in examples]
        metafunc.parametrize("example", cases)


def _marks(example: Example, test: str, method: str, n: int) -> tuple[pytest.MarkDecorator, ...]:
    """The default tier has forked workers. New interpreters import the library for seconds each."""
    usual = {"killed": 3, "any_workers": 1, "resumed": 0, "replay": 1}
    with_so_many = next(number for word, number in usual.items() if word in test)
    if method == "fork" and n == with_so_many and (example.often or "killed" in test):
        return ()
    return (pytest.mark.slow,)


@pytest.fixture(autouse=True)
def no_seed_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETAUG_SEED", raising=False)
    assert "DETAUG_SEED" not in os.environ
