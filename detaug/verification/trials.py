"""Batches made under given conditions, each trial in a process of its own: a fork of an interpreter
in which nothing has run.
"""

from __future__ import annotations

import io
import marshal
import multiprocessing
import os
import pickle
import types
from collections.abc import Callable
from functools import cache, partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle

from detaug.augmenter.warm_up import warm_up
from detaug.engine.errors_from_workers import describe
from detaug.errors import UnusableError
from detaug.objects.fingerprints import fingerprint
from detaug.pipeline.batch_report import observe_stages
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline, Producer, StreamEnded, log_nothing
from detaug.system.interception import Site
from detaug.system.interpreters import InterpreterOptions, code_of
from detaug.system.processes import die_with, run_and_exit
from detaug.system.threads import one_thread
from detaug.verification.augmenter_runs import Reference
from detaug.verification.conditions import Conditions, ControlledEnvironment
from detaug.verification.factories import NotPicklable, call_factory
from detaug.verification.outputs import Output, output_of


class Trial(NamedTuple):
    """Batches to be made in this order, and what surrounds the pipeline (where "hash" is changed,
    the interpreter has another PYTHONHASHSEED); `watched`: the last one's outputs are kept.
    """

    order: tuple[BatchKey, ...]
    conditions: Conditions = Conditions()
    watched: bool = False


class Outcome(NamedTuple):
    """What a trial gave: fingerprints of batches that could be made, which lines asked for random
    numbers, the clock ..., what was watched, and what the first batch raised that could not be
    made.
    """

    prints: dict[BatchKey, str]
    sites: dict[str, dict[Site, str]]
    outputs: list[Output]
    raised: str = ""


class TrialFailed(UnusableError):
    """It could not be made: that says nothing of the pipeline's batches."""


def perform(reference: Reference, trial: Trial) -> Outcome:
    """Run one trial in this process, whose random state and modules it changes."""
    surroundings = ControlledEnvironment(trial.conditions)
    prints: dict[BatchKey, str] = {}
    raised = ""
    with one_thread(), surroundings.around():
        made = call_factory(reference.factory, batches_per_epoch=reference.batches_per_epoch)
        pipeline = Pipeline(made.source, made.transform, must_pickle=False, keep=made.keep)
        warm_up(made.transform, made.source.loader)
        producer = Producer(pipeline.pristine, reference.branch, log_nothing)
        outputs: list[Output] = []
        for number, key in enumerate(trial.order, 1):
            surroundings.begin_batch()
            try:
                if trial.watched and number == len(trial.order):
                    prints[key] = _watched(producer, key, outputs)
                else:
                    prints[key] = fingerprint(producer.make(key.epoch, key.step))
            except StreamEnded:
                prints[key] = "the stream ended before it"
            except Exception as error:
                raised = raised or _told(error)
    return Outcome(prints, surroundings.sites, outputs, raised)


def _watched(producer: Producer, key: BatchKey, outputs: list[Output]) -> str:
    """The batch's fingerprint; what the loader and each transform returned are added to `outputs`."""

    def note(name: str, value: Any) -> None:
        outputs.append(output_of(name, value))

    with observe_stages(note):
        batch = producer.make(key.epoch, key.step, watch=partial(note, "the loader"))
    note("the batch", batch)
    return fingerprint(batch)


class Interpreters:
    """Runs trials, each once, in interpreters that start when they are needed."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._running: dict[int, tuple[Any, Connection]] = {}
        self.outcome = cache(self._outcome)

    def _outcome(self, trial: Trial) -> Outcome:
        """What a trial gives.

        Raises:
            CannotTravel: the factory cannot be sent to another interpreter.
            TrialFailed: the interpreter did not start, or the pipeline raised there.
        """
        seed = 1 + trial.conditions.state_of("hash")
        payload = None
        if seed not in self._running:
            payload = io.BytesIO()
            try:
                _Pickler(payload).dump(self._reference)
            except Exception as error:
                raise NotPicklable(
                    f"the factory cannot be pickled for another interpreter: {error}"
                ) from error
            self._running[seed] = start(seed)
        _, connection = self._running[seed]
        try:
            if payload is not None:
                connection.send_bytes(payload.getvalue())
            connection.send(trial)
            answer = connection.recv()
        except (EOFError, OSError) as error:
            code = self._end(seed)
            raise TrialFailed(
                f"another interpreter ended (exit code {code}) before it gave an answer"
            ) from error
        if isinstance(answer, str):
            raise TrialFailed(f"in another interpreter, {answer}")
        outcome: Outcome = answer
        return outcome

    def _end(self, seed: int) -> int:
        process, connection = self._running.pop(seed)
        connection.close()
        return int(process.wait())

    def close(self) -> None:
        """End them."""
        for seed in list(self._running):
            self._end(seed)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Leaves code the name of its file, which cloudpickle takes from what it sends by value."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.CodeType):
            return marshal.loads, (marshal.dumps(obj),)
        return super().reducer_override(obj)


def start(hash_seed: int) -> tuple[Any, Connection]:
    """An interpreter, which runs `main`, and the connection to it."""
    ours, theirs = multiprocessing.Pipe()
    with theirs:
        code = code_of(__name__, theirs.fileno())
        return InterpreterOptions.here(hash_seed).start(code, (theirs.fileno(),), quiet=True), ours


def main(descriptor: int) -> None:
    """The other interpreter's life: read the pipeline and then trials, and answer each from a fork."""
    # It ends at once: taking an interpreter with torch apart would take half a second.
    run_and_exit(lambda: _serve(Connection(descriptor)))


def _serve(connection: Connection) -> None:
    # From our parent; it imports the user's modules.
    reference = _or_why_not(lambda: pickle.loads(connection.recv_bytes()))
    with ControlledEnvironment(Conditions()).around():
        pass  # what it imports is then imported once, and not in every fork
    parent = os.getpid()
    while True:
        try:
            trial = connection.recv()
        except EOFError:
            return
        child = os.fork()
        if child == 0:

            def answer(trial: Trial = trial) -> None:
                die_with(parent)
                connection.send(
                    reference
                    if isinstance(reference, str)
                    else _or_why_not(lambda: perform(reference, trial))
                )

            run_and_exit(answer)
        if os.waitpid(child, 0)[1]:
            return  # it has not answered


def _or_why_not(function: Callable[[], Any]) -> Any:
    """What it gives, or a sentence of what it raises."""
    try:
        return function()
    except UnusableError as error:
        return str(error)
    except Exception as error:
        return _told(error)


def _told(error: Exception) -> str:
    return f"the pipeline raises {describe(error).summary.splitlines()[0]}"
