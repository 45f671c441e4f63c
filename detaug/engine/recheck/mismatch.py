"""What the run-time check says to the user: of two makings of a batch that differ, and of batches
that are too much alike.
"""

from __future__ import annotations

from typing import NamedTuple

from detaug.engine.errors_from_workers import ErrorRecord, rebuild
from detaug.engine.recheck.requests import RecheckCandidate
from detaug.errors import ReproducibilityError
from detaug.pipeline.batch_report import BatchReport, Change, TraceResponse, what_diverged
from detaug.pipeline.plan import BatchKey

#: Fingerprints of earlier batches that are remembered.
_MOST_SEEN = 4096
#: Changed values that are told.
_MOST_CHANGES = 4


class Mismatch(NamedTuple):
    """Two makings of a batch that differ, in which keys, and what is known of why.

    Attributes:
        why: "hashes": they were made in fresh interpreters, with different hash seeds; "": that is
            asked.
        raised: what the second making raised, instead of giving a batch.
    """

    check: RecheckCandidate
    keys: list[str]
    in_loader: bool  # its part differs already
    early: bool  # among its worker's first batches
    why: str = ""
    live: TraceResponse | None = (
        None  # how the batch comes to be in the worker that made it; None: not yet told
    )
    fresh: TraceResponse | None = None  # and in a pristine copy
    raised: ErrorRecord | None = None

    @property
    def is_explained(self) -> bool:
        """Whether it is known why they differ."""
        return bool(self.why) or self.raised is not None

    def error(self) -> ReproducibilityError:
        """The error for the user."""
        error = ReproducibilityError(self.text())
        if self.raised is not None:
            error.__cause__ = rebuild(self.raised)
        error.epoch, error.step = self.check.key
        error.keys = tuple(self.keys)
        return error

    def text(self) -> str:
        """The message for the user."""
        advice = (
            "`detaug verify MODULE:FACTORY` narrows it down. Keys that may differ (a process "
            "number, a time): "
            'check=Check(ignore=(...)); to go on nevertheless: check=Check(on_mismatch="warn"); '
            "without checks: check=False."
        )
        batch, part = _name_of(self.check.key), "loader" if self.in_loader else "transform"
        if self.raised is not None:
            return (
                f"{batch} is not reproducible: made again from a pristine copy of the pipeline, it "
                "raises "
                f"{self.raised.summary}\n{self.raised.users_part}\n\n"
                "The first time it was made without an error. The pipeline changes something that "
                "its copies and other "
                "processes see (a file, a server), or can be run only once at a time. To go on "
                "nevertheless: "
                'check=Check(on_mismatch="warn"); without checks: check=False.'
            )
        if self.why == "hashes":
            return (
                f"{batch} depends on the hash seed: made in two fresh interpreters that differ in "
                "PYTHONHASHSEED alone, it "
                f"differs in {_some(self.keys)}. What differs first is what the {part} gives.\n"
                "It goes through a set of strings in the set's order, or takes hash(text) for a "
                "number. PYTHONHASHSEED is not "
                "set, so other runs of this program may give other batches. Go through "
                "sorted(names), and take "
                "zlib.crc32(text.encode()) for a number; or start the program with "
                f"PYTHONHASHSEED=0.\n{advice}"
            )
        text = (
            f"{batch} is not reproducible: made again from a pristine copy of the pipeline, it "
            f"differs in {_some(self.keys)}. "
            f"{self._where(part)}"
        )
        if self.in_loader:
            text += (
                "The loader is taken for stateless, reads something that changes, or has a "
                "state_dict that leaves something out. "
                "If it carries something from batch to batch, pass stateless=False; if not, draw "
                "from "
                "detaug.current().generator and keep nothing that a batch depends on.\n"
            )
        else:
            text += (
                "It keeps something that copies of the transform share (a variable of a class or "
                "module), or draws from a "
                "generator that no seed governs. Draw from detaug.current().generator, or keep the "
                "state in the object.\n"
            )
        return text + advice

    def _where(self, part: str) -> str:
        """Return which values other batches have changed, and whose result differs first."""
        stage, changed = "", list[Change]()
        if self.live and self.fresh:
            stage, changed = what_diverged(self.live, self.fresh)
        name = f"{part} ({stage})" if stage else part
        first = f"What differs first is what the {name} gives.\n"
        if not changed:
            return first
        values = [
            f"{path} ({fresh} for a pristine copy, {live} now)"
            for path, live, fresh in changed[:_MOST_CHANGES]
        ]
        where = f"in worker {self.check.worker}" if self.check.worker else "in this process"
        return f"Batches made {where} have changed {'; '.join(values)}. {first}"


def _name_of(key: BatchKey) -> str:
    return f"epoch {key.epoch}, step {key.step}"


def _some(keys: list[str]) -> str:
    return ", ".join(map(repr, keys[:5]))


class Repeats:
    """Batches that are alike in what should be random. `ignore`: keys that are not looked at."""

    def __init__(self, ignore: tuple[str, ...]) -> None:
        self._ignore = ignore
        self._seen: dict[tuple[int, str, str], BatchKey] = {}
        self._reported: set[str] = set()

    def remark(self, key: BatchKey, report: BatchReport) -> str:
        """Return what a report shows by itself, in words; empty if there is nothing new.

        That is: batches of an epoch with equal random numbers in them, or a generator that every
        batch makes with the same seed. Each is reported once.
        """
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        return self._equal_numbers(key, report) or self._equal_seeds(key, report)

    def _equal_numbers(self, key: BatchKey, report: BatchReport) -> str:
        raw = "|".join(report.raw[name] for name in report.raw_random)
        if raw and self._seen.setdefault((key.epoch, "raw", raw), key) != key:
            return ""  # the loader gave the same once more: a transform need not be random
        for name in report.random:
            if name in self._ignore:
                continue
            other = self._earlier(key.epoch, f"final {name}", report.final[name], key)
            if other is not None and report.raw.get(name) != report.final[name]:
                self._reported.add(f"final {name}")
                return (
                    f"{name!r} is the same, byte for byte, in steps {other.step} and {key.step} of "
                    f"epoch {key.epoch}: something draws the same random numbers for different "
                    "batches"
                )
        return ""

    def _equal_seeds(self, key: BatchKey, report: BatchReport) -> str:
        for path, seed in report.late.items():
            other = self._earlier(0, path, seed, key)
            if other is not None:
                self._reported.add(path)
                return (
                    f"{path} is a generator that each batch makes anew, and with the same seed "
                    f"({_name_of(other)}, and {_name_of(key)}): it draws the same numbers for all "
                    "of "
                    "them. Make it before the transform is handed in, so that it is seeded for "
                    "every "
                    "batch, or seed it from detaug.current().generator"
                )
        return ""

    def _earlier(self, epoch: int, name: str, value: str, key: BatchKey) -> BatchKey | None:
        """Return the first other batch of the epoch with that value; None if it was reported."""
        other = self._seen.setdefault((epoch, name, value), key)
        return None if other == key or name in self._reported else other
