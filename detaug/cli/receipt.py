"""`detaug receipt`: what a ledger adds up to, for a paper's supplement."""

from __future__ import annotations

from pathlib import Path

import click

from detaug.cli.options import OutputType, write_output

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(short_help="Sum a ledger up in a few lines that others can check.")
@click.argument("ledger", type=_FILE)
@click.option(
    "--checkpoint", "checkpoints", type=_FILE, multiple=True, help="Add its SHA-256; may be given more than once."
)
@click.option("-o", "--output", type=OutputType(), help="Write to this file.  [default: stdout]")
def receipt(ledger: Path, checkpoints: tuple[Path, ...], output: Path | None) -> None:
    """Sum a ledger up: seed, versions, the pipeline's digest, one SHA-256 over all batches, and the SHA-256 of checkpoints, in at
    most 8 kB of JSON. `detaug check` tests it.

    A checkpoint of detaug's nnU-Net trainers has a record of its training: it must be of the ledger's seed, data and epochs.

    LEDGER is what DeterministicAugmenter(..., ledger=LEDGER) or DETAUG_LEDGER=1 has written; it may still be growing.

    The exit status is 0, or 2 where the ledger is damaged, cannot be read, or is of another training than a checkpoint.
    """
    from detaug.ledger.receipt import as_text, make_receipt
    from detaug.nnunet.checkpoint_records import disagreements
    from detaug.reports.progress import progress

    with progress("receipt", told=False):
        made = make_receipt(ledger, checkpoints, disagreements)
    if output is None:
        click.echo(as_text(made), nl=False)
        return
    write_output(output, as_text(made).encode())
    click.echo(
        f"{output}: {made['batches']:,} batches of {made['epochs']:,} epochs, digest {made['digest'][:16]}…", err=True
    )
