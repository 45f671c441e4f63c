"""Helpers that take batches from an augmenter and compare them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

from detaug import fingerprint
from tests.support.witness import without_witness


def take(augmenter: Iterable[Any], n: int) -> list[Any]:
    """Return the next `n` batches, or fewer where the epoch ends."""
    return list(itertools.islice(iter(augmenter), n))


def fingerprints_of(batches: Iterable[Any]) -> list[str]:
    """Return the fingerprints of batches without their witness, which differs from run to run."""
    return [fingerprint(without_witness(batch)) for batch in batches]


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as it comes back from a checkpoint that is a JSON file."""
    return json.loads(json.dumps(state))
