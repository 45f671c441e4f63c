"""Which worker makes the batches of which stream.

A worker's copy of a stream is stepped forward from batch to batch, so a stream stays with its
worker as long as that runs. It moves in two cases, and is then rebuilt: its worker is not there
(it has not come yet, has died, or its node is gone) and another one has nothing to do; or a worker
that has nothing to do owns fewer streams than its share, because it came later than others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable


class StreamOwners:
    """The worker of each stream, by the workers' indices.

    At first every worker owns as many streams, in turn, as if all workers were there.

    Args:
        num_workers: How many workers there are to be.
        stride: Every `stride`-th stream is this rank's.
    """

    def __init__(self, num_workers: int, stride: int) -> None:
        self._num_workers = num_workers
        self._stride = stride
        #: Of the streams that a worker has begun.
        self._owners: dict[int, int] = {}

    def of(self, stream: int) -> int:
        """Return the index of the worker that owns a stream."""
        return self._owners.get(stream, stream // self._stride % self._num_workers)

    def move(self, stream: int, worker: int) -> None:
        """Let a worker own the stream from now on."""
        self._owners[stream] = worker

    def may_take(
        self, worker: int, stream: int, present: Collection[int], streams: Iterable[int]
    ) -> bool:
        """Return whether a worker that has nothing to do is to take this stream over.

        Args:
            worker: Index of the worker.
            stream: The stream, which is another worker's.
            present: Indices of the workers that are there.
            streams: All streams of this rank.
        """
        owner = self.of(stream)
        if owner not in present:
            return True
        num_streams = Counter(self.of(other) for other in streams)
        # With a difference of one, it would only change who has less.
        return num_streams[worker] + 1 < num_streams[owner]
