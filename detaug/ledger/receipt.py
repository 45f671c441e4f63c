"""A receipt: what a ledger adds up to, in a few lines that fit into a paper's supplement."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detaug.ledger.header import IDENTITY
from detaug.ledger.summing_up import Sum, sum_up

FORMAT = 1
WHAT = "detaug receipt"
MOST_BYTES = 8000

#: Of a ledger's header, what a receipt has of it; the pipeline as its digest.
COPIED = (*IDENTITY, "batches_per_epoch", "rank", "world_size")


class CannotReceipt(ValueError):
    """There is no receipt of such a ledger, or the file is none; the message says why."""


def make_receipt(ledger: Path, checkpoints: Sequence[Path] = ()) -> dict[str, Any]:
    """The receipt of a ledger as it is now.

    Args:
        ledger: its file.
        checkpoints: files whose SHA-256 the receipt has.

    Raises:
        CannotReceipt: the ledger is damaged, or has no batch.
        NotALedger, OSError: it cannot be read; or a checkpoint cannot.
    """
    found = sum_up(ledger)
    if found.faults:
        raise CannotReceipt(f"{ledger} is damaged, so that there is nothing to vouch for: {found.faults[0]}")
    if found.last is None:
        raise CannotReceipt(f"{ledger} has no batch")
    header = found.header
    environment = header["environment"]
    receipt = {
        "what": WHAT,
        "format": FORMAT,
        **{name: header.get(name) for name in COPIED},
        "batches": found.batches,
        "epochs": found.epochs,
        "last": {"epoch": found.last.epoch, "step": found.last.place},
        "head": found.head,
        **_stops(found),
        "versions": {
            "detaug": header["detaug"],
            "python": environment.get("python", {}).get("version"),
            **{name: version for name, version in environment.get("packages", {}).items() if version},
        },
        "system": environment.get("system"),
        "cpu": {name: environment.get("cpu", {}).get(name) for name in ("model", "architecture", "torch_capability")},
        "gpu": [
            device.get("name") for device in environment.get("gpu", {}).get("devices", []) if isinstance(device, dict)
        ],
        "checkpoints": {file.name: sha256_of(file) for file in checkpoints},
    }
    size = len(as_text(receipt))
    if size > MOST_BYTES:
        raise CannotReceipt(
            f"the receipt would have {size:,} bytes, and may have {MOST_BYTES:,}: name fewer checkpoints"
        )
    return receipt


def as_text(receipt: dict[str, Any]) -> str:
    """As it is written to a file."""
    return json.dumps(receipt, indent=1) + "\n"


def read_receipt(file: Path) -> dict[str, Any]:
    """A receipt from its file.

    Raises:
        OSError: it cannot be read.
        CannotReceipt: it is none, or of a later version.
    """
    with file.open("rb") as opened:
        text = opened.read(MOST_BYTES + 1)
    try:
        found = json.loads(text) if len(text) <= MOST_BYTES else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("what") != WHAT:
        raise CannotReceipt(f"{file} is no receipt")
    if found.get("format") != FORMAT:
        raise CannotReceipt(f"{file} has format {found.get('format')!r}; this version of detaug reads {FORMAT}")
    wrong = [name for name in (*COPIED, "batches", "head", "versions", "cpu", "checkpoints") if name not in found]
    if not wrong and not (isinstance(found["batches"], int) and found["batches"] > 0 and _is_hash(found["head"])):
        wrong = ["batches", "head"]
    wrong = wrong or [name for name in ("versions", "cpu", "checkpoints") if not isinstance(found[name], dict)]
    if wrong:
        raise CannotReceipt(f"{file} is no receipt of this version: {', '.join(wrong)} missing or wrong")
    return found


def drawn(head: str, batches: int, samples: int, salt: str = "") -> list[int]:
    """Which batches (numbers from 0) are tested: drawn from the head of the chain, which commits to all of them, so that who
    made the ledger cannot choose.

    Number i is SHA-256 of the head, i (8 bytes) and the salt (UTF-8), as an integer, modulo `batches`; what was drawn before is
    left out. A salt is the reader's own: who made the ledger can foresee what is drawn without one, but not with it.
    """
    found: dict[int, None] = {}
    count = 0
    beginning, ending = bytes.fromhex(head), salt.encode("utf-8", "surrogatepass")
    while len(found) < min(samples, batches):
        digest = hashlib.sha256(beginning + count.to_bytes(8, "big") + ending).digest()
        found[int.from_bytes(digest, "big") % batches] = None
        count += 1
    return list(found)


def chance_to_find(wrong: int, batches: int, samples: int) -> float:
    """The probability that at least one of `wrong` batches is among so many that are drawn: hypergeometric."""
    if wrong <= 0 or wrong + samples > batches:
        return float(wrong > 0 and samples > 0)
    # Drawn one after another, each misses the wrong ones. (SciPy's hypergeom runs for hours where numbers are huge.)
    return -math.expm1(math.fsum(math.log1p(-wrong / (batches - i)) for i in range(samples)))


def _stops(found: Sum) -> dict[str, Any]:
    if not found.stops:
        return {}
    return {"stopped": [{name: stop.get(name) for name in ("epoch", "step", "why")} for stop in found.stops[-3:]]}


def sha256_of(file: Path) -> str:
    """Of its bytes, in hexadecimal digits."""
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while data := opened.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def _is_hash(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(bytes.fromhex(value)) == 32
    except ValueError:
        return False
