"""Batches made under given conditions.

Each trial has a process of its own: a fork of an interpreter in which nothing has run.
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
from detaug.system.interception import Holders, Site
from detaug.system.interpreters import InterpreterOptions, code_of
from detaug.system.processes import die_with, run_and_exit
from detaug.system.threads import one_thread
from detaug.verification.augmenter_runs import Reference, Values
from detaug.verification.conditions import Conditions, ControlledEnvironment
from detaug.verification.factories import NotPicklable, call_factory
from detaug.verification.outputs import Output, output_of


class Trial(NamedTuple):
    """Batches to be made under some conditions.

    Attributes:
        order: the batches, in the order in which they are made.
        conditions: of the pipeline; for the factor "hash" the interpreter has another
            PYTHONHASHSEED.
        watched: the outputs of the last batch's stages are kept.
    """

    order: tuple[BatchKey, ...]
    conditions: Conditions = Conditions()
    watched: bool = False


class Outcome(NamedTuple):
    """The result of a trial.

    Attributes:
        fingerprints: of the batches that could be made.
        sites: the lines that asked for random numbers, the clock ..., by factor.
        outputs: of the stages of the batch that was watched.
        values: that no argument declares, before the first batch.
        raised: by the first batch that could not be made; "" if all could.
    """

    fingerprints: dict[BatchKey, str]
    sites: dict[str, dict[Site, str]]
    outputs: list[Output]
    values: Values
    raised: str = ""


class TrialFailed(UnusableError):
    """A trial could not be run, which says nothing of the pipeline's batches."""


def perform(reference: Reference, trial: Trial, holders: Holders) -> Outcome:
    """Run one trial in this process, whose random state and modules it changes.

    Args:
        reference: the pipeline.
        trial: to be run.
        holders: of the functions that conditions replace.
    """
    environment = ControlledEnvironment(trial.conditions, holders)
    fingerprints: dict[BatchKey, str] = {}
    outputs: list[Output] = []
    raised = ""
    # One thread, because sums depend on the number of threads, which is no fault of a pipeline.
    with one_thread(), environment.around():
        parts = call_factory(reference.factory, batches_per_epoch=reference.batches_per_epoch)
        pipeline = Pipeline(parts.source, parts.transform, must_pickle=False, keep=parts.keep)
        values = Values.of(pipeline.undeclared)
        warm_up(parts.transform, parts.source.loader)
        producer = Producer(pipeline.pristine, reference.branch, log_nothing)
        for index, key in enumerate(trial.order, 1):
            environment.begin_batch()
            try:
                if trial.watched and index == len(trial.order):
                    fingerprints[key] = _watched(producer, key, outputs)
                else:
                    fingerprints[key] = fingerprint(producer.make(key.epoch, key.step))
            # An outcome like a batch: streams must end at the same place in every trial.
            except StreamEnded:
                fingerprints[key] = "the stream ended before it"
            except Exception as error:
                if not raised:
                    raised = _sentence(error)
    return Outcome(fingerprints, environment.sites, outputs, values, raised)


def _watched(producer: Producer, key: BatchKey, outputs: list[Output]) -> str:
    """Return a batch's fingerprint, and add the output of each of its stages to `outputs`."""

    def keep_output(name: str, value: Any) -> None:
        outputs.append(output_of(name, value))

    with observe_stages(keep_output):
        batch = producer.make(key.epoch, key.step, on_raw_batch=partial(keep_output, "the loader"))
    keep_output("the batch", batch)
    return fingerprint(batch)


class Interpreters:
    """Interpreters that run trials, each once, and start when they are needed.

    Attributes:
        outcome: returns the outcome of a trial; see `_outcome`.
    """

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        #: Process and connection, by PYTHONHASHSEED.
        self._running: dict[int, tuple[Any, Connection]] = {}
        # Cached on the instance: `cache` on the method would keep every `Interpreters` alive.
        self.outcome = cache(self._outcome)

    def _outcome(self, trial: Trial) -> Outcome:
        """Run a trial.

        Raises:
            NotPicklable: the factory cannot be sent to another interpreter.
            TrialFailed: the interpreter did not start, or the pipeline raised there.
        """
        # Never 0, which would turn the randomisation of hashes off.
        hash_seed = 1 + trial.conditions.state_of("hash")
        payload = None
        if hash_seed not in self._running:
            # Pickled before the interpreter starts: what cannot be sent costs no process.
            payload = self._pickled_reference()
            try:
                self._running[hash_seed] = start(hash_seed)
            except OSError as error:
                raise TrialFailed(f"another interpreter does not start: {error}") from error
        _, connection = self._running[hash_seed]
        try:
            # Sent once to each interpreter, which runs its trials in forks of itself.
            if payload is not None:
                connection.send_bytes(payload)
            connection.send(trial)
            response = connection.recv()
        except (EOFError, OSError) as error:
            exit_code = self._end(hash_seed)
            raise TrialFailed(
                f"another interpreter ended (exit code {exit_code}) before it gave an answer"
            ) from error
        if isinstance(response, str):
            raise TrialFailed(f"in another interpreter, {response}")
        outcome: Outcome = response
        return outcome

    def _pickled_reference(self) -> bytes:
        """Return the reference as bytes for another interpreter.

        Raises:
            NotPicklable: its factory cannot be pickled.
        """
        payload = io.BytesIO()
        try:
            _Pickler(payload).dump(self._reference)
        except Exception as error:
            raise NotPicklable(
                f"the factory cannot be pickled for another interpreter: {error}"
            ) from error
        return payload.getvalue()

    def _end(self, hash_seed: int) -> int:
        """End an interpreter, and return its exit code."""
        process, connection = self._running.pop(hash_seed)
        # Without its connection it ends by itself.
        connection.close()
        return int(process.wait())

    def close(self) -> None:
        """End all interpreters."""
        for hash_seed in list(self._running):
            self._end(hash_seed)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A pickler that keeps the name of code's file, which cloudpickle drops."""

    def reducer_override(self, obj: Any) -> Any:
        """Reduce code with its file's name, anything else as cloudpickle does."""
        if isinstance(obj, types.CodeType):
            return marshal.loads, (marshal.dumps(obj),)
        return super().reducer_override(obj)


def start(hash_seed: int) -> tuple[Any, Connection]:
    """Start an interpreter that runs `main`.

    Args:
        hash_seed: its PYTHONHASHSEED.

    Returns:
        The process, and the connection to it.
    """
    parent_end, child_end = multiprocessing.Pipe()
    # Only the child holds its end afterwards: else its death would not end the connection.
    with child_end:
        code = code_of(__name__, child_end.fileno())
        options = InterpreterOptions.here(hash_seed)
        process = options.start(code, (child_end.fileno(),), quiet=True)
        return process, parent_end


def main(descriptor: int) -> None:
    """Run the other interpreter: read the pipeline, then answer each trial from a fork."""
    # It ends at once: taking an interpreter with torch apart would take half a second.
    run_and_exit(partial(_serve_descriptor, descriptor))


def _serve_descriptor(descriptor: int) -> None:
    """Serve the connection with this file descriptor."""
    _serve(Connection(descriptor))


def _serve(connection: Connection) -> None:
    """Answer each trial from a fork of this process, until the connection is closed."""
    reference = _result_or_sentence(partial(_receive_reference, connection))
    holders = Holders()
    for _ in range(2):
        # The first time it imports, and the second time it finds what those modules hold: here,
        # once, and not in every fork.
        with ControlledEnvironment(Conditions(), holders).around():
            pass
    parent = os.getpid()
    while True:
        try:
            trial = connection.recv()
        except EOFError:
            return
        # A fork has no threads, and nothing of earlier trials: what one of them changed in modules
        # must not reach the next.
        child = os.fork()
        if child == 0:
            run_and_exit(partial(_answer, connection, parent, reference, trial, holders))
        _, status = os.waitpid(child, 0)
        if status != 0:
            # The child has died without an answer. The connection ends with this process, and the
            # other end reports it.
            return


def _receive_reference(connection: Connection) -> Any:
    """Receive and unpickle the reference, which imports the user's modules."""
    # The bytes are our parent's.
    return pickle.loads(connection.recv_bytes())


def _answer(
    connection: Connection,
    parent: int,
    reference: Reference | str,
    trial: Trial,
    holders: Holders,
) -> None:
    """Send the outcome of a trial from a fork, or a sentence that says why there is none.

    Args:
        connection: to the process that runs `verify`.
        parent: its death is this fork's.
        reference: or the sentence that says why it could not be read.
        trial: to be run.
        holders: see `perform`.
    """
    die_with(parent)
    if isinstance(reference, str):
        connection.send(reference)
        return
    connection.send(_result_or_sentence(partial(perform, reference, trial, holders)))


def _result_or_sentence(function: Callable[[], Any]) -> Any:
    """Return the function's result, or a sentence that says what it raised."""
    try:
        return function()
    except UnusableError as error:
        return str(error)
    except Exception as error:
        return _sentence(error)


def _sentence(error: Exception) -> str:
    """Return a sentence that says what the pipeline raised."""
    return f"the pipeline raises {describe(error).summary.splitlines()[0]}"
