"""`detaug check`: is the ledger the receipt's, and does the pipeline make its batches?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

from detaug.ledger import receipt as receipts
from detaug.ledger.comparing import HeaderDifference, environment_differences, header_lines, listed, short
from detaug.ledger.header import IDENTITY, Record, environment
from detaug.ledger.lines import key_of
from detaug.ledger.notes import differing, without_print
from detaug.ledger.reading import Sum
from detaug.remaking.pipelines import CannotRemake, Remaker, check_versions
from detaug.reports.progress import Progress

_MOST_SAMPLES = 5


@dataclass(frozen=True)
class Sample:
    """A batch that was drawn, and made again: whether it differs from the ledger's, in which keys; which were compared, and which
    not, for their values have no bytes that are the same everywhere."""

    epoch: int
    step: int
    differs: bool
    keys: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


@dataclass
class Checked:
    """What was found: faults of receipt and ledger in words, batches that were made again, notes on what is no fault, and what of
    the machine is not as it was."""

    receipt: Mapping[str, Any]
    salt: str = ""
    faults: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    elsewhere: list[HeaderDifference] = field(default_factory=list)

    @property
    def different(self) -> list[Sample]:
        """The samples that are not as the ledger has them."""
        return [each for each in self.samples if each.differs]

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
        for fault in self.faults:
            yield Text(f"wrong: {fault}", "bold red")
        for sample in self.different[:_MOST_SAMPLES]:
            keys = f" in {listed(sample.keys)}" if sample.keys else ""
            yield Text(f"wrong: epoch {sample.epoch}, step {sample.step}: made again, it differs{keys}", "bold red")
        if len(self.different) > _MOST_SAMPLES:
            yield Text(f"wrong: and {len(self.different) - _MOST_SAMPLES} more", "bold red")
        if self.different and not self.faults:
            yield Text(
                "the ledger is the receipt's: data, code behind the same names, or the machine are not what they were"
            )
        right, drawn = len(self.samples) - len(self.different), f" and the salt {self.salt!r}" if self.salt else ""
        yield Text(
            f"{right:,} of {len(self.samples):,} batches, drawn from the digest{drawn}, are as the ledger has them"
        )
        compared = dict.fromkeys(name for each in self.samples for name in each.compared)
        yield Text(f"compared: {', '.join(map(repr, compared)) or 'batches as a whole'}")
        for note in self.notes:
            yield Text(f"note: {note}", "dim")
        if self.elsewhere:
            yield Text("here and there differ (what most likely changes batches first):")
            yield from header_lines(self.elsewhere, "in the ledger", "here")
        if not self.ok:
            yield Text("not as the receipt says", "bold red")
            return
        # As if a batch could be drawn twice; none is, which finds a little more.
        chances = (f"{share:.0%} with {1 - (1 - share) ** len(self.samples):.1%}" for share in (0.01, 0.05, 0.1))
        yield Text(f"had so many batches been wrong, these samples would have found it, at least: {', '.join(chances)}")
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
    """Check a receipt against its ledger, which may have grown since, and the ledger against the pipeline.

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
    numbers = receipts.drawn(receipt["digest"], receipt["batches"], samples, salt)
    shown.update(f"reading {ledger.name}")
    summed = Sum(ledger, receipt["batches"], numbers)
    _compare_with_receipt(found, summed)
    _compare_checkpoints(found, checkpoints)
    found.faults += [text for file in checkpoints for text in disagreements(file, summed)]
    # Where receipt and ledger contradict each other, the receipt counts.
    try:
        maker = remaker({**summed.header, **{name: receipt[name] for name in receipts.COPIED if name != "pipeline"}})
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
        found.samples.append(_sample(maker, record))
        shown.advance()
    _look_into_gaps(found, summed, maker, samples)
    if lacking := dict.fromkeys(name for each in found.samples for name in each.keys if name not in summed.keys):
        names = ", ".join(map(repr, lacking))
        found.faults.append(
            f"the ledger has no fingerprint of {names}, which the pipeline made here does not leave out (if they may differ, "
            "have the factory return a DeterministicAugmenter with check=Check(ignore=...))"
        )
    if untold := dict.fromkeys(name for each in found.samples for name in each.untold):
        found.notes.append(f"not compared, without bytes that are the same everywhere: {', '.join(map(repr, untold))}")
    if maker.left_out:
        found.notes.append(f"not compared, as the pipeline made here says: {', '.join(map(repr, maker.left_out))}")
    found.elsewhere = environment_differences(summed.header["environment"], environment())
    return found


def _compare_with_receipt(found: Checked, summed: Sum) -> None:
    found.faults += summed.faults
    ours = receipts.summary(summed)
    if summed.course.batches < found.receipt["batches"]:
        end = "" if summed.last is None else f"; it ends at {summed.last.text}"
        found.faults.append(
            f"the ledger has {summed.course.batches:,} of the receipt's {found.receipt['batches']:,} batches{end}"
        )
        ours = {name: ours[name] for name in (*receipts.COPIED, "versions", "system", "cpu", "gpu")}
    for name, value in ours.items():
        if found.receipt.get(name) != value:
            text = IDENTITY.get(name, name)
            found.faults.append(f"{text}: {found.receipt.get(name)!r} in the receipt, {value!r} in the ledger")
    if summed.goes_on:
        found.notes.append("the ledger goes on behind the receipt's last batch; what follows was not looked at")
    if summed.first is not None and summed.first.epoch + summed.first.place > found.receipt["rank"]:
        found.notes.append(f"the ledger begins at {summed.first.text}")


def _look_into_gaps(found: Checked, summed: Sum, maker: Remaker, samples: int) -> None:
    """Steps without a line are those that cannot be made: skipped errors, and streams that ended. Some are tried."""
    drawn = receipts.drawn(found.receipt["digest"], summed.missing, samples, f"missing {found.salt}")
    for number in sorted(drawn):
        epoch, step = summed.missing_step(number)
        try:
            maker.make(epoch, step)
        except CannotRemake:
            continue
        found.faults.append(f"epoch {epoch}, step {step} has no line, and can be made")
    if drawn:
        found.notes.append(f"{summed.missing:,} steps have no line; {len(drawn):,} of them were tried")


def _compare_checkpoints(found: Checked, checkpoints: Sequence[Path]) -> None:
    known = found.receipt["checkpoints"]
    for file in checkpoints:
        digest = receipts.sha256_of(file)
        if digest not in known.values():
            whose = "has another SHA-256 than in the receipt" if file.name in known else "is not in the receipt"
            found.faults.append(f"{file.name} {whose}: {digest}")


def _sample(maker: Remaker, record: Record) -> Sample:
    whole, keys = maker.prints(maker.make(record["epoch"], record["step"]))
    noted = record["keys"]
    different = differing(keys, noted)
    compared = tuple(name for name, value in keys.items() if value is not None)
    differs = bool(different) or whole != record["whole"]
    return Sample(record["epoch"], record["step"], differs, different, compared, tuple(without_print(keys, noted)))
