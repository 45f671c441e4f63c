"""The check under other hash seeds: batches may depend on a set's order, or on ``hash(text)``.

All forks of a program hash strings alike, so no worker can show it. One batch is therefore made
again in a fresh interpreter with another PYTHONHASHSEED, in the background. If it differs there,
the cause may be something else that a fresh interpreter lacks, such as a variable of a module that
the program has set. The batch is therefore made in further interpreters, which differ from the
first in nothing but their hash seeds, and a mismatch is reported if these differ from each other.

The first hash seed is the same in every run: of two runs whose batches differ, at least one differs
from it.
"""

from __future__ import annotations

import logging
import os
import subprocess

from detaug.engine.recheck.mismatch import Mismatch
from detaug.engine.recheck.policy import RecheckPolicy
from detaug.engine.recheck.requests import RecheckCandidate, RecheckResponse, handle_request
from detaug.engine.worker_config import WorkerConfig
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
#: Bytes. A larger pipeline is not sent.
_MOST_BYTES = 2**28
#: Characters of a reason that are logged.
_MOST_CHARACTERS = 500


class HashOrder:
    """The interpreters with other hash seeds, one at a time.

    Args:
        pipeline: the source and the transform.
        config: the configuration of the processes that make batches.
        policy: chooses the batch, and takes in the result.
    """

    def __init__(self, pipeline: Pipeline, config: WorkerConfig, policy: RecheckPolicy) -> None:
        self._pipeline = pipeline
        self._config = config
        self._policy = policy
        self._candidate: RecheckCandidate | None = None
        #: The reports of the interpreters so far.
        self._reports: list[BatchReport] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        if known_hash_seed() is not None:
            # The user has set PYTHONHASHSEED, so all runs have the same one.
            self._policy.knows_hash_order = True
            return
        if not HAS_WORKERS:
            self._give_up("no other interpreter can be sent the pipeline on this system")

    def advance(self) -> Mismatch | None:
        """Start an interpreter that is due, or read its response, and return a mismatch if known.

        It never waits.
        """
        if self._channel is None:
            self._start_if_due()
            return None
        try:
            messages = self._channel.receive_ready(1)
        except ChannelClosed:
            self._give_up("the pipeline cannot be made there")
            return None
        if not messages:
            return None
        (response, remarks), _ = messages[0]
        return self._take_response(response, remarks)

    def close(self) -> None:
        """End the interpreter, if one is running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _start_if_due(self) -> None:
        if self._candidate is None:
            self._candidate = self._policy.for_other_hashes()
        if self._candidate is not None:
            # An interrupt between the start of the interpreter and the assignment of `_process`
            # would leave a process that `close` does not end.
            with interrupts_deferred():
                self._start(self._candidate)

    def _start(self, candidate: RecheckCandidate) -> None:
        """Start the next interpreter, which makes the batch."""
        try:
            frozen = self._pipeline.freeze()
            if frozen.nbytes > _MOST_BYTES:
                raise ValueError(
                    f"the pipeline has {frozen.nbytes / 2**20:.0f} MiB, more than "
                    f"{_MOST_BYTES / 2**20:.0f}"
                )
            payload = write_payload(frozen, (self._config, self._policy.request_for(candidate)))
            parent_end, child_end = Channel.pair()
            try:
                # Before the imports, which take seconds: without it the interpreter would run that
                # long after this process has ended.
                early = f"from detaug.system.processes import die_with; die_with({os.getpid()})"
                code = f"{early}; {code_of(__name__, child_end.fileno(), payload)}"
                options = InterpreterOptions.here(_SEEDS[len(self._reports)])
                self._process = options.start(code, (child_end.fileno(), payload), quiet=True)
                self._channel = parent_end
            finally:
                child_end.close()
                os.close(payload)
        except Exception as error:
            # Objects of the user's that cannot be pickled, full disks, limits: the run continues
            # without this check.
            self._give_up(str(error))

    def _take_response(self, response: RecheckResponse, remarks: list[Remark]) -> Mismatch | None:
        """Compare the interpreter's batch with those of the program and the first interpreter."""
        assert self._candidate is not None
        self.close()
        report = response.report
        if not isinstance(report, BatchReport):
            self._give_up(report.summary)
            return None
        self._reports.append(report)
        first = self._reports[0]
        keys = self._policy.differing(first, report)
        differs_from_program = bool(self._policy.differing(self._candidate.report, first))
        if differs_from_program:
            # The remarks are about variables that the program has set and forks inherit. Here is a
            # batch that may depend on them.
            self._pipeline.log_remarks(remarks)
        is_last = len(self._reports) == len(_SEEDS)
        self._policy.knows_hash_order = bool(keys) or not differs_from_program or is_last
        if not keys:
            return None
        return self._policy.hash_mismatch(self._candidate, report, first)

    def _give_up(self, reason: str) -> None:
        """Make no further checks under other hash seeds."""
        self.close()
        self._policy.knows_hash_order = True
        logger.info(
            "it is not checked whether batches depend on the order of sets of strings: %s",
            reason[:_MOST_CHARACTERS],
        )


def main(channel: int, payload: int) -> None:
    """Run the other interpreter: remake the batch, and send the report on it.

    Args:
        channel: descriptor of the channel to the parent.
        payload: descriptor from which the pipeline and the request are read.
    """

    def run() -> None:
        frozen, (config, request) = read_payload(payload)
        config.settings.keep()
        pristine = Pipeline.thaw(frozen)
        remarks = remarks_on_variables(pristine, config.variables)
        producer = Producer(pristine, config.branch, log_nothing, owns_pipeline=True)
        config.settings.renew()
        response = handle_request(producer, request)
        Channel.from_descriptor(channel).send((response, remarks))

    run_and_exit(run)
