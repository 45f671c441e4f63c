"""Following a batch line by line, with a digest of every variable, to find the first line at which two runs diverge."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from detaug.verification.trials.values import attributes_of, digest
from detaug.watching.interception import Site, is_machinery, is_standard_library, module_of, site_of

#: Traced no further than this: a loop over voxels in Python would take too long.
_MAX_EVENTS = 60_000
_MAX_SECONDS = 30.0

#: Libraries whose inside is not followed; the line that calls them is the one that is named.
_NOT_FOLLOWED = frozenset(
    {"numpy", "torch", "scipy", "numba", "llvmlite", "cloudpickle", "skimage", "xxhash", "_pytest"}
)

_RETURNED = "its return value"


@dataclass(frozen=True)
class Event:
    """A line that is about to run, a function that is entered, or one that returns.

    Attributes:
        file, line: where.
        function: its qualified name.
        owner: the class of its `self`, or "".
        kind: "call", "line" or "return".
        before: the line that ran before it in the same call of the same function; 0 for "call".
        given: for "call", the line of the pipeline's own code that calls, and the names of the parameters.
        values: digests of the variables that have changed since; of all, for "call".
    """

    file: str
    line: int
    function: str
    owner: str
    kind: str
    before: int
    values: dict[str, str]
    given: tuple[Site, frozenset[str]] | None = None


@dataclass(frozen=True)
class Divergence:
    """Where two runs diverge.

    Attributes:
        site: the line whose outcome differs; for arguments that differ, the line that passes them; for what else differed
            on entry to a function, where that begins.
        function: in which function.
        names: the variables that differ.
        on_entry: the function was entered with them; nothing that was followed made the difference.
    """

    site: Site
    function: str
    names: list[str]
    on_entry: bool


def is_followed(frame: FrameType) -> bool:
    """Whether it runs the pipeline's own code."""
    module = module_of(frame)
    return not (is_machinery(module) or is_standard_library(module) or module.partition(".")[0] in _NOT_FOLLOWED)


def _unlimited() -> None:
    """There is time enough."""


class LineRecorder:
    """Follows what runs inside `following`.

    Args:
        names: only these variables (attributes, variables of modules), in functions that name them; empty: all.
        check_time: called at every call and line; may raise to stop.
    """

    def __init__(self, names: frozenset[str] = frozenset(), check_time: Callable[[], None] = _unlimited) -> None:
        self.names = names
        self.check_time = check_time
        self.events: list[Event] = []
        self._until = time.monotonic() + _MAX_SECONDS

    @contextmanager
    def following(self) -> Iterator[None]:
        """Inside, in this thread, the pipeline's lines are recorded."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not is_followed(frame):
            return None
        self.check_time()
        if frame.f_code.co_name in ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>"):
            return None  # the line that holds them says enough
        code = frame.f_code
        if self.names and self.names.isdisjoint([*code.co_names, *code.co_varnames, *code.co_freevars]):
            return None
        if len(self.events) >= _MAX_EVENTS or time.monotonic() > self._until:
            return None
        return _Call(self, frame).trace


class _Call:
    """One call of a function, being followed."""

    def __init__(self, recorder: LineRecorder, frame: FrameType) -> None:
        self._recorder = recorder
        code = frame.f_code
        self._file = code.co_filename
        self._function = code.co_qualname
        owner = frame.f_locals.get("self")
        self._owner = "" if owner is None else type(owner).__qualname__
        self._names = code.co_names
        self._globals = [name for name in code.co_names if _is_data(frame.f_globals.get(name))]
        self._values = self._digests(frame)
        self._before = 0
        self._record(frame.f_lineno, "call", self._values, _passed_by(frame))

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event not in ("line", "return") or len(self._recorder.events) >= _MAX_EVENTS:
            return self.trace
        self._recorder.check_time()
        now = self._digests(frame)
        changed = {name: code for name, code in now.items() if self._values.get(name) != code}
        self._values = now
        if event == "return":
            changed[_RETURNED] = digest(argument)
        self._record(frame.f_lineno, event, changed)
        self._before = frame.f_lineno
        return self.trace

    def _record(self, line: int, kind: str, values: dict[str, str], given: Any = None) -> None:
        event = Event(self._file, line, self._function, self._owner, kind, self._before, values, given)
        self._recorder.events.append(event)

    def _digests(self, frame: FrameType) -> dict[str, str]:
        only = self._recorder.names
        if only:
            owner = frame.f_locals.get("self")
            found = {f"self.{name}": digest(getattr(owner, name)) for name in only if _has(owner, name)}
            for name in sorted(only):
                if name in self._globals:
                    found[f"the module's {name}"] = digest(frame.f_globals[name])
                if name in frame.f_locals:
                    found[name] = digest(frame.f_locals[name])
                for other in self._names:
                    held = frame.f_globals.get(other)
                    attributes = getattr(held, "__dict__", {})
                    if name in attributes and not isinstance(held, (ModuleType, type)):
                        keeper = held if isinstance(held, FunctionType) else type(held)
                        found[f"{keeper.__qualname__}.{name}"] = digest(attributes[name])
            return found
        found = {}
        for name, value in list(frame.f_locals.items()):
            if name == "self":
                found.update({f"self.{key}": digest(item, 2) for key, item in attributes_of(value).items()})
                found.update({f"self.{key}": digest(item) for key, item in self._of_the_class(value)})
            else:
                found[name] = digest(value)
        for name in self._globals:
            found[f"the module's {name}"] = digest(frame.f_globals.get(name))
        return found

    def _of_the_class(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Attributes of its class that this function names."""
        for name in self._names:
            if name not in getattr(value, "__dict__", {}) and _is_data(getattr(type(value), name, None)):
                yield name, getattr(type(value), name)


def _passed_by(frame: FrameType) -> tuple[Site, frozenset[str]] | None:
    caller = frame.f_back
    if caller is None or not is_followed(caller):
        return None
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return site_of(caller), frozenset(code.co_varnames[:count])


def _has(owner: Any, name: str) -> bool:
    return name in attributes_of(owner) or _is_data(getattr(type(owner), name, None))


def _is_data(value: Any) -> bool:
    return (
        value is not None
        and not callable(value)
        and not isinstance(value, (ModuleType, FunctionType, type, property, MemberDescriptorType))
    )


def divergence_of(first: list[Event], second: list[Event]) -> Divergence | None:
    """The first place at which two runs are not the same; None where none was seen."""
    last = None
    for here, there in zip(first, second, strict=False):
        if (here.file, here.function) != (there.file, there.function):
            last = last or here
            return Divergence(Site(last.file, last.line), last.function, [], False)
        last = here
        if (here.kind, here.line) != (there.kind, there.line):
            return Divergence(Site(here.file, here.before or here.line), here.function, [], False)
        if here.values != there.values:
            names = sorted(
                name for name in {*here.values, *there.values} if here.values.get(name) != there.values.get(name)
            )
            if here.given is not None and here.given[1].issuperset(names):
                return Divergence(here.given[0], here.function, [], False)
            on_entry = here.kind == "call"
            # At a return, `before` is the return statement itself, unless the function ran off its end.
            line = here.line if here.kind != "line" else here.before
            return Divergence(Site(here.file, line or here.line), here.function, names, on_entry)
    return None


def line_that_changes(
    events: list[Event], name: str, owner: str = "", file: str = "", function: str = ""
) -> Site | None:
    """The last line after which that variable was another one, in methods of class `owner`, functions of `file`, or this
    function alone."""
    for event in reversed(events):
        if event.kind == "call" or name not in event.values:
            continue
        here = (not owner or event.owner == owner) and (not file or event.file == file)
        if here and (not function or event.function.rpartition(".")[2] == function.rpartition(".")[2]):
            return Site(event.file, event.before or event.line)
    return None
