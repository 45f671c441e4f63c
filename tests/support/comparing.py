"""Reading batches off an augmenter and comparing them."""

from __future__ import annotations

import copy
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


def with_changed(state: dict[str, Any], word: str) -> dict[str, Any]:
    """A copy of a state dict in which every entry whose key holds `word` has another value."""
    changed = copy.deepcopy(state)
    found = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                if word in key.lower():
                    node[key] = value + 1 if isinstance(value, int) else f"{value}-other"
                    found.append(key)
                else:
                    walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(changed)
    assert found, f"no entry of the state dict is named after {word!r}: {sorted(state)}"
    return changed
