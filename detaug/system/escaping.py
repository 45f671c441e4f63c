"""Text of files and names that somebody else chose, on its way to a terminal or a log."""

from __future__ import annotations

from typing import Any

_MOST_CHARACTERS = 100


def printable(text: str) -> str:
    """Return a text with every character escaped that a terminal does not simply show.

    Line feeds and control characters, which could move the cursor, colour what follows or forge
    another line; marks that reverse the direction of writing; and halves of surrogate pairs, which
    cannot be encoded.
    """
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def printable_lines(text: str) -> str:
    """Return a text of several lines as `printable` has each of them."""
    return "\n".join(map(printable, text.split("\n")))


def short(value: Any) -> str:
    """Return a value's text on one line, made printable; of a long text only the beginning."""
    text = printable(" ".join(str(value)[: 10 * _MOST_CHARACTERS].split()))
    if len(text) <= _MOST_CHARACTERS:
        return text
    return text[: _MOST_CHARACTERS - 1] + "…"
