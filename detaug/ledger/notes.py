"""A batch's fingerprints on their way to its ledger line: taken where the batch is made, so that the user's thread hashes
nothing."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from detaug.fingerprints import fingerprint

#: Of batches with more keys than this only the whole has a fingerprint.
MOST_KEYS = 64

#: (fingerprint of the whole, fingerprints by key, seconds that the batch took, process number). A fingerprint is None where
#: there are no bytes that would be the same everywhere.
Note = tuple[str | None, dict[str, str | None], float, int]


def note_of(batch: Any, seconds: float, left_out: Collection[str] = ()) -> Note:
    """The note on a batch that took so long."""
    return (*prints_of(batch, left_out), seconds, os.getpid())


def prints_of(batch: Any, left_out: Collection[str] = ()) -> tuple[str | None, dict[str, str | None]]:
    """(fingerprint of the whole, fingerprints by key), without the keys that are `left_out`.

    Every byte is read once: the whole of a dict is ``fingerprint({key: fingerprint(value), ...})``, that of a list or tuple
    ``fingerprint([fingerprint(item), ...])`` or of a tuple of these, with the positions as keys; all else is
    ``fingerprint(batch)``, without keys.
    """
    if type(batch) is dict and 0 < len(batch) <= MOST_KEYS and all(type(key) is str for key in batch):
        keys = {key: _print_of(value) for key, value in batch.items() if key not in left_out}
        return fingerprint(keys), keys
    if type(batch) in (list, tuple) and 0 < len(batch) <= MOST_KEYS:
        keys = {str(i): _print_of(item) for i, item in enumerate(batch) if str(i) not in left_out}
        return fingerprint(type(batch)(keys.values())), keys
    return _print_of(batch), {}


def differing(keys: Mapping[str, str | None], others: Mapping[str, str | None]) -> tuple[str, ...]:
    """The keys that do not have the same fingerprint in both."""
    return tuple(name for name in {**others, **keys} if others.get(name, "") != keys.get(name, ""))


def _print_of(value: Any) -> str | None:
    try:
        return fingerprint(value)
    except Exception:  # objects of the user's own; a ledger makes no batch fail
        return None
