"""`detaug diff`: where two runs begin to differ, and what may be why."""

from __future__ import annotations

from pathlib import Path

import click

from detaug.cli.options import CannotRun, Target, json_option, unreadable_told

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(short_help="Compare the ledgers of two runs.")
@click.argument("a", type=_FILE)
@click.argument("b", type=_FILE)
@json_option
def diff(a: Path, b: Path, json_target: Target) -> None:
    """Compare the ledgers of two runs: equal, or the first epoch and step that differ, in which keys, how many batches differ
    after it, and what differs in the headers, the most likely cause first.

    Times, process numbers and restarts do not count. Of batches that a run went back over, the last ones count.

    The exit status is 0 if all batches are equal, 1 if not, 2 if a file is no ledger.
    """
    from detaug.ledger.comparing import compare
    from detaug.remaking.printing import as_json, shown_comparison
    from detaug.reports.progress import progress

    with progress("diff", told=False) as shown, unreadable_told():
        shown.update("comparing batches")
        found = compare(a, b, shown.advance)
    if found.is_mute:
        raise CannotRun("the batches have no bytes that are the same everywhere, so that there is nothing to compare")
    console = json_target.console()
    for line in shown_comparison(found, str(a), str(b)):
        console.print(line, soft_wrap=True)
    json_target.write(as_json(found))
    if not found.is_equal:
        raise click.exceptions.Exit(1)
