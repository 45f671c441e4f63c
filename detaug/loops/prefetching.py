"""`prefetch_to`: a loader whose batches are copied to the GPU while the step before still runs.

loader → batch n + 1 → pinned memory → copy on a stream of its own, then an event
                                              │
loop   ← batch n, once the loop's stream waits for that batch's event
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only


def prefetch_to(loader: Iterable[Any], device: torch.device | str) -> Prefetched:
    """A loader's batches, their tensors on a device.

    Args:
        loader: any; `state_dict`, `load_state_dict`, `set_epoch` and ``len`` are passed on to it.
        device: of a CUDA device the copies overlap with the loop's work, and one batch more than
            the loop has is there. For any other, each tensor is moved when its batch is asked for.
    """
    return Prefetched(loader, torch.device(device))


class Prefetched:
    """See `prefetch_to`. Tensors in dicts, lists and tuples are moved, all else is passed on."""

    def __init__(self, loader: Any, device: torch.device) -> None:
        self.loader = loader
        self.device = device
        self._state: Any = None  # the loader's, behind the batch that the loop has

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        if self.device.type == "cuda":
            return self._overlapped(batches)
        return (
            tree_map_only(torch.Tensor, lambda tensor: tensor.to(self.device), batch)
            for batch in batches
        )

    def _overlapped(self, batches: Iterator[Any]) -> Iterator[Any]:
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        ahead: tuple[Any, torch.cuda.Event, Any] | None = None
        saves = hasattr(self.loader, "state_dict")
        for batch in batches:
            state = self.loader.state_dict() if saves else None
            with torch.cuda.stream(stream):
                # Pinned memory is torch's, which keeps it until the copy is over.
                copied = tree_map_only(torch.Tensor, self._copy, batch)
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record(stream)
            if ahead is not None:
                yield self._arrived(*ahead)
            ahead = copied, event, state
        if ahead is not None:
            yield self._arrived(*ahead)
        self._state = None

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        pinned = (
            tensor if tensor.device.type != "cpu" or tensor.is_pinned() else tensor.pin_memory()
        )
        return pinned.to(self.device, non_blocking=True)

    def _arrived(self, batch: Any, event: torch.cuda.Event, state: Any) -> Any:
        here = torch.cuda.current_stream(self.device)
        here.wait_event(event)
        self._state = state
        for each in tree_leaves(batch):
            if isinstance(each, torch.Tensor):
                each.record_stream(
                    here
                )  # its memory is not used again before the loop's work on it is over
        return batch

    def state_dict(self) -> Any:
        """The loader's, behind the batch that the loop was given last."""
        return self.loader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state: Any) -> None:
        """The loader's own."""
        self._state = None
        self.loader.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """The loader's own."""
        self.loader.set_epoch(epoch)
