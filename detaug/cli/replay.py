"""`detaug replay`: make one batch of a ledger again, and see into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from detaug.cli.options import Target, factory_of, json_option, unreadable_told

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
            json_option,
        ]
    ):
        function = option(function)
    return function


@click.command(short_help="Make one batch of a ledger again: params, fingerprints.")
@click.argument("ledger", type=click.Path(path_type=Path, dir_okay=False, resolve_path=True))
@click.argument("target", metavar="MODULE:FACTORY")
@replay_options
def replay(ledger: Path, target: str, **asked: Any) -> None:
    """Make one batch of a ledger again, in this process, and compare it with its line.

    What every transform drew is shown, and a fingerprint of the arrays behind it: where these begin to differ between two
    machines or versions is what made the difference.

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
    json_target: Target,
) -> None:
    """Replay, and print what is seen.

    Raises:
        CannotRun: it cannot be made.
        click.exceptions.Exit: with 1 where it is not the ledger's.
    """
    from detaug.remaking.printing import replayed_as_json, shown_replay
    from detaug.remaking.replaying import replay as make

    with unreadable_told():
        found = make(remaker, epoch, step, record)
    console = json_target.console()
    for line in shown_replay(found):
        console.print(line, soft_wrap=True)
    json_target.write(replayed_as_json(found))
    if found.differs:
        raise click.exceptions.Exit(1)
