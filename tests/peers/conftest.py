"""Run the tests of `Conformance` with all examples, start methods and numbers of workers."""

from __future__ import annotations

from itertools import product

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests that take an example; all cases but that of three forks are slow.

    A new interpreter needs seconds to import a library.
    """
    if "example" not in metafunc.fixturenames:
        return
    from tests.support.augmenters import START_METHODS

    cases = []
    for example, method, n in product(metafunc.cls.EXAMPLES, START_METHODS, (1, 3)):
        is_fast = method == "fork" and n == 3
        marks = () if is_fast else pytest.mark.slow
        cases.append(pytest.param(example, method, n, marks=marks, id=f"{example}-{method}-{n}"))
    metafunc.parametrize(("example", "start_method", "num_processes"), cases)
