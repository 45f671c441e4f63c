"""Differences between values that have names, and between the events of two runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

Name = TypeVar("Name")


def _itself(value: Any) -> Any:
    return value


def differences(
    one: Mapping[Name, Any],
    other: Mapping[Name, Any],
    ignore: Collection[Name] = (),
    compared_by: Callable[[Any], Any] = _itself,
    absent: str = "absent",
) -> Iterator[tuple[Name, Any, Any]]:
    """Yield (name, value, other value) of each difference, in the order of `one`, then of `other`.

    Args:
        one: values by name.
        other: those that they are compared with.
        ignore: names that may differ.
        compared_by: returns the text or number by which a value is compared.
        absent: the value for a name that one of the two does not have.
    """
    # The order of the mappings, not that of a set: messages name the first differences.
    for name in {**one, **other}:
        if name in ignore:
            continue
        value = one.get(name, absent)
        other_value = other.get(name, absent)
        if compared_by(value) != compared_by(other_value):
            yield name, value, other_value


def differing_names(
    one: Mapping[Name, Any], other: Mapping[Name, Any], ignore: Collection[Name] = ()
) -> list[Name]:
    """Return the names of the differences, in their order."""
    return [name for name, _, _ in differences(one, other, ignore)]


def values_by_name(lines: Iterable[str]) -> dict[str, str]:
    """Return lines of the form ``name = value`` as values by name."""
    values = {}
    for line in lines:
        name, _, value = str(line).partition(" = ")
        values[name] = value
    return values


def first_different_event(
    one: Sequence[tuple[Any, ...]], other: Sequence[tuple[Any, ...]]
) -> tuple[Any, ...] | None:
    """Return the first event of two runs that differs; None if the runs are equal.

    Args:
        one: a run's events in order: tuples that end with a subject and the digest of its value.
        other: another run's.
    """
    for event, other_event in zip_longest(one, other):
        if event == other_event:
            continue
        if event is not None and other_event is not None:
            if event[:-1] == other_event[:-1]:
                return event
        # One of the two runs has an event that the other has not; the events after it may be in
        # both.
        others = {candidate[:-1] for candidate in other}
        is_in_both = event is None or event[:-1] in others
        extra = event
        if is_in_both and other_event is not None:
            extra = other_event
        assert extra is not None
        return (*extra[:-2], f"only one has {extra[-2]}", extra[-1])
    return None
