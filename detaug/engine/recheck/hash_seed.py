"""Whether batches depend on the hash seed: on the order of a set of strings, or on ``hash(text)``.

All forks of a program hash strings alike, so no worker can show it. One batch is therefore made
again in a fresh interpreter with another PYTHONHASHSEED, in the background. Where it differs there,
the cause may be something else that a fresh interpreter lacks, such as a module's variable that the
program has set. So it is made in further ones, which differ from the first in nothing but their
hash seeds, and the user is told if these differ among each other.

The first hash seed is the same in every run: of two runs whose batches differ, at least one differs
from it.
"""

from __future__ import annotations

import logging
import os
import subprocess

from detaug.engine.job import WorkerConfig
from detaug.engine.recheck.mismatch import Mismatch
from detaug.engine.recheck.policy import RecheckPolicy
from detaug.engine.recheck.requests import RecheckCandidate, RecheckResponse, answer
from detaug.objects.frozen import read_payload, write_payload
from detaug.pipeline.batch_report import BatchReport
from detaug.pipeline.producer import Pipeline, Producer, log_nothing
from detaug.pipeline.undeclared import Remark, remarks_on_variables
from detaug.system.channel import Channel, ChannelClosed
from detaug.system.interpreters import InterpreterOptions, code_of, known_hash_seed
from detaug.system.platform import HAS_WORKERS
from detaug.system.processes import interrupts_deferred, run_and_exit

logger = logging.getLogger("detaug")

#: Hash seeds of the interpreters. Fresh workers have 0.
_SEEDS = range(2, 10)
#: A pipeline of more bytes is not sent.
_MOST_BYTES = 2**28


class HashOrder:
    """The interpreters, one at a time."""

    def __init__(self, pipeline: Pipeline, job: WorkerConfig, checks: RecheckPolicy) -> None:
        self._pipeline = pipeline
        self._job = job
        self._checks = checks
        self._check: RecheckCandidate | None = None
        self._made: list[BatchReport] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        if known_hash_seed() is not None:
            self._checks.knows_hash_order = True  # the user has fixed it
            return
        if not HAS_WORKERS:
            self._give_up("no other interpreter can be sent the pipeline on this system")

    def advance(self) -> Mismatch | None:
        """Start what is due, and look for what has come; never waits. What is returned is to be
        told.
        """
        if self._channel is None:
            if self._check is None:
                self._check = self._checks.for_other_hashes()
            if self._check is not None:
                with interrupts_deferred():  # or an interpreter might run that no object knows of
                    self._start(self._check)
            return None
        try:
            arrived = self._channel.receive_ready(1)
        except ChannelClosed:
            self._give_up("the pipeline cannot be made there")
            return None
        return self._take(*arrived[0][0]) if arrived else None

    def close(self) -> None:
        """End the interpreter."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _start(self, check: RecheckCandidate) -> None:
        try:
            frozen = self._pipeline.freeze()
            if frozen.nbytes > _MOST_BYTES:
                raise ValueError(
                    f"the pipeline has {frozen.nbytes / 2**20:.0f} MiB, more than "
                    f"{_MOST_BYTES / 2**20:.0f}"
                )
            payload = write_payload(frozen, (self._job, self._checks.request_for(check)))
            ours, theirs = Channel.pair()
            try:
                # Its imports take seconds: it is not to outlive this process by these.
                early = f"from detaug.system.processes import die_with; die_with({os.getpid()})"
                code = f"{early}; {code_of(__name__, theirs.fileno(), payload)}"
                surrounding = InterpreterOptions.here(_SEEDS[len(self._made)])
                self._process = surrounding.start(code, (theirs.fileno(), payload), quiet=True)
                self._channel = ours
            finally:
                theirs.close()
                os.close(payload)
        except (
            Exception
        ) as error:  # objects of the user's, full disks, limits: the run goes on without
            self._give_up(str(error))

    def _take(self, again: RecheckResponse, remarks: list[Remark]) -> Mismatch | None:
        assert self._check is not None
        self.close()
        if not isinstance(again.report, BatchReport):
            self._give_up(again.report.summary)
            return None
        self._made.append(again.report)
        keys = self._checks.differing(self._made[0], again.report)
        is_another_here = self._checks.differing(self._check.report, self._made[0])
        if is_another_here:
            # The program has set them, and forks have them: here is a batch that they change.
            self._pipeline.log_remarks(remarks)
        self._checks.knows_hash_order = (
            bool(keys) or not is_another_here or len(self._made) == len(_SEEDS)
        )
        return (
            self._checks.depends_on_hashes(self._check, again.report, self._made[0])
            if keys
            else None
        )

    def _give_up(self, why: str) -> None:
        self.close()
        self._checks.knows_hash_order = True
        logger.info(
            "whether batches depend on the order of sets of strings is not checked: %s", why[:500]
        )


def main(channel: int, payload: int) -> None:
    """Make the batch again, as the other interpreter."""

    def live() -> None:
        frozen, (job, request) = read_payload(payload)
        job.settings.keep()
        pristine = Pipeline.thaw(frozen)
        remarks = remarks_on_variables(pristine, job.variables)
        producer = Producer(pristine, job.branch, log_nothing, only=True)
        job.settings.renew()
        again = answer(producer, request)
        Channel.from_descriptor(channel).send((again, remarks))

    run_and_exit(live)
