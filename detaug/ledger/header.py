"""A ledger's first line: the pipeline, the arguments, the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from detaug.objects.walking import flat
from detaug.versions import NUMERICS, SEED_SCHEME, __version__

Record = dict[str, Any]

FORMAT = 3
WHAT = "detaug ledger"

#: Two runs that are equal in these entries have the same batches; their names in messages.
IDENTITY = {
    "seed": "seed",
    "name": "name of the seed tree's branch",
    "seed_scheme": "seed scheme",
    "numerics": "numerics version",
    "pipeline": "pipeline",
    "num_streams": "num_streams",
}
#: An absolute path in quotes, its last name in a group.
_ABSOLUTE = re.compile(r"(?<=['\"])(?:/|~/|[A-Za-z]:[/\\])[^'\"]*?([^'\"/\\]+)[/\\]*(?=['\"])")

#: Entries of the environment that change from one minute to the next begin with these.
_VOLATILE = ("shared_memory.", "kernel_cache.")


def header(declared: Sequence[str], environment: Mapping[str, Any], **facts: Any) -> Record:
    """Return the first line of a ledger."""
    return {
        "kind": "header",
        "what": WHAT,
        "format": FORMAT,
        "detaug": __version__,
        "seed_scheme": SEED_SCHEME,
        "numerics": NUMERICS,
        **facts,
        # The digest of the portable lines is the same on machines with other folders.
        "pipeline": digest(portable(declared)),
        "declared": portable(declared),
        "environment": dict(environment),
    }


def portable(declared: Sequence[str]) -> list[str]:
    """Return a description in which absolute paths are their last names.

    The place where somebody keeps data is no part of a pipeline, and nobody else's business.
    """
    return [_ABSOLUTE.sub(r".../\1", line) for line in declared]


def digest(declared: Sequence[str]) -> str:
    """Return the SHA-256 of a pipeline's description."""
    return sha256("\n".join(declared).encode("utf-8", "surrogatepass")).hexdigest()


def lasting(environment: Any) -> dict[str, Any]:
    """Return an environment's lasting entries, flat (``cpu.model``).

    Empty parts, and entries that change from one minute to the next, are left out.
    """
    entries: dict[str, Any] = {}
    for name, value in flat(environment):
        if value != {} and not f"{name}.".startswith(_VOLATILE):
            entries[name] = value
    return entries
