"""What several commands have in common: how they end, their options, and where they print."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detaug.errors import NotInstalled, UnusableError
from detaug.reports.atomic_files import whole_file
from detaug.reports.escaping import printable_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

#: The exit status of a program that Ctrl-C ended, as shells have it: 128 + SIGINT.
INTERRUPTED = 130

#: That of a program whose reader went away (``detaug diff ... | head -1``): 128 + SIGPIPE. 1 would
#: mean "differs".
UNREAD = 141


class CannotRun(click.ClickException):
    """Something that the command needs is missing or fails; 1 is for batches that differ."""

    exit_code = 2

    def format_message(self) -> str:
        """Return the message, which may hold text of a file."""
        return printable_lines(super().format_message())


class Command(click.Command):
    """Ends with status 130 after Ctrl-C, with 141 where nobody reads its output, and with 2 after
    any other error: 1 means "differs".
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run it, and end with the status of what stopped it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _stop_printing()
            raise click.exceptions.Exit(UNREAD) from None
        except SystemExit as leaving:  # click's own comes later
            raise CannotRun(
                f"the pipeline ends the program: sys.exit({leaving.code!r})"
            ) from leaving
        except (UnusableError, NotInstalled) as error:
            if details := getattr(error, "details", ""):
                click.echo(printable_lines(details), err=True)
            raise CannotRun(str(error)) from error
        except (OSError, click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except Exception:
            traceback.print_exc()
            raise click.exceptions.Exit(2) from None

    def main(self, *arguments: Any, **options: Any) -> Any:
        """As click's; a missing file or a full stdout is one line and status 2."""
        try:
            return super().main(*arguments, **options)
        except OSError as error:
            if error.filename is None:
                _stop_printing()
            text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            click.echo(f"Error: {printable_lines(text)}", err=True)
            sys.exit(2)


class Commands(Command, click.Group):
    """A group whose commands end so."""


def _stop_printing() -> None:
    """What is still in stdout's buffer must not fail when Python ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def console() -> Console:
    """For what people read, on stdout.

    In a file or a pipe lines are as long as they are, so that they can be searched; COLUMNS sets
    another width.
    """
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            """A pipe that nobody reads is an error, as anywhere."""
            raise BrokenPipeError

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 1000
    return Output(highlight=False, width=width)


def write_json(file: Path | None, found: Any) -> None:
    """Write a result where `--json` asks for it."""
    if file is not None:
        write_output(file, (json.dumps(found, indent=2) + "\n").encode())


def write_output(file: Path, content: bytes) -> None:
    """Write a file; one that cannot be written ends the command with status 2."""
    try:
        with whole_file(file) as opened:
            opened.write(content)
    except OSError as error:
        raise CannotRun(f"cannot write {str(file)!r}: {error.strerror or error}") from error


def conclude(
    shown: Iterable[RenderableType], status: int, file: Path | None = None, found: Any = None
) -> None:
    """Show a result, one part after the other, write it where `--json` asks for it, and end with
    the status.
    """
    from rich.text import Text

    output = console()
    for part in shown:
        if isinstance(part, Text):
            output.print(_escaped(part), soft_wrap=True)
        else:
            output.print(part)
    write_json(file, found)
    if status:
        raise click.exceptions.Exit(status)


def _escaped(text: Text) -> Text:
    """Escape what a terminal would act on; what is escaped has one style."""
    from rich.text import Text

    plain = printable_lines(text.plain)
    return text if plain == text.plain else Text(plain, text.style)


# --- types of options: click's name for one in a help text is the function's ----------------------


def numbers(text: str) -> tuple[int, ...]:
    """Non-negative integers with commas between them; nothing is an empty tuple."""
    if not re.fullmatch(r"\s*|\s*\d+\s*(,\s*\d+\s*)*", text):
        raise click.BadParameter(f"{text!r} is not a list of non-negative integers such as 1,2,3")
    return tuple(map(int, text.split(","))) if text.strip() else ()


def seed(text: str) -> Any:
    """Whatever ``DETAUG_SEED`` may be: a non-negative integer of any size, or several with commas
    between them.
    """
    from detaug.seeding.tree import seed_of_text

    try:
        return seed_of_text(text)
    except ValueError:
        message = f"{text!r} is neither a non-negative integer nor several with commas between them"
        raise click.BadParameter(message) from None


def fold(text: str) -> int | str:
    """A fold as `nnUNetv2_train` takes it."""
    if text != "all" and not re.fullmatch(r"-?\d+", text):
        raise click.BadParameter(f"{text!r} is neither a number nor 'all'")
    return text if text == "all" else int(text)


class OutputType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.2 on
    """A file that can be written, which is found out before the work; a `Path`, of which no later
    `os.chdir` makes another.

    Args:
        suffix: that its name must have; "": any.
    """

    name = "file"

    def __init__(self, suffix: str = "") -> None:
        self._suffix = suffix

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        file = Path(value).absolute()
        if file.exists() and not file.is_file():  # a device would be replaced
            self.fail(f"{value!r} is {'a folder' if file.is_dir() else 'no file'}", param, ctx)
        if not file.name.lower().endswith(self._suffix):
            self.fail(f"{value!r} does not end with {self._suffix}", param, ctx)
        if not os.access(file.parent, os.W_OK):
            self.fail(
                f"cannot write {value!r}: its folder does not exist, or is read-only", param, ctx
            )
        return file


#: `--json`; the command gets its `json_file`, or None.
json_option = click.option(
    "--json",
    "json_file",
    type=OutputType(".json"),
    help="Write the results to this file (.json) as well.",
)
