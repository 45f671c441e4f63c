"""Comparisons of values that batches may depend on and that no declared parameter shows.

There are two kinds: attributes, as the constructors have left them (a fitted table, an order that
was drawn), and variables of the user's modules and classes, as far as the pipeline's code reads
them. If they differ, batches may, and nothing else would show it. A state dict carries them as
short texts, and a warning names what differs in the program that loads it, in fresh interpreters,
and, of variables, at the start of an epoch, at a replay and at a restart. A state dict also carries
settings of torch and MONAI that batches are made with.

Variables that the pipeline writes itself are left out: they are for the run-time check. What else
is left out stands in `detaug.pipeline.undeclared_values`. Paths of files differ from machine to
machine, and are logged at level INFO.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

from detaug.objects.differences import differences
from detaug.objects.of_this_process import names_the_job
from detaug.objects.variables import PipelineCode
from detaug.pipeline.copying.pipeline_snapshot import PipelineSnapshot
from detaug.pipeline.set_attributes import Settings
from detaug.pipeline.undeclared_values import (
    attributes_of_pipeline,
    code_of,
    is_path,
    variables_in,
    without_folders,
)
from detaug.system.escaping import printable
from detaug.system.process_settings import settings_of_a_run

#: How many differences one message names.
_MOST_NAMED = 8
#: Variables that some pipeline has written in this process while it made a batch. One set for all
#: pipelines, because they share the variables of the program's modules.
_written: set[str] = set()


class Remark(NamedTuple):
    """A message for the user.

    Attributes:
        text: the message.
        level: as `logging` has it.
    """

    text: str
    level: int


class Undeclared:
    """The values of one pipeline, as they were when it was taken and when it started.

    Args:
        pristine: the pipeline.
    """

    def __init__(self, pristine: PipelineSnapshot) -> None:
        self._pristine = pristine
        self._at_start: dict[str, str] | None = None
        #: Attributes that only the program sets, as they were then.
        self._set_at_start: Settings | None = None
        self._settings: dict[str, str] = {}
        self._saved: dict[str, str] = {}
        self._epoch: int | None = None
        self._num_batches = 0
        self._num_makings = 0
        self._reported: set[str] = set()

    @cached_property
    def code(self) -> PipelineCode:
        """The pipeline's."""
        return code_of(self._pristine)

    def succeed(self, earlier: Undeclared) -> None:
        """Compare with the variables that this augmenter's earlier pipeline was started with."""
        self._at_start = earlier._at_start
        self._reported = earlier._reported

    # --- comparisons, which return messages for the user

    def on_start(self, epoch: int) -> list[Remark]:
        """Take the variables as they are now: workers are about to start with them."""
        now = variables_in(self.code)
        # Before `_at_start` is replaced: after a restart it has the earlier workers' values.
        remarks = self._on_change(now)
        self._at_start = now
        self._set_at_start = Settings(self._pristine)
        self._settings = settings_of_a_run()
        self._epoch = epoch
        self._num_batches = 0
        return [*remarks, *self._on_saved()]

    def on_batch(self, epoch: int) -> list[Remark]:
        """Compare the variables at the start of an epoch.

        An epoch may never end: they are also compared at its second, fourth, eighth ... batch.
        """
        self._num_batches += 1
        is_new_epoch = epoch != self._epoch
        if not is_new_epoch and not _is_looked_at(self._num_batches):
            return []
        if self._num_batches == 1 and not is_new_epoch:
            # The workers have just started.
            return []
        self._epoch = epoch
        return [*self._on_change(variables_in(self.code)), *self._on_set()]

    def on_replay(self, epoch: int) -> list[Remark]:
        """Compare the variables with those that the run's batches were made with."""
        if self._at_start is None:
            return self.on_start(epoch)
        return self._on_change(variables_in(self.code))

    def on_load(self, lines: Iterable[str]) -> list[Remark]:
        """Compare the values with those of a state dict: now, or when the pipeline starts."""
        self._saved = {}
        for line in lines:
            path, _, text = line.partition(" = ")
            self._saved[path] = text
        if self._at_start is None:
            return []
        return self._on_saved()

    @contextmanager
    def making_here(self) -> Iterator[None]:
        """Inside, this process makes a batch: a variable that changes is the pipeline's own."""
        self._num_makings += 1
        # Not for every batch: two walks through the variables may take longer than a small batch.
        if not _is_looked_at(self._num_makings):
            yield
            return
        before = variables_in(self.code)
        try:
            yield
        finally:
            for path, _, _ in differences(before, variables_in(self.code)):
                _written.add(_variable_of(path))

    # --- values

    @cached_property
    def attributes(self) -> dict[str, str]:
        """The attributes as the constructors have left them, by path, as texts."""
        return attributes_of_pipeline(self._pristine, self.code)

    def variables(self) -> dict[str, str]:
        """Return the variables as they were at the start, or are now."""
        if self._at_start is None:
            return variables_in(self.code)
        return self._at_start

    def as_lines(self) -> list[str]:
        """Return all values, a line each, for a state dict."""
        return [f"{path} = {text}" for path, text in self._values().items()]

    def _values(self) -> dict[str, str]:
        settings = self._settings
        if self._at_start is None:
            settings = settings_of_a_run()
        return {**self.variables(), **self.attributes, **settings}

    # --- messages

    def _on_change(self, now: Mapping[str, str]) -> list[Remark]:
        """Return the messages about variables that have changed since the start."""
        remarks = []
        for path, before, after in _differing(self._at_start or {}, now):
            if path in self._reported:
                continue
            self._reported.add(path)
            text = (
                f"{path} was {before} when the workers started and is {after} now. Workers keep "
                f"{before}; batches that this process makes (num_processes=0, replay), and those "
                f"after restart() or in a resumed program, get {after}, so they may differ. Let it "
                "follow from the epoch: set_epoch(epoch) of the loader or the transform, or "
                "detaug.current().epoch"
            )
            remarks.append(Remark(printable(text), _level_of(before, after)))
        return remarks

    def _on_set(self) -> list[Remark]:
        """Return the messages about attributes that the program has set since the start."""
        if self._set_at_start is None:
            return []
        remarks = []
        now = Settings(self._pristine)
        for path, before, after in _differing(self._set_at_start.texts, now.texts):
            if path in self._reported or not now.is_programs(path, self.code):
                continue
            self._reported.add(path)
            text = (
                f"{path} was {before} when the first batch was made and is {after} now. Batches "
                f"are made from copies of the loader and the transform as they were then, and keep "
                f"{before}. Let it follow from the epoch: set_epoch(epoch) of the loader or the "
                "transform, or detaug.current().epoch; or make a new augmenter"
            )
            remarks.append(Remark(printable(text), _level_of(before, after)))
        return remarks

    def _on_saved(self) -> list[Remark]:
        """Return the messages about values that differ from those of the state dict."""
        texts: dict[int, list[str]] = {}
        for path, current, saved in _differing(self._values(), self._saved):
            if _is_cache_not_filled(path, current, saved):
                continue
            text = f"{path}: here {current}, in the state {saved}"
            texts.setdefault(_level_of(current, saved), []).append(text)
        self._saved = {}
        return [Remark(_on_other_run(texts[level]), level) for level in texts]


def _on_other_run(texts: list[str]) -> str:
    named = "; ".join(texts[:_MOST_NAMED])
    if len(texts) > _MOST_NAMED:
        named = f"{named}; and {len(texts) - _MOST_NAMED} more"
    # A state dict may be somebody else's, and what it says reaches the terminal.
    return printable(
        "values that no argument declares differ from those of the run that saved this state, so "
        f"batches may differ: {named}. Pass them as arguments, or seed what a constructor draws"
    )


def remarks_on_variables(pristine: PipelineSnapshot, program: Mapping[str, str]) -> list[Remark]:
    """Return the messages about variables that differ in a fresh interpreter.

    Args:
        pristine: the pipeline in this interpreter.
        program: the variables of the program that has sent it.
    """
    remarks = []
    for path, fresh, original in _differing(variables_in(code_of(pristine)), program):
        text = (
            f"{path} is {original} in the program and {fresh} in a fresh interpreter, which has "
            "imported the module anew, so batches that it makes may differ. Set it where the "
            "module is imported, or pass it as an argument of the loader or the transform"
        )
        remarks.append(Remark(text, _level_of(fresh, original)))
    return remarks


def differing_values(
    values: Mapping[str, str], others: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return (path, text, other text) of values that differ and may change a batch.

    Args:
        values: the variables or attributes of a pipeline, by path.
        others: those of the same pipeline in another process, or at another time.
    """
    differing = []
    for path, text, other_text in _differing(values, others):
        if _is_cache_not_filled(path, text, other_text):
            continue
        if _level_of(text, other_text) >= logging.WARNING:
            differing.append((path, text, other_text))
    return differing


#: The text of an empty dict's keys.
_NO_KEYS = "[]"


def _is_looked_at(number: int) -> bool:
    """Return whether a batch is the first, second, fourth, eighth ...: more would cost too much."""
    return number & (number - 1) == 0


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the differences of values that both have and no pipeline here writes itself."""
    differing = []
    for path, text, other_text in differences(one, other):
        # A value that only one side has is usually one that a cache has loaded since.
        is_in_both = path in one and path in other
        if not is_in_both or _variable_of(path) in _written:
            continue
        if not names_the_job(text) and not names_the_job(other_text):
            differing.append((path, text, other_text))
    return differing


def _is_cache_not_filled(path: str, current: str, saved: str) -> bool:
    """Return whether a container is filled in one of two programs, and empty in the other.

    The one in which it is filled called its loader or transform before the workers started. None
    in one of them is no sign of a cache: an attribute that has not been fitted is None as well.
    """
    if path.endswith(".len()"):
        return "0" in (current, saved)
    return path.endswith(".keys()") and _NO_KEYS in (current, saved)


def _variable_of(path: str) -> str:
    """Return the path of a module's or class's variable, without what lies in it."""
    return path.removesuffix(".len()").removesuffix(".keys()").partition("[")[0]


def _level_of(text: str, other_text: str) -> int:
    """Return INFO for paths of files, which differ from machine to machine; else WARNING."""
    if without_folders(text) == without_folders(other_text):
        return logging.INFO
    if is_path(text) and is_path(other_text):
        return logging.INFO
    return logging.WARNING
