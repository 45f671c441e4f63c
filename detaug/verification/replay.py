"""Replay some batches of a recorded run, and compare them with its ledger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.text import Text

from detaug.augmenter.augmenter import DeterministicAugmenter
from detaug.engine.arguments import Check
from detaug.engine.replayer import Replayer
from detaug.errors import UnusableError
from detaug.ledger.comparing import HeaderDifference, header_differences, header_lines, listed
from detaug.ledger.header import Record, digest, portable
from detaug.ledger.lines import batch_fingerprints
from detaug.ledger.reading import LedgerSummary, read_header, records
from detaug.objects.differences import differing_names
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import StreamEnded
from detaug.system.progress import Progress
from detaug.training.machine import environment
from detaug.verification.factories import Factory, call_factory
from detaug.versions import NUMERICS, SEED_SCHEME

#: Batches that are replayed by default.
DEFAULT_BATCHES = 20
#: Versions on which all batches depend: key of the header, name for people, this detaug's.
_VERSIONS = (
    ("numerics", "numerics version", NUMERICS),
    ("seed_scheme", "seed scheme", SEED_SCHEME),
)
#: The modules before a class's name.
_MODULES = re.compile(r"(?:[A-Za-z_]\w*\.)+")
#: Batches that a report names; the others are counted.
_MOST_NAMED = 8


class CannotReplay(UnusableError):
    """Batches of the ledger cannot be replayed here; the message says why."""


class DifferentBatch(NamedTuple):
    """A batch that differs from the ledger's.

    Attributes:
        epoch, step: of the batch.
        keys: that differ; none if only the batch's own fingerprint does.
    """

    epoch: int
    step: int
    keys: tuple[str, ...]

    @property
    def text(self) -> str:
        """The sentence that names it."""
        parts = listed(self.keys) or "the whole"
        return f"epoch {self.epoch}, step {self.step} differs in {parts}"


@dataclass(frozen=True)
class ReplayResult:
    """The result of `verify_against`.

    Attributes:
        ledger: the file's name.
        batches, epochs, digest: of the whole ledger.
        compared: number of batches that were replayed.
        left_out: keys that the ledger has no fingerprints of.
        different: the batches that differ, in the order of their steps.
        header: declared parameters, versions and all else that differs between the ledger's run and
            this one, the most likely cause first.
    """

    ledger: str
    batches: int
    epochs: int
    digest: str
    compared: int
    left_out: tuple[str, ...]
    different: tuple[DifferentBatch, ...]
    header: tuple[HeaderDifference, ...]

    @property
    def ok(self) -> bool:
        """Whether all batches that were compared are equal."""
        return not self.different

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        different = [batch._asdict() for batch in self.different]
        return {**asdict(self), "ok": self.ok, "different": different}

    def render(self) -> Iterator[Text]:
        """Yield the report, line by line."""
        yield Text(
            f"{self.ledger}: {self.batches:,} batches of {self.epochs:,} whole epochs, digest "
            f"{self.digest}"
        )
        for batch in self.different[:_MOST_NAMED]:
            yield Text(batch.text, "bold red")
        if len(self.different) > _MOST_NAMED:
            yield Text(f"and {len(self.different) - _MOST_NAMED:,} batches more", "bold red")
        if self.left_out:
            yield Text(f"the ledger has no fingerprints of {listed(self.left_out)}", "dim")
        num_equal = self.compared - len(self.different)
        color = "green" if self.ok else "bold red"
        yield Text(f"{num_equal:,} of {self.compared:,} batches are equal", color)
        if self.ok:
            return
        if not self.header:
            yield Text(
                "parameters and versions are the same: data or code behind the same names changed, "
                "or the pipeline is not deterministic (detaug verify without --against finds the "
                "line)"
            )
            return
        yield Text("the ledger's run and this one differ in (the most likely cause first):")
        yield from header_lines(self.header, "in the ledger", "here")


def verify_against(
    factory: Factory, ledger: Path, batches: int = DEFAULT_BATCHES, progress: Progress | None = None
) -> ReplayResult:
    """Replay some of a ledger's batches, with its seed, and compare their fingerprints.

    Args:
        factory: makes the pipeline, as for `detaug.verify`.
        ledger: the file that a run has written.
        batches: number of batches to replay, evenly spaced over the run, the first and the last
            included; all of a run that has fewer.
        progress: is updated; None: is shown nowhere.

    Raises:
        CannotReplay: the batches cannot be replayed here.
        UnusableError: the factory gives no pipeline; the file is no ledger, or damaged.
        OSError: the file cannot be read.
    """
    if progress is None:
        progress = Progress()
    progress.update(f"reading {ledger.name}")
    header = read_header(ledger)
    # Checked before the whole file is read, which takes seconds for a long run.
    _check_versions(header)
    totals = LedgerSummary(ledger).running_digest
    if totals.batches == 0:
        raise CannotReplay(f"{ledger} has no batch")
    augmenter = _augmenter_of(factory, header)
    left_out = tuple(header.get("left_out", ()))

    indices = spread(totals.batches, batches)
    progress.update("making batches again", 0, len(indices))
    replayer = augmenter.setup.replayer
    different: list[DifferentBatch] = []
    for record in _batches_at(ledger, indices):
        key = BatchKey(record["epoch"], record["step"])
        whole, keys = batch_fingerprints(_make(replayer, key), left_out)
        if whole != record["whole"] or keys != record["keys"]:
            differing_keys = tuple(differing_names(record["keys"], keys))
            different.append(DifferentBatch(key.epoch, key.step, differing_keys))
        progress.advance()
    return ReplayResult(
        ledger=ledger.name,
        batches=totals.batches,
        epochs=totals.epochs,
        digest=totals.digest,
        compared=len(indices),
        left_out=left_out,
        different=tuple(different),
        header=tuple(header_differences(header, _current_header(header, augmenter))),
    )


def spread(total: int, count: int) -> list[int]:
    """Return `count` indices below `total`, evenly spaced from the first to the last.

    These are all indices if `total` is no larger; and the first one alone if `count` is 1.
    """
    if count >= total:
        return list(range(total))
    if count == 1:
        return [0]
    return [index * (total - 1) // (count - 1) for index in range(count)]


def _batches_at(ledger: Path, indices: list[int]) -> Iterator[Record]:
    """Yield the batches of a ledger with these indices, in the file's order."""
    # One pass, because a long run's file should not be held in memory.
    selected = frozenset(indices)
    index = 0
    for line in records(ledger):
        if line.record["kind"] != "batch":
            continue
        if index in selected:
            yield line.record
        index += 1


def _check_versions(header: Record) -> None:
    """Raise `CannotReplay` where this version of detaug makes other bytes."""
    for name, text, current in _VERSIONS:
        if header[name] != current:
            raise CannotReplay(
                f"{text}: the ledger has {header[name]!r}, this detaug has {current}, which makes "
                f"other batches. Install the detaug that wrote it ({header['detaug']})"
            )


def _augmenter_of(factory: Factory, header: Record) -> DeterministicAugmenter:
    """Return an augmenter with the ledger's seed, which is not started.

    If the factory returns no augmenter, all other arguments are the ledger's as well.

    Raises:
        CannotReplay: the header's arguments make no augmenter.
        UnusableError: the factory gives no pipeline.
    """
    pipeline = call_factory(factory, header.get("stateless"), header["batches_per_epoch"])
    keep = pipeline.keep
    version = pipeline.version
    if version is None:
        keep = tuple(header.get("keep", ()))
        version = header.get("version", "")
    try:
        return pipeline.augmenter(
            seed=header["seed"],
            name=header["name"],
            num_streams=header["num_streams"],
            batches_per_epoch=pipeline.batches_per_epoch or header["batches_per_epoch"],
            version=version,
            keep=keep,
            # The batches that are made are compared with the ledger instead.
            check=Check(every=0),
        )
    except (TypeError, ValueError) as error:
        raise CannotReplay(f"no augmenter can be made from the ledger's header: {error}") from error


def _make(replayer: Replayer, key: BatchKey) -> Any:
    """Return a batch, or raise `CannotReplay` with what the pipeline raises."""
    try:
        return replayer.make(key)
    except StreamEnded:
        raise CannotReplay(
            f"epoch {key.epoch} has no step {key.step} here: has the data changed?"
        ) from None
    except Exception as error:
        raise CannotReplay(
            f"epoch {key.epoch}, step {key.step} cannot be made here: {type(error).__name__}: "
            f"{error}"
        ) from error


def _current_header(header: Record, augmenter: DeterministicAugmenter) -> Record:
    """Return the ledger's header as this pipeline on this machine would have written it."""
    declared = portable(augmenter.setup.declared)
    # Line by line: a pipeline with more or fewer lines is another one in any case.
    if len(declared) == len(header["declared"]):
        pairs = zip(declared, header["declared"], strict=True)
        declared = [recorded if _is_of_script(line, recorded) else line for line, recorded in pairs]
    return {
        **header,
        "pipeline": digest(declared),
        "declared": declared,
        "environment": environment(),
    }


def _is_of_script(line: str, recorded: str) -> bool:
    """Return whether two lines of a description differ in a module alone that was run as a script.

    A script's classes are those of ``__main__``, and those of a module where it is imported.
    """
    is_script = "__main__." in line or "__main__." in recorded
    return is_script and _MODULES.sub("", line) == _MODULES.sub("", recorded)
