"""Parts that commands share: how they end, their options, and where they print."""

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
from detaug.system.atomic_files import whole_file
from detaug.system.escaping import printable_lines

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
    """A command whose exit status says how it ended.

    It is 130 after Ctrl-C, 141 where nobody reads the output, and 2 after any other error: 1 is for
    batches that differ.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn whatever stops it into an exit status."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _stop_printing()
            raise click.exceptions.Exit(UNREAD) from None
        except SystemExit as exiting:
            # The user's code: click itself exits later, in `main`.
            raise CannotRun(
                f"the pipeline ends the program: sys.exit({exiting.code!r})"
            ) from exiting
        except (UnusableError, NotInstalled) as error:
            details = getattr(error, "details", "")
            if details:
                click.echo(printable_lines(details), err=True)
            raise CannotRun(str(error)) from error
        except (OSError, click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except Exception:
            traceback.print_exc()
            raise click.exceptions.Exit(2) from None

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line; a missing file or a full stdout is one line and status 2."""
        try:
            return super().main(*arguments, **options)
        except OSError as error:
            text = str(error)
            # Without a file name it is an error of stdout, such as a full disk behind ``> file``.
            if error.filename is None:
                _stop_printing()
            if error.filename:
                text = f"{error.filename}: {error.strerror}"
            click.echo(f"Error: {printable_lines(text)}", err=True)
            sys.exit(2)


class Commands(Command, click.Group):
    """A group of commands, whose exit status is that of a `Command`."""


def _stop_printing() -> None:
    """Send stdout to /dev/null, so that Python can flush its buffer at the end without an error."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def console() -> Console:
    """Return a console that writes to stdout.

    Lines for a file or a pipe are not wrapped, so that they can be searched; COLUMNS sets another
    width.
    """
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            """Raise an error for a pipe that nobody reads; rich would end the program."""
            # `Command.main` turns the error into an exit status.
            raise BrokenPipeError

    # For a pipe rich would assume 80 columns, and break lines that somebody may grep for.
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return Output(highlight=False)
    return Output(highlight=False, width=1000)


def write_json(file: Path | None, result: Any) -> None:
    """Write a result where `--json` asks for it."""
    if file is not None:
        write_output(file, (json.dumps(result, indent=2) + "\n").encode())


def write_output(file: Path, content: bytes) -> None:
    """Write a file.

    Raises:
        CannotRun: it cannot be written.
    """
    try:
        # An existing file is replaced only when the new one is complete.
        with whole_file(file) as stream:
            stream.write(content)
    except OSError as error:
        raise CannotRun(f"cannot write {str(file)!r}: {error.strerror or error}") from error


def conclude(
    parts: Iterable[RenderableType], status: int, file: Path | None = None, result: Any = None
) -> None:
    """Show a result, write it where `--json` asks for it, and end the command.

    Args:
        parts: shown one after the other.
        status: the exit status.
        file: of `--json`.
        result: as it is written there.
    """
    from rich.text import Text

    # One line a sentence, so that a pipe can be searched; tables fit the terminal.
    output = console()
    for part in parts:
        if isinstance(part, Text):
            output.print(_escaped(part), soft_wrap=True)
        else:
            output.print(part)
    write_json(file, result)
    if status:
        raise click.exceptions.Exit(status)


def _escaped(text: Text) -> Text:
    """Return a text without control characters; a text that had any is in one style."""
    from rich.text import Text

    plain = printable_lines(text.plain)
    if plain == text.plain:
        return text
    return Text(plain, text.style)


# --- types of options: click's name for one in a help text is the function's ----------------------


def numbers(text: str) -> tuple[int, ...]:
    """Return non-negative integers that stand with commas between them; "" is an empty tuple."""
    if not re.fullmatch(r"\s*|\s*\d+\s*(,\s*\d+\s*)*", text):
        raise click.BadParameter(f"{text!r} is not a list of non-negative integers such as 1,2,3")
    if not text.strip():
        return ()
    return tuple(map(int, text.split(",")))


def seed(text: str) -> Any:
    """Return a seed as ``DETAUG_SEED`` may hold it.

    That is a non-negative integer of any size, or several with commas between them.
    """
    from detaug.seeding.tree import seed_of_text

    try:
        return seed_of_text(text)
    except ValueError:
        message = f"{text!r} is neither a non-negative integer nor several with commas between them"
        raise click.BadParameter(message) from None


def fold(text: str) -> int | str:
    """Return a fold as `nnUNetv2_train` takes it."""
    if text == "all":
        return text
    # Whether there is such a fold is for the training to say.
    if not re.fullmatch(r"-?\d+", text):
        raise click.BadParameter(f"{text!r} is neither a number nor 'all'")
    return int(text)


# `ParamType` is generic from click 8.2 on.
class OutputType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The type of an output file, an absolute `Path`.

    A file that cannot be written is refused before the work begins.

    Args:
        suffixes: endings, one of which the file's name must have; none: any name.
    """

    name = "file"

    def __init__(self, *suffixes: str) -> None:
        self._suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the file's path, or fail."""
        # Absolute: a pipeline's `os.chdir` must not make another file of it.
        file = Path(value).absolute()
        if file.is_dir():
            self.fail(f"{value!r} is a folder", param, ctx)
        if file.exists() and not file.is_file():
            # A device, which would be replaced.
            self.fail(f"{value!r} is no file", param, ctx)
        if self._suffixes and not file.name.lower().endswith(self._suffixes):
            allowed = " or ".join(self._suffixes)
            self.fail(f"{value!r} does not end with {allowed}", param, ctx)
        # A measurement of minutes must not end with an output that cannot be written.
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
