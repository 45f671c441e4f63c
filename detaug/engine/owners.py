"""The owner of each stream: the worker that makes its batches.

A worker fast-forwards its copy of a stream from batch to batch, so a stream stays with its worker
as long as that worker runs. A stream moves, and its copy is then rebuilt by the new owner, in two
cases:
- Its worker is not running (not started yet, dead, or on a node that is gone), and another worker
  is idle.
- An idle worker owns fewer streams than its share, because it started later than others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable


class StreamOwners:
    """The worker of each stream, by index. Streams are first dealt out in turn to all workers.

    Args:
        num_workers: number of workers once all have started.
        stride: every `stride`-th stream is this rank's.
    """

    def __init__(self, num_workers: int, stride: int) -> None:
        self._num_workers = num_workers
        self._stride = stride
        #: Stream → index of the worker, for streams that a worker has begun.
        self._owners: dict[int, int] = {}

    def of(self, stream: int) -> int:
        """Return the index of the worker that owns a stream."""
        return self._owners.get(stream, stream // self._stride % self._num_workers)

    def move(self, stream: int, worker: int) -> None:
        """Make a worker the owner of a stream."""
        self._owners[stream] = worker

    def may_take(
        self, worker: int, stream: int, present: Collection[int], streams: Iterable[int]
    ) -> bool:
        """Return whether an idle worker should take over a stream of another worker.

        Args:
            worker: index of the idle worker.
            stream: the stream.
            present: indices of the workers that are running.
            streams: all streams of this rank.
        """
        owner = self.of(stream)
        if owner not in present:
            return True
        num_streams = Counter(self.of(other) for other in streams)
        # With a difference of one, the two workers would only exchange their numbers.
        return num_streams[worker] + 1 < num_streams[owner]
