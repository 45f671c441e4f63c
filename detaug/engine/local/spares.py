"""The helper in charge, and the spares of which one takes its place when it ends."""

from __future__ import annotations

import contextlib
import logging
import selectors
from collections.abc import Callable
from functools import partial

from detaug.engine.executor import Job
from detaug.engine.local import messages
from detaug.engine.local.handles import Helper, start_helper
from detaug.pipeline.producer import Pipeline
from detaug.processes.interpreters import Surrounding
from detaug.transport.channel import ChannelClosed

logger = logging.getLogger("detaug")

#: Helpers, and workers that have yet to start, may be killed from outside this many times in a row.
START_KILLS = 20
#: How long (seconds) a spare may take to be there, at the start. A fork of a large process takes tens of milliseconds.
_SPARE_SECONDS = 30.0
#: Told where `Helpers.replace` has no spare left.
NO_SPARE_LEFT = (
    "the helper process, from which this augmenter's workers are forked, and its spares were killed at the "
    "same time. Workers as they were at the start can no longer be made, and others might make other "
    "batches. restart() starts workers from this program as it is now, at the start of the epoch; then "
    "load_state_dict() with a state_dict() taken before goes on where it stood. With "
    "start_method='forkserver' or 'spawn' workers can be made anew at any time."
)


class Helpers:
    """Starts the helper and its spares, listens to them, and puts a spare in place of a helper that has ended.

    All of it is called by the coordinator's thread alone, or before that is started.

    Args:
        pipeline: what the workers run.
        job: what they have to know.
        start_method: of the workers.
        take: takes in what the helper says of its workers.
        lost: called when the helper has ended. It calls `bury`, and `replace` if there is to be another.

    Attributes:
        current: the helper in charge; None: there is none. After `bury` it still counts, and takes nothing any more.
        spares: those that have been asked for.
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
        self.spares: list[Helper] = []
        self._pipeline = pipeline
        self._job = job
        self._start_method = start_method
        self._take = take
        self._lost = lost
        self._surrounding = Surrounding.here()
        self._possible = True  # spares are
        self._selector: selectors.BaseSelector

    def start(self, selector: selectors.BaseSelector) -> None:
        """Start the helper, and its spares with it; `selector` is to watch them.

        Raises:
            RuntimeError, OSError: it cannot be started. Call `stop` nevertheless.
        """
        self._selector = selector
        helper = self._first()
        self._watch_spares()
        self._put_in_charge(helper)

    def stop(self) -> None:
        """End all of them, and the workers of the one in charge."""
        for helper in [self.current, *self.spares]:
            if helper is not None:
                helper.stop()
        self.spares.clear()

    def kill(self) -> None:
        """The one in charge does not answer."""
        assert self.current is not None
        logger.warning("the helper process (pid %d) does not answer and is killed", self.current.pid)
        self.current.kill()

    def bury(self) -> None:
        """The one in charge is dead: stop listening to it, and reap it."""
        assert self.current is not None
        self._unwatch(self.current)
        self.current.reap()

    def replace(self) -> bool:
        """Put another in charge: a spare; where all are gone, one like the first. False: that cannot be made any more."""
        helper = self._next()
        if helper is None:
            return False
        self._put_in_charge(helper)
        return True

    def _first(self) -> Helper:
        """The helper, and its spares with it. Nothing has changed here yet, so one that is killed is made again."""
        for _ in range(START_KILLS):
            helper = start_helper(self._start_method, self._pipeline, self._job, self._surrounding)
            self.current = helper  # `stop` ends it should anything fail
            self._ask_for_spares(helper)
            # Without "fork" a helper can be made at any time, and its spares only save time.
            if self._start_method != "fork" or self._have_spares(helper):
                return helper
            for lost in [*self.spares, helper]:
                lost.kill()
                lost.reap()
            self.current = None
            self.spares.clear()
        raise RuntimeError(
            f"the helper process, from which workers are forked, was killed {START_KILLS} times at its start"
        )

    def _have_spares(self, helper: Helper) -> bool:
        """Wait for all of them, or until it shows that there can be none."""
        for spare in list(self.spares):
            if spare.await_start(_SPARE_SECONDS):
                continue
            if not helper.is_alive():
                return False
            self.spares.remove(spare)
            spare.kill()
            spare.reap()
        return helper.pidfd is None or helper.is_alive()

    def _put_in_charge(self, helper: Helper) -> None:
        self.current = helper
        self._selector.register(helper.control, selectors.EVENT_READ, self._hear)
        if helper.pidfd is not None:
            self._selector.register(helper.pidfd, selectors.EVENT_READ, self._lost)
        self._ask_for_spares(helper)
        self._watch_spares()

    def _hear(self) -> None:
        assert self.current is not None
        try:
            arrived = self.current.control.receive_ready()
        except ChannelClosed:
            self._lost()
            return
        for message, _ in arrived:
            if isinstance(message, messages.NoSpares):
                self._possible = False
            else:
                self._take(message)

    def _next(self) -> Helper | None:
        for spare in list(self.spares):
            if spare.is_alive():
                self._unwatch(spare)
                self.spares.remove(spare)
                return spare
            self._drop(spare)
        if self._start_method != "fork":
            return start_helper(self._start_method, self._pipeline, self._job, self._surrounding)
        # By now the program has gone on: what it would fork has other globals, threads, locks, perhaps a CUDA context.
        return None

    # --- spares

    def _ask_for_spares(self, helper: Helper) -> None:
        for detached in (False, True):
            if self._possible and not any(spare.detached == detached for spare in self.spares):
                spare = helper.fork_spare(detached)
                if spare is not None:
                    self.spares.append(spare)

    def _watch_spares(self) -> None:
        for spare in self.spares:
            for number in (spare.control.fileno(), spare.pidfd):
                if number is not None and number not in self._selector.get_map():
                    self._selector.register(number, selectors.EVENT_READ, partial(self._hear_spare, spare))

    def _hear_spare(self, spare: Helper) -> None:
        """It says that it is there; or its end of the channel, or itself, is gone."""
        if not spare.pid and spare.await_start(0.0):
            self._watch_spares()
            return
        self._drop(spare)
        if self.current is not None:
            with contextlib.suppress(OSError):  # no descriptors just now, which is no reason to end
                self._ask_for_spares(self.current)
                self._watch_spares()

    def _drop(self, spare: Helper) -> None:
        self._unwatch(spare)
        self.spares.remove(spare)
        spare.kill()
        spare.reap()

    def _unwatch(self, helper: Helper) -> None:
        for number in (helper.control.fileno(), helper.pidfd):
            if number is not None and number in self._selector.get_map():
                self._selector.unregister(number)
