"""What the parent, its helper and the workers say to each other.

    parent → helper    Start, Signal, Quit                   helper → parent    Started, Exited, Signalled, CannotStart
    parent → worker    Make; MakeAgain, Explain              worker → parent    Ready, Broken, Log, Retiring; a CheckedBatch,
                       (detaug.engine.checking.making)                          which may be made again; Checked;
                                                                                for each Make an Answer, in their order

Standard library only: a helper for "spawn" starts in milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from detaug.engine.checking.making import Answer as AnswerToCheck
    from detaug.engine.checking.making import CheckedBatch
    from detaug.engine.failures import ErrorRecord
    from detaug.pipeline.loader_states import LoaderState
    from detaug.transport.slots import SlotContents


# --- to the helper


class Quit(NamedTuple):
    """End."""


class Start(NamedTuple):
    """Start a worker; with the worker's end of its channel."""

    number: int


class Signal(NamedTuple):
    """Send a worker a signal."""

    number: int
    which: int


# --- from the helper


class Started(NamedTuple):
    """A worker runs."""

    number: int
    pid: int


class Exited(NamedTuple):
    """A worker has ended. `peak`: the most memory it had, in bytes; `seconds`: of processor time, those of its start included."""

    number: int
    exitcode: int
    peak: int
    seconds: float


class Signalled(NamedTuple):
    """The worker was sent its signal, so it is not the helper that hangs."""

    number: int


class CannotStart(NamedTuple):
    """A worker could not be started."""

    number: int
    why: str


# --- to a worker


class Make(NamedTuple):
    """Make a batch; a probe only asks whether there is one.

    Attributes:
        given_back, dropped: slots to be filled again, and slots that are not needed any more.
        state: of the stream's loader, ahead of its first task.
        place: which of the workers it is, 0 ... num_processes-1.
    """

    epoch: int
    step: int
    probe: bool
    given_back: Sequence[int]
    dropped: Sequence[int]
    state: LoaderState | None
    place: int


# --- from a worker


class Ready(NamedTuple):
    """It has set itself up; with the descriptor of `whereabouts`."""

    pid: int


class Broken(NamedTuple):
    """It could not."""

    record: ErrorRecord


class Log(NamedTuple):
    """Something that the user should know."""

    text: str


class Retiring(NamedTuple):
    """It has that many bytes of private memory, and makes nothing more."""

    private: int


class Checked(NamedTuple):
    """The answer to `MakeAgain` or `Explain`, and the seconds that it took; 0 from a process that was forked for it, for what
    that takes is known when it has ended."""

    answer: AnswerToCheck
    seconds: float


# --- answers to `Make`; `state` is that of the stream's loader afterwards, now and then


class InSlot(NamedTuple):
    """The batch lies in shared memory; with a descriptor if the slot is new."""

    contents: SlotContents
    state: LoaderState | None


class Inline(NamedTuple):
    """The batch itself, which is small."""

    pickled: bytes
    buffers: list[bytes]
    state: LoaderState | None


class Exists(NamedTuple):
    """There is such a batch."""

    state: LoaderState | None


class Ended(NamedTuple):
    """There is none: its stream has ended before."""

    state: None = None


class Raised(NamedTuple):
    """The loader or the transform has raised."""

    record: ErrorRecord
    state: None = None


Answer = InSlot | Inline | Exists | Ended | Raised
FromHelper = Started | Exited | Signalled | CannotStart
if TYPE_CHECKING:
    FromWorker = Ready | Broken | Log | Retiring | CheckedBatch | Checked | Answer
