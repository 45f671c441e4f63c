"""`detaug check`: is the ledger the receipt's, and does the pipeline make its batches?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detaug.ledger import receipt as receipts
from detaug.ledger.comparing import HeaderDifference, environment_differences
from detaug.ledger.header import IDENTITY, environment
from detaug.ledger.lines import Record, key_of
from detaug.ledger.notes import is_mute, without_print
from detaug.ledger.summing_up import Sum, Taken, sum_up
from detaug.remaking.pipelines import CannotRemake, Remaker, check_versions
from detaug.reports.progress import Progress

DEFAULT_SAMPLES = 20


@dataclass(frozen=True)
class Sample:
    """A batch that was drawn, and made again.

    Attributes:
        epoch, step: which.
        is_proven: its Merkle path leads to its epoch's root.
        keys: in which it differs; None: it was not made.
        differs: whether it does.
        untold: keys that were not compared, for their values have no bytes that are the same everywhere.
    """

    epoch: int
    step: int
    is_proven: bool
    differs: bool
    keys: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


@dataclass
class Checked:
    """What was found.

    Attributes:
        receipt: what was to be checked.
        salt: with which batches were drawn; empty: with none.
        faults: what of receipt and ledger does not fit together, in words.
        samples: the batches that were made again.
        notes: what is worth knowing and no fault.
        elsewhere: what of the machine is not as it was; the most likely cause of a difference first.
    """

    receipt: Mapping[str, Any]
    salt: str = ""
    faults: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    elsewhere: list[HeaderDifference] = field(default_factory=list)

    @property
    def different(self) -> list[Sample]:
        """The samples that are not as the ledger has them."""
        return [each for each in self.samples if each.differs or not each.is_proven]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults and not self.different

    def chances(self) -> list[tuple[int, float]]:
        """(k, the probability that k wrong batches would have been found), for one batch, 1 %, 5 % and 10 % of them."""
        batches = int(self.receipt["batches"])
        wrong = dict.fromkeys(max(1, round(batches * share)) for share in (0, 0.01, 0.05, 0.1))
        return [(k, receipts.chance_to_find(k, batches, len(self.samples))) for k in wrong]


def check(
    receipt: Mapping[str, Any],
    ledger: Path,
    remaker: Callable[[Record], Remaker],
    samples: int = DEFAULT_SAMPLES,
    checkpoints: Sequence[Path] = (),
    shown: Progress | None = None,
    salt: str = "",
) -> Checked:
    """Check a receipt against its ledger, and the ledger against the pipeline.

    Args:
        receipt: see `detaug.ledger.receipt`.
        ledger: the file it was made from; it may have grown since.
        remaker: makes the pipeline, given the ledger's header.
        samples: how many batches are drawn from the receipt's head, and made again here.
        checkpoints: files whose SHA-256 is compared with the receipt's.
        shown: shows how far it is.
        salt: what else they are drawn from.

    Raises:
        CannotRemake: the batches cannot be made here.
        NotALedger, OSError: a file cannot be read.
    """
    shown = shown or Progress()
    check_versions(receipt, "receipt")
    found = Checked(receipt, salt)
    numbers = receipts.drawn(receipt["head"], receipt["batches"], samples, salt)
    shown.update(f"reading {ledger.name}")
    summed = sum_up(ledger, receipt["batches"], numbers, shown.advance)
    _compare_with_receipt(found, summed)
    _compare_checkpoints(found, checkpoints)
    missing = len(numbers) - len(summed.taken)
    if missing:
        found.faults.append(f"{missing} of the {len(numbers)} batches that were drawn are not in the ledger")
    maker = remaker(_with_the_receipts(summed.header, receipt))
    if maker.remark:
        found.notes.append(maker.remark)
    shown.update("making batches again", 0, len(summed.taken))
    # In the order of their steps, so that streams need not be walked through again and again.
    for taken in sorted(summed.taken, key=lambda each: key_of(each.record)):
        found.samples.append(_sample(maker, taken))
        shown.update(f"epoch {taken.record['epoch']}, step {taken.record['step']} made again", len(found.samples))
    if untold := dict.fromkeys(name for each in found.samples for name in each.untold):
        found.notes.append(f"not compared, without bytes that are the same everywhere: {', '.join(map(repr, untold))}")
    found.elsewhere = environment_differences(summed.header["environment"], environment())
    return found


def _with_the_receipts(header: Record, receipt: Mapping[str, Any]) -> Record:
    """The header by which batches are made: where receipt and ledger contradict, the receipt counts."""
    return {**header, **{name: receipt[name] for name in IDENTITY if name != "pipeline"}}


def _compare_with_receipt(found: Checked, summed: Sum) -> None:
    receipt, header = found.receipt, summed.header
    for name, text in IDENTITY.items():
        if receipt.get(name) != header.get(name):
            found.faults.append(f"{text}: {receipt.get(name)!r} in the receipt, {header.get(name)!r} in the ledger")
    found.faults += summed.faults
    for stop in summed.stops:
        where = f"epoch {stop.get('epoch')}, step {stop.get('step')}"
        found.notes.append(f"the ledger could not be written from {where} on: {stop.get('why')}")
    if summed.batches < receipt["batches"]:
        end = "" if summed.last is None else f"; it ends at {summed.last.text}"
        found.faults.append(f"the ledger has {summed.batches:,} of the receipt's {receipt['batches']:,} batches{end}")
    elif summed.head != receipt["head"]:
        found.faults.append(
            "the chain of the ledger's roots does not lead to the receipt's head: batches or roots are not those of which the "
            "receipt was made"
        )
    else:
        for epoch, _ in summed.wrong_roots:
            found.notes.append(f"the batches of epoch {epoch} are the receipt's: it is the root that was exchanged")
    if summed.goes_on:
        found.notes.append("the ledger goes on behind the receipt's last batch; what follows was not looked at")
    if summed.resumed or summed.back:
        found.notes.append(f"the run was resumed {summed.resumed} times, and went back {summed.back} times in itself")


def _compare_checkpoints(found: Checked, checkpoints: Sequence[Path]) -> None:
    known = found.receipt["checkpoints"]
    for file in checkpoints:
        digest = receipts.sha256_of(file)
        if digest not in known.values():
            whose = "has another SHA-256 than in the receipt" if file.name in known else "is not in the receipt"
            found.faults.append(f"{file.name} {whose}: {digest}")


def _sample(maker: Remaker, taken: Taken) -> Sample:
    record = taken.record
    whole, keys = maker.prints(maker.make(record["epoch"], record["step"]))
    noted = record["keys"]
    if is_mute(whole, keys) and is_mute(record["whole"], noted):
        raise CannotRemake(f"epoch {record['epoch']}, step {record['step']} has no bytes that are the same everywhere")
    differing = tuple(name for name in {**noted, **keys} if noted.get(name, "") != keys.get(name, ""))
    return Sample(
        record["epoch"],
        record["step"],
        taken.is_proven,
        whole != record["whole"] or bool(differing),
        differing,
        tuple(without_print(keys, noted)),
    )
