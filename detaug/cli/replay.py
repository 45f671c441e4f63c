"""`detaug replay`: make one batch of a ledger again, and see into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from detaug.cli.options import CannotRun, Target, factory_of, json_option, unreadable_told

if TYPE_CHECKING:
    from detaug.ledger.lines import Record
    from detaug.remaking.pipelines import Remaker

_F = TypeVar("_F", bound=Callable[..., Any])


def replay_options(function: _F) -> _F:
    """What every replay is asked for."""
    for option in reversed(
        [
            click.option("--epoch", type=click.IntRange(min=0), required=True, help="Of the batch."),
            click.option("--step", type=click.IntRange(min=0), required=True, help="Of the batch, in its epoch."),
            click.option("--sample", type=click.IntRange(min=0), help="Show only this sample of it.  [default: all]"),
            click.option(
                "--break-at", metavar="TRANSFORM", help="Stop in the debugger before the transform of this class."
            ),
            click.option(
                "--pictures",
                type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
                help="Save pictures of each sample before and after into this folder.",
            ),
            json_option,
        ]
    ):
        function = option(function)
    return function


@click.command(short_help="Make one batch of a ledger again: params, fingerprints, debugger, pictures.")
@click.argument("ledger", type=click.Path(path_type=Path, dir_okay=False, resolve_path=True))
@click.argument("target", metavar="MODULE:FACTORY")
@replay_options
def replay(ledger: Path, target: str, **asked: Any) -> None:
    """Make one batch of a ledger again, in this process, and compare it with its line.

    What every transform drew is shown, and a fingerprint of the arrays behind it: where these begin to differ between two
    machines or versions is what made the difference. --break-at opens the debugger in the transform, with its params and
    arrays.

    The exit status is 0 if the batch is the ledger's, 1 if not, 2 if it cannot be made.
    """
    from detaug.ledger.reading import read_header
    from detaug.remaking.pipelines import check_versions, remaker_of
    from detaug.remaking.replaying import line_of

    factory = factory_of(target)
    with unreadable_told():
        header = read_header(ledger)
        check_versions(header)
        record = line_of(ledger, asked["epoch"], asked["step"])
        remaker = remaker_of(factory, header)
    show_replay(remaker, record, **asked)


def show_replay(
    remaker: Remaker,
    record: Record | None,
    epoch: int,
    step: int,
    sample: int | None,
    break_at: str | None,
    pictures: Path | None,
    json_target: Target,
) -> None:
    """Replay, and print what is seen.

    Raises:
        CannotRun: it cannot be made, or pictures cannot be drawn.
        click.exceptions.Exit: with 1 where it is not the ledger's.
    """
    from detaug.remaking.printing import replayed_as_json, shown_replay
    from detaug.remaking.replaying import replay as make

    with unreadable_told():
        found = make(remaker, epoch, step, record, sample, break_at or "", pictures is not None)
    console = json_target.console()
    for line in shown_replay(found):
        console.print(line, soft_wrap=True)
    if pictures is not None:
        for file in _draw(found, pictures):
            console.print(f"saved {file}", style="dim", soft_wrap=True)
    json_target.write(replayed_as_json(found))
    if found.differs:
        raise click.exceptions.Exit(1)


def _draw(found: Any, folder: Path) -> list[Path]:
    from detaug.pictures.requirements import NotInstalled
    from detaug.pictures.samples import sheet_of

    place = f"epoch {found.epoch}, step {found.step}"
    sheets = {
        f"epoch{found.epoch}_step{found.step}_sample{sample}.png": sheet_of(
            f"{place}, sample {sample}", [("before", dict(found.before.get(sample, {}))), ("after", dict(after))]
        )
        for sample, after in found.after.items()
    }
    if not found.after:
        sheets[f"epoch{found.epoch}_step{found.step}.png"] = sheet_of(place, [("batch", _arrays(found.batch))])
    if not any(sheets.values()):
        raise CannotRun("there is no image in the batch that could be drawn")
    drawn = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, sheet in sheets.items():
            if sheet is not None:
                (folder / name).write_bytes(sheet.png())
                drawn.append(folder / name)
    except NotInstalled as error:
        raise CannotRun(str(error)) from error
    except OSError as error:
        raise CannotRun(f"cannot write to {str(folder)!r}: {error.strerror or error}") from error
    return drawn


def _arrays(batch: Any) -> dict[str, Any]:
    return batch if isinstance(batch, dict) else {"": batch}
