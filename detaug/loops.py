"""`prefetch_to`: a loader whose batches are copied to the GPU while the step before still runs.

loader → batch n + 1 → pinned memory → copy on a separate CUDA stream, then an event
                                              │
loop   ← batch n, once the loop's CUDA stream waits for that batch's event
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

__all__ = ["prefetch_to"]


def prefetch_to(loader: Iterable[Any], device: torch.device | str) -> Prefetched:
    """Return a loader with the same batches, their tensors on a device.

    Args:
        loader: any iterable of batches. `state_dict`, `load_state_dict`, `set_epoch` and ``len`` of
            the result call the loader's.
        device: for a CUDA device, copies run at the same time as the loop's work, and one more
            batch than the loop has is on the device. For any other device, tensors are copied when
            their batch is requested.
    """
    return Prefetched(loader, torch.device(device))


class _Copy(NamedTuple):
    """A batch whose copy to the device has been started.

    Attributes:
        batch: the batch, with tensors of the device.
        event: recorded after the copy, in its CUDA stream.
        state: the loader's state after the batch; None: it has none.
    """

    batch: Any
    event: torch.cuda.Event
    state: Any


class Prefetched:
    """A loader whose batches are on a device; see `prefetch_to`.

    Tensors in dicts, lists and tuples are copied; other values are returned unchanged.
    """

    def __init__(self, loader: Any, device: torch.device) -> None:
        self.loader = loader
        self.device = device
        #: The loader's state after the batch that the loop has; None: the loader's current state.
        self._state: Any = None

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        # Not by a generator: the loader's pass begins with this call.
        batches = iter(self.loader)
        if self.device.type == "cuda":
            return self._copied_ahead(batches)
        return (self._copied_now(batch) for batch in batches)

    def _copied_now(self, batch: Any) -> Any:
        """Return a batch with its tensors on the device."""
        return tree_map_only(torch.Tensor, self._move_tensor, batch)

    def _move_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.device)

    def _copied_ahead(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield each batch after the copy of the next one was started."""
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        pending: _Copy | None = None
        has_state = hasattr(self.loader, "state_dict")
        # Only one batch ahead: another would take GPU memory that the training step may need.
        for batch in batches:
            # Now: the loader will be one batch further when the loop gets this one.
            state = None
            if has_state:
                state = self.loader.state_dict()
            with torch.cuda.stream(stream):
                # torch keeps the pinned memory until the copy has finished.
                copied = tree_map_only(torch.Tensor, self._start_copy, batch)
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record(stream)
            if pending is not None:
                yield self._await_copy(pending)
            pending = _Copy(copied, event, state)
        if pending is not None:
            yield self._await_copy(pending)
        self._state = None

    def _start_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the device whose copy is in the current stream's queue."""
        if tensor.device.type == "cpu" and not tensor.is_pinned():
            # A copy from pageable memory would block this thread.
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def _await_copy(self, copy: _Copy) -> Any:
        """Return a batch, after telling the loop's stream to wait for its copy."""
        loop_stream = torch.cuda.current_stream(self.device)
        loop_stream.wait_event(copy.event)
        self._state = copy.state
        for leaf in tree_leaves(copy.batch):
            if isinstance(leaf, torch.Tensor):
                # Otherwise the copies' stream would reuse the memory as soon as the loop drops the
                # tensor, although the loop's kernels may still read it.
                leaf.record_stream(loop_stream)
        return copy.batch

    def state_dict(self) -> Any:
        """Return the loader's state after the last batch that the loop got."""
        if self._state is None:
            return self.loader.state_dict()
        return self._state

    def load_state_dict(self, state: Any) -> None:
        """Load the loader's state."""
        # Otherwise `state_dict` would return the earlier pass's state until the next batch.
        self._state = None
        self.loader.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Call the loader's `set_epoch`."""
        self.loader.set_epoch(epoch)
