"""Which examples, start methods and numbers of workers the tests of `Conformance` run with."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "example" not in metafunc.fixturenames:
        return
    from tests.support.augmenters import START_METHODS

    cases = [
        # The default tier has three forked workers. New interpreters import the library for seconds
        # each.
        pytest.param(
            example,
            method,
            n,
            marks=() if (method, n) == ("fork", 3) else pytest.mark.slow,
            id=f"{example}-{method}-{n}",
        )
        for example in metafunc.cls.EXAMPLES
        for method in START_METHODS
        for n in (1, 3)
    ]
    metafunc.parametrize(("example", "start_method", "num_processes"), cases)
