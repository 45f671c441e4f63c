"""A receipt: what a ledger adds up to, in a few lines that fit into a paper's supplement."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from detaug.errors import UnusableError
from detaug.ledger.header import IDENTITY, Record
from detaug.ledger.lines import Damaged
from detaug.ledger.reading import Sum

FORMAT = 2
WHAT = "detaug receipt"

#: Of a ledger's header, what a receipt has of it: all from which batches are made again; the pipeline as its digest.
COPIED = (
    *IDENTITY, "batches_per_epoch", "stateless", "keep", "version", "rank", "world_size", "tail", "left_out", "data",
)  # fmt: skip

#: What other entries of a receipt must be, so that it can be read.
_RIGHT: dict[str, Callable[[Any], bool]] = {
    "batches": lambda value: type(value) is int and value > 0,
    "digest": lambda value: (
        isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
    ),
    "rank": lambda value: type(value) is int,
    **dict.fromkeys(("versions", "cpu", "checkpoints"), lambda value: isinstance(value, dict)),
}

#: (a checkpoint, a ledger's header) -> in what they are not of one training, in words.
Disagreements = Callable[[Path, Record], list[str]]


def make_receipt(
    ledger: Path, checkpoints: Sequence[Path] = (), disagreements: Disagreements = lambda *_: []
) -> dict[str, Any]:
    """The receipt of a ledger as it is now, with the SHA-256 of checkpoints.

    Raises:
        UnusableError: the ledger is damaged, or has no batch; or a checkpoint is of another training (`disagreements`).
    """
    try:
        found = Sum(ledger)
    except Damaged as error:
        raise UnusableError(
            f"{ledger} is damaged, so that there is nothing to vouch for: {error}"
        ) from None
    if found.last is None:
        raise UnusableError(f"{ledger} has no batch")
    if wrong := [text for file in checkpoints for text in disagreements(file, found.header)]:
        raise UnusableError(f"{ledger} is not the ledger of this checkpoint: {'; '.join(wrong)}")
    return {**summary(found), "checkpoints": {file.name: sha256_of(file) for file in checkpoints}}


def summary(found: Sum) -> dict[str, Any]:
    """What a receipt says of a ledger; equal for equal runs. A checker makes it anew, and compares."""
    header, environment = found.header, found.header["environment"]

    def part(name: str) -> dict[str, Any]:
        return value if isinstance(value := environment.get(name), dict) else {}

    return {
        "what": WHAT,
        "format": FORMAT,
        **{name: header.get(name) for name in COPIED},
        "batches": found.course.batches,
        "epochs": found.course.epochs,
        "first": found.first and list(found.first),
        "last": found.last and list(found.last),
        "missing": found.missing,
        "digest": found.course.digest,
        "versions": {
            "detaug": header["detaug"],
            "python": part("python").get("version"),
            **{name: version for name, version in part("packages").items() if version},
        },
        "system": environment.get("system"),
        "cpu": {
            name: part("cpu").get(name) for name in ("model", "architecture", "torch_capability")
        },
        "gpu": [
            each.get("name") for each in part("gpu").get("devices") or () if isinstance(each, dict)
        ],
    }


def as_text(receipt: dict[str, Any]) -> str:
    """As it is written to a file."""
    return json.dumps(receipt, indent=1) + "\n"


def read_receipt(file: Path) -> dict[str, Any]:
    """A receipt from its file; `UnusableError` where that is none, or of another format."""
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("what") != WHAT:
        raise UnusableError(f"{file} is no receipt")
    if found.get("format") != FORMAT:
        raise UnusableError(
            f"{file} has format {found.get('format')!r}; this version of detaug reads format {FORMAT}"
        )
    wrong = [name for name, is_right in _RIGHT.items() if not is_right(found.get(name))]
    wrong += [name for name in COPIED if name not in found]
    if wrong:
        raise UnusableError(
            f"{file} is no receipt of this version: {', '.join(wrong)} missing or wrong"
        )
    return found


def drawn(digest: str, batches: int, samples: int, salt: str = "") -> list[int]:
    """Which batches (numbers from 0) are tested: drawn from the ledger's digest, which commits to all of them, so that who
    made the ledger cannot choose.

    Number i is SHA-256 of the digest, i (8 bytes) and the salt (UTF-8), as an integer, modulo `batches`; what was drawn before is
    left out. A salt is the reader's own: who made the ledger can foresee what is drawn without one, but not with it.
    """
    found: dict[int, None] = {}
    count = 0
    beginning, ending = bytes.fromhex(digest), salt.encode("utf-8", "surrogatepass")
    while len(found) < min(samples, batches):
        number = hashlib.sha256(beginning + count.to_bytes(8, "big") + ending).digest()
        found[int.from_bytes(number, "big") % batches] = None
        count += 1
    return list(found)


def sha256_of(file: Path) -> str:
    """Of its bytes, in hexadecimal digits."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
