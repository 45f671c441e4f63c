"""`detaug check`: is the ledger the receipt's, and does the pipeline make its batches?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

from detaug.ledger import receipt as receipts
from detaug.ledger.comparing import (
    HeaderDifference,
    environment_differences,
    header_lines,
    listed,
    short,
)
from detaug.ledger.header import IDENTITY, Record
from detaug.ledger.lines import Damaged, differing, key_of, prints_of
from detaug.ledger.reading import Sum, read_header
from detaug.remaking.pipelines import CannotRemake, Remaker, check_versions
from detaug.reports.progress import Progress
from detaug.training.machine import environment


@dataclass
class Checked:
    """What was found of a receipt: faults of it and of the ledger, and batches that differ, in words; how many `samples` were
    made again, and which keys were `compared`; notes on what is no fault, and what of the machine is not as it was."""

    receipt: Mapping[str, Any]
    salt: str
    faults: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    samples: int = 0
    compared: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    elsewhere: list[HeaderDifference] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults and not self.different

    def shown(self) -> Iterator[Text]:
        """The report."""
        receipt = self.receipt
        yield Text(
            f"receipt: {receipt['batches']:,} batches, seed {short(receipt['seed'])}, {receipt['name'] or 'no name'}, rank "
            f"{receipt['rank']} of {receipt['world_size']}, digest {receipt['digest'][:16]}…, detaug "
            f"{receipt['versions'].get('detaug')}"
        )
        for wrong in (*self.faults, *self.different):
            yield Text(f"wrong: {wrong}", "bold red")
        if self.different and not self.faults:
            yield Text(
                "the ledger is the receipt's: data, code behind the same names, or the machine are not what they were"
            )
        right, drawn = (
            self.samples - len(self.different),
            f" and the salt {self.salt!r}" if self.salt else "",
        )
        if self.samples:
            yield Text(
                f"{right:,} of {self.samples:,} batches, drawn from the digest{drawn}, are as the ledger has them"
            )
            yield Text(f"compared: {', '.join(map(repr, self.compared)) or 'batches as a whole'}")
        for note in self.notes:
            yield Text(f"note: {note}", "dim")
        if self.elsewhere:
            yield Text("here and there differ (what most likely changes batches first):")
            yield from header_lines(self.elsewhere, "in the ledger", "here")
        if not self.ok:
            yield Text("not as the receipt says", "bold red")
            return
        # As if a batch could be drawn twice; none is, which finds a little more.
        chances = (
            f"{share:.0%} with {1 - (1 - share) ** self.samples:.1%}" for share in (0.01, 0.05, 0.1)
        )
        yield Text(
            f"had so many batches been wrong, these samples would have found it, at least: {', '.join(chances)}"
        )
        yield Text("as the receipt says", "green")


def check(
    receipt: Mapping[str, Any],
    ledger: Path,
    remaker: Callable[[Record], Remaker],
    samples: int,
    salt: str,
    checkpoints: Sequence[Path],
    disagreements: receipts.Disagreements,
    shown: Progress,
) -> Checked:
    """Check a receipt against its ledger, and the ledger against the pipeline.

    Args:
        remaker: makes the pipeline, given the ledger's header.
        samples: how many batches are drawn from the receipt's digest and the salt, and made again here.
        checkpoints: files whose SHA-256 is compared with the receipt's.
        disagreements: in what a checkpoint is not of the ledger's training.

    Raises:
        CannotRemake: the batches cannot be made here.
        NotALedger, OSError: a file cannot be read.
    """
    check_versions(receipt, "receipt")
    found = Checked(receipt, salt)
    shown.update(f"reading {ledger.name}")
    header = read_header(ledger)
    summed, ours = None, {name: header.get(name) for name in receipts.COPIED}
    try:
        summed = Sum(ledger, receipts.drawn(receipt["digest"], receipt["batches"], samples, salt))
        ours = receipts.summary(summed)
    except Damaged as error:
        found.faults.append(str(error))
    for name, value in ours.items():
        if receipt.get(name) != value:
            text = IDENTITY.get(name, name)
            found.faults.append(
                f"{text}: {receipt.get(name)!r} in the receipt, {value!r} in the ledger"
            )
    if summed is None:
        return found
    if summed.first is not None and summed.first.epoch + summed.first.place > receipt["rank"]:
        found.notes.append(f"the ledger begins at {summed.first.text}")
    for file in checkpoints:
        digest = receipts.sha256_of(file)
        if digest not in receipt["checkpoints"].values():
            known = file.name in receipt["checkpoints"]
            whose = "has another SHA-256 than in the receipt" if known else "is not in the receipt"
            found.faults.append(f"{file.name} {whose}: {digest}")
        found.faults += disagreements(file, header)
    # Where receipt and ledger contradict each other, the receipt counts.
    try:
        maker = remaker(
            {
                **summed.header,
                **{name: receipt[name] for name in receipts.COPIED if name != "pipeline"},
            }
        )
    except CannotRemake as error:
        if not found.faults:
            raise
        found.faults.append(str(error))
        return found
    if maker.remark:
        found.notes.append(maker.remark)
    shown.update("making batches again", 0, len(summed.taken))
    # In the order of their steps, so that streams need not be walked through again and again.
    for record in sorted(summed.taken, key=key_of):
        _make_again(found, maker, record)
        shown.advance()
    if summed.missing:  # errors that were skipped, and streams that ended
        found.notes.append(f"{summed.missing:,} steps have no line")
    if maker.left_out:
        found.notes.append(
            f"not compared, as the pipeline made here says: {', '.join(map(repr, maker.left_out))}"
        )
    found.elsewhere = environment_differences(summed.header["environment"], environment())
    return found


def _make_again(found: Checked, maker: Remaker, record: Record) -> None:
    """A batch that was drawn."""
    whole, keys = prints_of(maker.make(record["epoch"], record["step"]), maker.left_out)
    different = differing(keys, record["keys"])
    found.samples += 1
    found.compared |= dict.fromkeys(keys)
    if different or whole != record["whole"]:
        text = f"epoch {record['epoch']}, step {record['step']}: made again, it differs"
        found.different.append(f"{text} in {listed(different)}" if different else text)
    for name in (each for each in keys if each not in record["keys"]):
        text = (
            f"the ledger has no fingerprint of {name!r}, which the pipeline made here does not leave out (if they may differ, "
            "have the factory return a DeterministicAugmenter with check=Check(ignore=...))"
        )
        if text not in found.faults:
            found.faults.append(text)
