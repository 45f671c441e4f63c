"""The run-time check: which batches are made a second time, from a pristine copy, and how differences are reported.

Everything here is arithmetic on reports; processes are the coordinator's business.

Checks are ordered by what they can reveal. What is carried from batch to batch shows in a batch only if the process that made
it had made others before: such a check is informative. The first one is the second batch of some worker. Where there are so
many workers that none has made a second one soon, a first batch is made again by a process that has made another one before.
Then come batches after a long history, and the first batch of one worker.

A check costs what a batch costs. The first informative one is made at any rate; others wait until all of them together take
no more than a small amount of time, or a share of the workers' time. So quick pipelines are checked thoroughly at once, and
slow ones a little at a time, for a known share of the throughput.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from detaug.errors import ReproducibilityError
from detaug.ledger.notes import note_of
from detaug.pipeline.loader_states import CannotRestore, LoaderState, LoaderStates
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Producer
from detaug.purity.reports import BatchReport, Explanation, differing_keys, what_diverged

#: What all checks may take: seconds, or a share of the workers' time, whichever is more.
_ALLOWANCE, _SHARE = 0.4, 0.01
#: A check that takes as long as so many batches, and longer than the allowance, is left out.
_MOST_COSTLY = 20
#: Once so many batches were made and none of them is a worker's second one, a first one is made again after another.
_SECOND_BY = 12
#: Differences in a worker's first batches are errors; later a training is under way.
_FIRST_BATCHES = 8
#: Checks that wait for their turn; what comes beyond is left out.
_MOST_WAITING = 16


def is_checked(number: int, every: int) -> bool:
    """Whether a worker's `number`-th batch (from 1) is reported on: the first, second, fourth, eighth ..., and then one in
    `every` (0: none)."""
    if not every:
        return False
    return number & (number - 1) == 0 if number < every else number % every == 0


class CheckedBatch(NamedTuple):
    """A batch that is to be made again.

    Attributes:
        number: index of the batch among its worker's, from 1.
        worker: that worker's number, which its engine knows; 0 in the calling process.
        state: of its stream's loader before it, if that is known.
        after: the process that makes it again makes this one before it.
    """

    key: BatchKey
    report: BatchReport
    number: int
    worker: int = 0
    state: LoaderState | None = None
    after: BatchKey | None = None

    @property
    def is_informative(self) -> bool:
        """Whether what is carried from batch to batch can show in it."""
        return self.number > 1 or self.after is not None


def make_to_check(
    producer: Producer, key: BatchKey, number: int, every: int, noted: tuple[str, ...] | None
) -> tuple[Any, CheckedBatch | None]:
    """A process's `number`-th batch, as a pair with its note where `noted` is not None, and what another making of it is to be
    compared with, where it is reported on."""
    check, began = None, time.perf_counter()
    if is_checked(number, every):
        batch, report = producer.make_reported(*key)
        check = CheckedBatch(key, report, number, state=producer.state_before)
    else:
        batch = producer.make(*key)
    seconds = time.perf_counter() - began
    return (batch if noted is None else (batch, note_of(batch, seconds, noted))), check


class Again(NamedTuple):
    """What came of making a batch again.

    Attributes:
        report: as a copy made it that was stepped forward from the start; what it raised; or None: that was left out.
        restored: fingerprints of the loader's part, as a copy made it that was restored from a state.
        refused: why the loader could not be restored.
    """

    report: BatchReport | str | None
    restored: dict[str, str] | None
    refused: str = ""


def make_again(
    producer: Producer,
    epoch: int,
    step: int,
    stepped: bool,
    state: LoaderState | None,
    after: BatchKey | None,
    caught: type[BaseException] = Exception,
) -> Again:
    """Make a batch again, from a pristine copy (where `stepped`, after that other batch) and from a state. What is `caught` is
    part of the answer."""
    report: BatchReport | str | None = None
    restored = None
    if stepped:
        producer.start_over()
        if after is not None:
            with suppress(caught):
                producer.make(*after)
        try:
            report = producer.make_reported(epoch, step)[1]
        except caught as error:
            report = f"{type(error).__name__}: {error}"[:1000]
    if state is not None:
        try:
            restored = producer.make_restored(epoch, step, state)
        except CannotRestore as error:
            return Again(report, None, str(error)[:1000])
        except caught as error:
            restored = {"": f"{type(error).__name__}: {error}"[:1000]}
    return Again(report, restored)


class Checks:
    """Which batches are checked, and what has come of it.

    Args:
        ignore: keys that may differ.
        num_streams, stateless: where a batch cannot be made by itself, those before it in its stream have to be made as well.
        states: the loader's, which are checked as well.
        every: as `is_checked` has it; where every batch is to be checked, none waits for the account.

    Attributes:
        done, informative, different: how many were made again, how many of these could show what is carried from batch to
            batch, and how many differed.
        remarks: what the last comparison says beside a difference.
        knows_hash_order: it is known whether batches depend on the hash seed, cannot be, or is not to be.
    """

    def __init__(
        self, ignore: tuple[str, ...], num_streams: int, stateless: bool, states: LoaderStates, every: int = 0
    ) -> None:
        self.done = self.informative = self.different = 0
        self.remarks: list[str] = []
        self.knows_hash_order = not every
        self._ignore = ignore
        self._num_streams = num_streams
        self._stateless = stateless
        self._thorough = every == 1
        self._states = states
        self._batches = 0
        self._worked = self._paid = 0.0
        self._batch_seconds = 0.0
        self._patience: float | None = None
        self._waiting: list[CheckedBatch] = []
        self._first: CheckedBatch | None = None
        self._latest = 0
        self._seen: dict[tuple[int, str, str, str], BatchKey] = {}
        self._said_same: set[str] = set()

    def worked(self, seconds: float) -> None:
        """A batch took so long."""
        self._batch_seconds += ((seconds - self._batch_seconds) / 8) if self._batch_seconds else seconds
        self._worked += seconds
        self._batches += 1

    def paid(self, seconds: float) -> None:
        """A check took so long."""
        self._paid += seconds

    def end_is_near(self, seconds: float) -> None:
        """The epoch's or the program's end waits so long for checks: what can be said by then is not to wait for more batches."""
        self._patience = seconds

    def reported(self, check: CheckedBatch) -> None:
        """The report on a batch has come."""
        self._first = self._first or check
        self._latest = max(self._latest, check.number)
        firsts = sum(each.number == 1 for each in self._waiting)
        if self._thorough or check.number > 1 or (firsts < 2 and not self.done):
            self._waiting.append(check)
        if len(self._waiting) > _MOST_WAITING and not self._thorough:
            self._waiting.remove(min(self._waiting, key=lambda each: each.number))

    def next(self) -> CheckedBatch | None:
        """The check to be made now, if there is one that can be paid for."""
        check = self._chosen()
        if check is not None:
            self._waiting = [each for each in self._waiting if each.key != check.key]
            if check.number == 1 and not self._thorough:
                self._waiting = [each for each in self._waiting if each.number > 1]  # one is enough
        return check

    @property
    def waits(self) -> bool:
        """Whether `next` would give one."""
        return self._chosen() is not None

    def _chosen(self) -> CheckedBatch | None:
        if not self._waiting:
            return None
        if self._thorough:
            first = self._waiting[0]
            # What counts batches would otherwise count in step with a process that makes all of them again.
            return first if self.done else first._replace(after=first.key)
        if self.informative:
            affordable = [each for each in self._waiting if self._affords(each)]
            return max(affordable, key=lambda each: each.number, default=None)
        later = [each for each in self._waiting if each.number > 1 and (self._is_urgent or self._affords(each))]
        if later:
            return min(later, key=lambda each: self._cost_of(each.key))
        return self._waiting[0]._replace(after=self._waiting[-1].key) if self._is_urgent and self._is_late else None

    def is_stepped(self, check: CheckedBatch) -> bool:
        """Whether that check's batch is made by a copy that is stepped forward from the start. Where a state tells as
        much for less, only if it is not too far."""
        return check.state is None or self._is_urgent or self._cost_of(check.key) <= self._left

    @property
    def _is_urgent(self) -> bool:
        # One that tells something is made at any rate, unless this run went on from states: the start may be very far away.
        return not self.informative and not self._states.used

    @property
    def _is_late(self) -> bool:
        """Whether the second batch of some worker is waited for no longer."""
        if self._batches >= _SECOND_BY:
            return True
        return self._patience is not None and 2 * self._batch_seconds < self._patience

    @property
    def _left(self) -> float:
        return max(_ALLOWANCE, _SHARE * self._worked) - self._paid

    def _affords(self, check: CheckedBatch) -> bool:
        if self._states.used and not self._batch_seconds:
            return False  # the report comes before its batch, so the cost of a step from the start is not known yet
        cost = self._cost_of(check.key) if check.state is None else self._batch_seconds
        return cost <= min(self._left, max(_ALLOWANCE, _MOST_COSTLY * self._batch_seconds))

    def _cost_of(self, key: BatchKey) -> float:
        batches = 1 if self._stateless else 1 + key.step // self._num_streams
        return batches * self._batch_seconds

    def for_other_hashes(self) -> CheckedBatch | None:
        """The batch that is made again with other hash seeds: once it is known that it does not differ anyway, if a copy need
        not step far for it."""
        check = self._first
        if check is None or not self.informative or self.different:
            return None
        return check if self._cost_of(check.key) <= max(_ALLOWANCE, _MOST_COSTLY * self._batch_seconds) else None

    def would_pay(self, seconds: float) -> bool:
        """Whether something beside the checks may take so long."""
        return seconds <= _SHARE * self._worked

    def depends_on_hashes(self, check: CheckedBatch, one: BatchReport, other: BatchReport) -> Difference:
        """These makings of it, which differ, were made with different hash seeds."""
        self.different += 1
        keys, raw = self.differing(one, other)
        return Difference(check, keys, bool(raw), self._latest <= _FIRST_BATCHES, hashes=True)

    def compare(self, check: CheckedBatch, again: Again) -> Difference | None:
        """What a second making says of the first, and of the loader's states."""
        states = self._states
        self.done += 1
        self.informative += check.is_informative
        self.remarks = []
        difference = None
        if again.report is not None:
            # Making it has failed, which it did not the first time.
            report = BatchReport({}, {"": again.report}) if isinstance(again.report, str) else again.report
            keys, raw = self.differing(check.report, report)
            if keys:  # those of the raw batch alone do not reach the user
                early = check.number <= _FIRST_BATCHES
                difference = Difference(check, keys, bool(raw), early, went_on=states.used)
        if again.refused and states.trusted:
            # A worker that is refused steps forward, so that its batches are right.
            states.distrust()
            self.remarks.append(f"{again.refused}; its streams are stepped forward instead")
        if difference is None and again.restored is not None and states.trusted:
            keys = differing_keys(check.report.raw, again.restored, self._ignore)
            if not keys:
                states.verified = True
            elif not states.used:
                states.distrust()
                advice = (
                    " Its streams are stepped forward instead, as without these methods. Do not go on from state dicts that "
                    "were taken before now."
                )
                self.remarks.append(_said_of_states(check.key, keys) + advice)
            else:
                difference = Difference(check, keys, True, check.number <= _FIRST_BATCHES, True, True)
        if difference is not None:
            self.different += 1
            states.distrust()
        return difference

    def differing(self, one: BatchReport, other: BatchReport) -> tuple[list[str], list[str]]:
        """The keys in which two makings of a batch differ, and those in which its raw form does."""
        return differing_keys(one.final, other.final, self._ignore), differing_keys(one.raw, other.raw, self._ignore)

    def remark(self, key: BatchKey, report: BatchReport) -> str:
        """In words, what a report shows by itself: batches of an epoch that have equal random numbers in them, streams that
        give equal raw batches, generators that are made with the same seed in every batch. Each is said once."""
        for found in self._equal_to_earlier(key, report):
            if found[0] not in self._said_same:
                self._said_same.add(found[0])
                return found[1]
        return ""

    def _equal_to_earlier(self, key: BatchKey, report: BatchReport) -> Iterator[tuple[str, str]]:
        if len(self._seen) > 4096:
            self._seen.clear()
        stream = key.step % self._num_streams
        if not self._stateless and self._num_streams > 1 and any(name in report.raw for name in report.random):
            other = self._seen.setdefault((key.epoch, "raw", "", "|".join(report.raw.values())), key)
            if other.step % self._num_streams != stream:
                yield (
                    "raw",
                    (
                        f"streams {other.step % self._num_streams} and {stream} of the loader give the same raw batches (epoch "
                        f"{key.epoch}, steps {other.step} and {key.step}): its copies do not share the data out. Have it look at "
                        "detaug.current().stream or set_thread_id, or pass num_streams=1"
                    ),
                )
        whole = "|".join(report.raw[name] for name in report.raw_random if name in report.raw)
        # Where the loader gave the same once more, a transform need not be random.
        if not whole or self._seen.setdefault((key.epoch, "all raw", "", whole), key) == key:
            for name in (each for each in report.random if each not in self._ignore):
                other = self._seen.setdefault((key.epoch, "final", name, report.final[name]), key)
                if other != key and report.raw.get(name) != report.final[name]:
                    yield (
                        name,
                        (
                            f"{name!r} is the same, byte for byte, in steps {other.step} and {key.step} of epoch {key.epoch}: "
                            "something draws the same random numbers for different batches"
                        ),
                    )
        for path, seed in report.late.items():
            other = self._seen.setdefault((0, "late", path, seed), key)
            if other != key:
                yield (
                    path,
                    (
                        f"{path} is a generator that each batch makes anew, and with the same seed (epoch {other.epoch}, step "
                        f"{other.step}, and epoch {key.epoch}, step {key.step}): it draws the same numbers for all of them. "
                        "Make it before the transform is handed in, so that it is seeded for every batch, or seed it from "
                        "detaug.current().generator"
                    ),
                )


@dataclass
class Difference:
    """Two makings of a batch that differ, in which keys, and what is known of why.

    Attributes:
        in_loader: the loader's part differs already.
        early: it was among its worker's first batches.
        restored: the second one was made by a loader that was restored from a state.
        went_on: so may be the first.
        hashes: both were made in fresh interpreters, with different hash seeds.
        live, fresh: how the batch comes to be in the worker that made it, and in a pristine copy; None: not yet told.
    """

    check: CheckedBatch
    keys: list[str]
    in_loader: bool
    early: bool
    restored: bool = False
    went_on: bool = False
    hashes: bool = False
    live: Explanation | None = None
    fresh: Explanation | None = None

    def error(self) -> ReproducibilityError:
        """The error for the user."""
        error = ReproducibilityError(self.text())
        error.epoch, error.step = self.check.key
        error.keys = tuple(self.keys)
        return error

    def text(self) -> str:
        """The message for the user."""
        if self.restored:
            return _said_of_states(self.check.key, self.keys) + (
                " This run went on from such a state, so its batches may differ from those of an uninterrupted one. Save all "
                "that a batch depends on, or remove one of the two methods."
            )
        batch = f"epoch {self.check.key.epoch}, step {self.check.key.step}"
        keys = ", ".join(map(repr, self.keys[:5]))
        if self.hashes:
            return (
                f"{batch} depends on the hash seed: made in two fresh interpreters that differ in PYTHONHASHSEED alone, it "
                f"differs in {keys}. What differs first is what the {'loader' if self.in_loader else 'transform'} gives.\n"
                "It goes through a set of strings in the set's order, or takes hash(text) for a number. PYTHONHASHSEED is not "
                "set, so other runs of this program may give other batches. Go through sorted(names), and take "
                "zlib.crc32(text.encode()) for a number; or start the program with PYTHONHASHSEED=0. " + _advice("")
            )
        stage, changed = what_diverged(self.live, self.fresh) if self.live and self.fresh else ("", [])
        who = ("the loader" if self.in_loader else "the transform") + (f" ({stage})" if stage else "")
        again = "made again from a pristine copy of the pipeline, it differs in"
        lines = [f"{batch} is not reproducible: {again} {keys}. What differs first is what {who} gives."]
        if changed:
            where = f"in worker {self.check.worker}" if self.check.worker else "in this process"
            lines.append(f"Changed {where} by earlier batches: {'; '.join(changed[:4])}.")
        if self.in_loader:
            lines.append(
                "The loader is taken for stateless, or reads something that changes. If it carries something from batch to "
                "batch, pass stateless=False; if not, draw from detaug.current().generator and keep nothing that a batch "
                "depends on."
            )
            if self.went_on:
                lines.append(
                    "It went on from a state of its own: its state_dict may leave something out that a batch depends on."
                )
        else:
            lines.append(
                "It keeps something that copies of the transform share (a variable of a class or module), or draws from a "
                "generator that no seed governs. Draw from detaug.current().generator, or keep the state in the object."
            )
        return "\n".join([*lines, _advice(" (a process number, a time)")])


def _advice(examples: str) -> str:
    return (
        f"`detaug verify MODULE:FACTORY` narrows it down. Keys that may differ{examples}: check=Check(ignore=(...)); to go on "
        'nevertheless: check=Check(on_mismatch="warn"); without checks: check=False.'
    )


def _said_of_states(key: BatchKey, keys: list[str]) -> str:
    return (
        f"the loader's state_dict / load_state_dict leave something out: epoch {key.epoch}, step {key.step}, made by a copy that "
        f"was restored from a state, is not reproducible and differs in {', '.join(map(repr, keys[:5]))}."
    )
