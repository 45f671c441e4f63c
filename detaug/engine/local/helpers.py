"""The helper in charge, and another in its place where there can be one."""

from __future__ import annotations

import logging
import selectors
from collections.abc import Callable

from detaug.engine.executor import Job
from detaug.engine.local import messages
from detaug.engine.local.handles import Helper, start_helper
from detaug.pipeline.producer import Pipeline
from detaug.processes.interpreters import Surrounding
from detaug.transport.channel import ChannelClosed

logger = logging.getLogger("detaug")

#: Helpers, and workers that have yet to start, may be killed from outside this many times in a row.
START_KILLS = 20
#: Told where `Helpers.replace` can make no other.
NO_HELPER = (
    "the helper process, from which this augmenter's workers are forked, was killed. Workers as they were at the "
    "start can no longer be made, and others might make other batches. restart() starts workers from this program "
    "as it is now, at the start of the epoch; then load_state_dict() with a state_dict() taken before goes on where "
    "it stood. With LocalProcesses(start_method='forkserver') or 'spawn' workers can be made anew at any time."
)


class Helpers:
    """Starts the helper, listens to it, and puts another in the place of one that has ended.

    All of it is called by the coordinator's thread alone, or before that is started.

    Args:
        pipeline: what the workers run.
        job: what they have to know.
        start_method: of the workers.
        take: takes in what the helper says of its workers.
        lost: called when the helper has ended. It calls `bury`, and `replace` if there is to be another.

    Attributes:
        current: the helper in charge; None: there is none. After `bury` it still counts, and takes nothing any more.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        job: Job,
        start_method: str,
        take: Callable[[messages.FromHelper], None],
        lost: Callable[[], None],
    ) -> None:
        self.current: Helper | None = None
        self._pipeline = pipeline
        self._job = job
        self._start_method = start_method
        self._take = take
        self._lost = lost
        self._surrounding = Surrounding.here()
        self._selector: selectors.BaseSelector

    def start(self, selector: selectors.BaseSelector) -> None:
        """Start the helper; `selector` is to watch it.

        Raises:
            RuntimeError, OSError: it cannot be started. Call `stop` nevertheless.
        """
        self._selector = selector
        self._put_in_charge()

    def stop(self) -> None:
        """End it and its workers."""
        if self.current is not None:
            self.current.stop()

    def kill(self) -> None:
        """It does not answer."""
        assert self.current is not None
        logger.warning("the helper process (pid %d) does not answer and is killed", self.current.pid)
        self.current.kill()

    def bury(self) -> None:
        """It is dead: stop listening to it, and reap it."""
        helper = self.current
        assert helper is not None
        for number in (helper.control.fileno(), helper.pidfd):
            if number is not None and number in self._selector.get_map():
                self._selector.unregister(number)
        helper.reap()

    def replace(self) -> bool:
        """Put another in charge. False: it would be another kind of helper. By now the program has gone on: what it would fork
        has other globals, threads, locks, perhaps a CUDA context."""
        if self._start_method == "fork":
            return False
        self._put_in_charge()
        return True

    def _put_in_charge(self) -> None:
        helper = self.current = start_helper(self._start_method, self._pipeline, self._job, self._surrounding)
        self._selector.register(helper.control, selectors.EVENT_READ, self._hear)
        if helper.pidfd is not None:
            self._selector.register(helper.pidfd, selectors.EVENT_READ, self._lost)

    def _hear(self) -> None:
        assert self.current is not None
        try:
            arrived = self.current.control.receive_ready()
        except ChannelClosed:
            self._lost()
            return
        for message, _ in arrived:
            self._take(message)
