"""The texts of the run-time check: of makings that differ, and of batches that are too alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from detaug.engine.errors_from_workers import ErrorRecord, rebuild
from detaug.engine.recheck.requests import RecheckCandidate
from detaug.errors import ReproducibilityError
from detaug.pipeline.batch_report import BatchReport, Change, TraceResponse, first_divergence
from detaug.pipeline.plan import BatchKey

#: Fingerprints of earlier batches that are remembered; then all are forgotten, so that a long run
#: needs no more memory. What repeats in every batch is found again at once.
_MOST_SEEN = 4096
#: Changed values that a message names.
_MOST_CHANGES = 4
#: Keys that a message names.
_MOST_KEYS = 5
_ADVICE = (
    "`detaug verify MODULE:FACTORY` narrows it down. Keys that may differ (a process number, a"
    ' time): check=Check(ignore=(...)); to go on nevertheless: check=Check(on_mismatch="warn");'
    " without checks: check=False."
)


class Mismatch(NamedTuple):
    """Two makings of a batch that differ, and what is known of the cause.

    Attributes:
        candidate: the batch.
        keys: the keys that differ.
        in_loader: True: the loader's part differs already. False: only the transforms' part does.
        is_early: True: it is among its worker's first batches. False: it is a later one.
        cause: "hashes": the makings had different hash seeds; "workers": two workers made them,
            which had made other batches before; empty: the cause is not known.
        live: the trace in the worker that made the batch; None: it has not arrived.
        fresh: the trace from a pristine copy; None: it has not arrived.
        raised: the exception that the second making raised; None: it returned a batch.
    """

    candidate: RecheckCandidate
    keys: list[str]
    in_loader: bool
    is_early: bool
    cause: str = ""
    live: TraceResponse | None = None
    fresh: TraceResponse | None = None
    raised: ErrorRecord | None = None

    @property
    def is_explained(self) -> bool:
        """True: the cause is known. False: traces may show it."""
        return bool(self.cause) or self.raised is not None

    def error(self) -> ReproducibilityError:
        """Return the error for the user."""
        error = ReproducibilityError(self.text())
        if self.raised is not None:
            error.__cause__ = rebuild(self.raised)
        error.epoch, error.step = self.candidate.key
        error.keys = tuple(self.keys)
        return error

    def text(self) -> str:
        """Return the message for the user."""
        if self.raised is not None:
            return self._text_of_exception(self.raised)
        if self.cause == "hashes":
            return self._text_of_hash_order()
        return self._text_of_difference()

    @property
    def _batch(self) -> str:
        """The batch in words."""
        return _name_of(self.candidate.key)

    @property
    def _part(self) -> str:
        """The part of the pipeline whose output differs first."""
        return "loader" if self.in_loader else "transform"

    def _text_of_exception(self, raised: ErrorRecord) -> str:
        return (
            f"{self._batch} is not reproducible: made again from a pristine copy of"
            f" the pipeline, it raises {raised.summary}\n{raised.users_part}\n\n"
            "The first time it raised no error. The pipeline changes something that its copies and"
            " other processes see (a file, a server), or cannot run twice at the same time. To go"
            ' on nevertheless: check=Check(on_mismatch="warn"); without checks: check=False.'
        )

    def _text_of_hash_order(self) -> str:
        return (
            f"{self._batch} depends on the hash seed: made in two fresh interpreters"
            f" that differ in PYTHONHASHSEED alone, it differs in {_some(self.keys)}. The first"
            f" difference is in the output of the {self._part}.\n"
            "It iterates over a set of strings, whose order changes, or uses hash(text) as a"
            " number. PYTHONHASHSEED is not set, so other runs of this program may give other"
            " batches. Iterate over sorted(names), and use zlib.crc32(text.encode()) as a number;"
            f" or start the program with PYTHONHASHSEED=0.\n{_ADVICE}"
        )

    def _text_of_difference(self) -> str:
        again = "made again from a pristine copy of the pipeline"
        if self.cause == "workers":
            again = "made again by another worker, which has made other batches before"
        text = (
            f"{self._batch} is not reproducible: {again}, it differs in {_some(self.keys)}."
            f" {self._first_difference()}"
        )
        if self.in_loader:
            text += (
                "The loader is treated as stateless although it keeps state, reads something that"
                " changes, or has a state_dict that leaves something out. If it carries state from"
                " batch to batch, pass stateless=False; if not, draw from"
                " detaug.current().generator, and keep nothing that a batch depends on.\n"
            )
        else:
            text += (
                "It keeps something that copies of the transform share (a variable of a class or"
                " module), or draws from a generator that detaug does not seed. Draw from"
                " detaug.current().generator, or keep the state in the object.\n"
            )
        return text + _ADVICE

    def _first_difference(self) -> str:
        """Return whose output differs first, and which values other batches have changed."""
        stage = ""
        changes: Sequence[Change] = ()
        if self.live and self.fresh:
            stage, changes = first_divergence(self.live, self.fresh)
        name = self._part
        if stage:
            name += f" ({stage})"
        first = f"The first difference is in the output of the {name}.\n"
        if not changes:
            return first
        values = []
        for path, live, fresh in changes[:_MOST_CHANGES]:
            values.append(f"{path} ({fresh} for a pristine copy, {live} now)")
        process = f"worker {self.candidate.worker}" if self.candidate.worker else "this process"
        return f"Batches made in {process} have changed {'; '.join(values)}. {first}"


def _name_of(key: BatchKey) -> str:
    return f"epoch {key.epoch}, step {key.step}"


def _some(keys: list[str]) -> str:
    return ", ".join(map(repr, keys[:_MOST_KEYS]))


class Repeats:
    """A search for batches that are alike in something that should be random.

    Args:
        ignore: keys of batches that are not looked at.
    """

    def __init__(self, ignore: tuple[str, ...]) -> None:
        self._ignore = ignore
        #: (epoch, name of a value, fingerprint of the value) → the first batch that had it.
        self._seen: dict[tuple[int, str, str], BatchKey] = {}
        self._reported: set[str] = set()

    def remark(self, key: BatchKey, report: BatchReport) -> str:
        """Return a message if a batch is like an earlier one in a way not yet reported; else "".

        The message is about equal random numbers in two batches of an epoch, or about a generator
        that every batch creates with the same seed.
        """
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        return self._equal_numbers(key, report) or self._equal_seeds(key, report)

    def _equal_numbers(self, key: BatchKey, report: BatchReport) -> str:
        raw = "|".join(report.raw[name] for name in report.raw_random)
        # The loader returned the same raw batch again: a transform need not make it different.
        if raw and self._seen.setdefault((key.epoch, "raw", raw), key) != key:
            return ""
        # If the transform has kept all keys, a new one may be a spacing or a table, which are the
        # same in every batch. If it has not, the new one may be another name of an old one.
        has_renamed = not report.raw.keys() <= report.final.keys()
        for name in report.random:
            is_added = name not in report.raw and not has_renamed
            if name in self._ignore or is_added:
                continue
            other = self._earlier(key.epoch, f"final {name}", report.final[name], key)
            # What the transform passed on unchanged is data: a loader may return a case twice.
            if other is not None and report.raw.get(name) != report.final[name]:
                self._reported.add(f"final {name}")
                return (
                    f"{name!r} is the same, byte for byte, in steps {other.step} and {key.step} of"
                    f" epoch {key.epoch}: something draws the same random numbers for different"
                    " batches"
                )
        return ""

    def _equal_seeds(self, key: BatchKey, report: BatchReport) -> str:
        for path, seed in report.new_generators.items():
            other = self._earlier(0, path, seed, key)
            if other is not None:
                self._reported.add(path)
                return (
                    f"{path} is a generator that every batch creates again with the same seed"
                    f" ({_name_of(other)}, and {_name_of(key)}): all batches get the same numbers."
                    " Create it before the transform is passed to detaug, so that it is seeded for"
                    " every batch, or seed it from detaug.current().generator"
                )
        return ""

    def _earlier(self, epoch: int, name: str, value: str, key: BatchKey) -> BatchKey | None:
        """Return the first other batch of the epoch with that value; None if it was reported."""
        other = self._seen.setdefault((epoch, name, value), key)
        if other == key or name in self._reported:
            return None
        return other
