"""Options that several commands have in common."""

from __future__ import annotations

from pathlib import Path

import click


def in_a_folder_that_exists(_context: click.Context, _parameter: click.Parameter, file: Path | None) -> Path | None:
    """A callback for a file to be written: refused at once and not after a minute of work, when it comes to writing."""
    if file is not None and not file.resolve().parent.is_dir():
        raise click.BadParameter(f"the folder {str(file.parent)!r} does not exist")
    return file
