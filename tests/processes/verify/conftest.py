"""All tests of `verify` share one interpreter, whose forks are its trials."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def trials_are_made_in_a_preloaded_interpreter(preloaded_trials: None) -> None:
    """See `preloaded_trials`."""
