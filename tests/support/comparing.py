"""Reading batches off an augmenter and comparing them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

from detaug import fingerprint
from tests.support.witness import without_witness


def take(augmenter: Iterable[Any], n: int) -> list[Any]:
    return list(itertools.islice(iter(augmenter), n))


def prints(batches: Iterable[Any]) -> list[str]:
    """The fingerprints of batches, leaving out who made them."""
    return [fingerprint(without_witness(batch)) for batch in batches]


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(state))
