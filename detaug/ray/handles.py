"""What the driver knows of its actors, and the memory that their answers lie in."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from detaug.engine.order.outcomes import Task
from detaug.memory.blocks import Bytes
from detaug.ray.nodes import NodeReport

#: Buffers from this size (bytes) on are used where they lie.
_MAPPED = 65_536


@dataclass
class Actor:
    """An actor as the driver knows it.

    Attributes:
        number: never used twice.
        index: stream-bound streams belong to it.
        handle: Ray's.
        started: when it was asked for.
        report: from its process; None: it is not there yet.
        calls: the task of each call that is under way, by ticket, in the order in which they were made.
        since: when the first of them was begun, as far as its answers tell.
        told: the generation of loader states that each stream was told of.
        leaving: why it is being killed; empty: it is not.
    """

    number: int
    index: int
    handle: Any
    started: float
    report: NodeReport | None = None
    calls: dict[int, Task] = field(default_factory=dict)
    since: float = 0.0
    told: dict[int, int] = field(default_factory=dict)
    leaving: str = ""

    @property
    def name(self) -> str:
        """For messages."""
        where = "" if self.report is None else f" (pid {self.report.pid}) on node {self.report.name}"
        return f"actor {self.index}{where}"


@dataclass(frozen=True)
class Event:
    """What an actor has answered, or that it will not: `result` gives the one or raises the other."""

    actor: Actor
    take: Callable[[Actor, Any], None]
    lost: Callable[[Actor, BaseException], None]
    result: Callable[[], Any]


def writable(buffer: Bytes) -> Bytes:
    """The same bytes, to be written to. Ray maps its store for writing and marks arrays read-only, for others may read them;
    nobody else reads an answer."""
    if buffer.nbytes < _MAPPED:
        return buffer.copy()
    room = (ctypes.c_ubyte * buffer.nbytes).from_address(buffer.ctypes.data)
    room.owner = buffer  # type: ignore[attr-defined]  # which keeps the memory
    writable: Bytes = np.frombuffer(room, np.uint8)  # type: ignore[call-overload]
    return writable


def is_alive(pid: int) -> bool:
    """Whether this node has such a process."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def plain(text: str) -> str:
    """Of an error of Ray's, without colours."""
    return re.sub("\x1b\\[[0-9;]*m", "", text).strip()


def first_line(text: str) -> str:
    """Of an error of Ray's, which goes on for pages."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
