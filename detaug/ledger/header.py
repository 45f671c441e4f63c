"""A ledger's first line: what was run, and where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from detaug.versions import NUMERICS, SEED_SCHEME, __version__

Record = dict[str, Any]

FORMAT = 3
WHAT = "detaug ledger"

#: Two runs that are equal in these have the same batches; what they are called in messages.
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

#: Of the environment: what changes from one minute to the next.
_VOLATILE = ("shared_memory.", "kernel_cache.")


def header(declared: Sequence[str], environment: Mapping[str, Any], **facts: Any) -> Record:
    """The first line: a pipeline's description, the machine, and the arguments with which the same
    pipeline is made again.
    """
    return {
        "kind": "header",
        "what": WHAT,
        "format": FORMAT,
        "detaug": __version__,
        "seed_scheme": SEED_SCHEME,
        "numerics": NUMERICS,
        **facts,
        "pipeline": digest(portable(declared)),
        "declared": portable(declared),
        "environment": dict(environment),
    }


def portable(declared: Sequence[str]) -> list[str]:
    """A description in which absolute paths are their last names: where somebody keeps data is no
    part of a pipeline, and nobody else's business.
    """
    return [_ABSOLUTE.sub(lambda found: f".../{found[1]}", line) for line in declared]


def digest(declared: Sequence[str]) -> str:
    """SHA-256 of a pipeline's description."""
    return sha256("\n".join(declared).encode("utf-8", "surrogatepass")).hexdigest()


def lasting(environment: Any) -> dict[str, Any]:
    """An environment, flat (``cpu.model``), without what changes from one minute to the next, and
    without empty parts.
    """
    return {
        name: value
        for name, value in flat(environment)
        if value != {} and not f"{name}.".startswith(_VOLATILE)
    }


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path such as ``blas.0.version``, value) of whatever is within dictionaries, and within lists
    of these.
    """
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from flat(part, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
        yield from flat(dict(enumerate(value)), path)
    else:
        yield path, value


def by_name(declared: Sequence[str]) -> dict[str, str]:
    """A pipeline's description, whose lines are ``name = value``."""
    return dict(str(line).partition(" = ")[::2] for line in declared)
