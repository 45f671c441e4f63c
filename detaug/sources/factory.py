"""A callable that makes the loader, in each process that makes batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detaug.seeding.current import Current
from detaug.sources.base import Source

#: What follows from the loader alone.
_FACTS = (
    *("stateless", "pass_per_epoch", "restarts", "endless", "streams_share_data", "default_num_streams"),
    *("num_steps", "length_hint"),
)


class LoaderFactory(Source):
    """A callable that makes a loader. Each process that makes batches calls it for itself (`detaug.purity.pristine`), so that
    open files, sockets and threads begin where they are used.

    Args:
        make_loader: the callable.
        resolve: gives the source of what it made.
        seen: what it made to be looked at, which goes to no other process and lives until `forget`.
    """

    def __init__(self, make_loader: Callable[[], Any], resolve: Callable[[Any], Source], seen: Source) -> None:
        self.loader = make_loader
        self._resolve = resolve
        self._seen = seen.loader
        for name in _FACTS:
            setattr(self, name, getattr(seen, name))
        self._keeps_states, self._class_name = seen.keeps_states, seen.class_name
        self._goes_on = []
        for seen.batches_per_epoch in (None, 1):
            self._goes_on.append(seen.goes_on)

    @property
    def seen(self) -> Any:
        return self._seen

    @property
    def class_name(self) -> str:
        return self._class_name

    @property
    def goes_on(self) -> bool:
        return self._goes_on[self.batches_per_epoch is not None]

    @property
    def keeps_states(self) -> bool:
        return self._keeps_states

    def made(self) -> Source:
        source = self._resolve(self.loader())
        source.batches_per_epoch = self.batches_per_epoch
        return source

    def forget(self) -> None:
        self._seen = None

    def make(self, batch: Current) -> Any:
        raise NotImplementedError("made() gives the source that makes batches")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_seen": None}
