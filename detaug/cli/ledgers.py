"""Commands for a run that kept a ledger, or a training of nnU-Net: `detaug diff`, `replay`, `receipt`, `check`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from detaug.cli.options import OutputType, conclude, write_output

_RUN = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, dir_okay=False)
_RESOLVED_FILE = click.Path(path_type=Path, dir_okay=False, resolve_path=True)


@click.command(short_help="Compare the ledgers of two runs, or two trainings of nnU-Net.")
@click.argument("a", type=_RUN)
@click.argument("b", type=_RUN)
@click.option(
    "--plot",
    type=OutputType(".png"),
    help="Of two trainings of nnU-Net: draw their curves into this file.",
)
def diff(a: Path, b: Path, plot: Path | None) -> None:
    """Compare the ledgers of two runs: equal, or the first epoch and step that differ, in which keys, how many batches differ
    after it, and what differs in the headers, the most likely cause first. Times, process numbers and restarts do not count.

    Of nnU-Net, A and B are folders fold_X of its results. What the trainings are made of (seed, data, plans, pipeline ...), the
    metrics of every epoch, and the weights are compared, by the best checkpoint that both have.

    The exit status is 0 if all is equal, 1 if not, 2 if there is nothing that can be compared.
    """
    if a.is_dir() or b.is_dir():
        from rich.text import Text

        from detaug.nnunet.results import compare_trainings

        lines, differ = compare_trainings(a, b, plot)
        conclude(map(Text, lines), int(differ))
        return
    if plot is not None:
        raise click.UsageError(
            "--plot draws the curves of two folders of nnU-Net's results, and a ledger has none"
        )
    from detaug.ledger.comparing import compare

    found = compare(a, b)
    conclude(found.shown(str(a), str(b)), 0 if found.first is None else 1)


@click.command(short_help="Make one batch of a run again: params, fingerprints.")
@click.argument("run", metavar="LEDGER|FOLDER", type=click.Path(path_type=Path, resolve_path=True))
@click.argument("target", metavar="[MODULE:FACTORY]", required=False)
@click.option("--epoch", type=click.IntRange(min=0), required=True, help="Of the batch.")
@click.option(
    "--step", type=click.IntRange(min=0), required=True, help="Of the batch, in its epoch."
)
def replay(run: Path, target: str | None, epoch: int, step: int) -> None:
    """Make one batch of a run again, in this process, and compare it with its line in the ledger. What every transform drew is
    shown, and a fingerprint of the arrays behind it.

    Of a training of nnU-Net, FOLDER is that of a fold's checkpoints, and stands alone: all else is the checkpoint's, and cases
    are read from nnUNet_preprocessed. Where the training kept a ledger (DETAUG_LEDGER=1), the batch is compared with it.

    The exit status is 0 if the batch is the ledger's or there is none, 1 if not, 2 if it cannot be made.
    """
    from detaug.remaking.replaying import line_of
    from detaug.remaking.replaying import replay as make

    if run.is_dir() == (target is not None):
        raise click.UsageError(
            "name a ledger and its MODULE:FACTORY, or a folder of nnU-Net's results alone"
        )
    ledger: Path | None = run
    if target is None:
        from detaug.nnunet.remaking import remaker_in

        remaker, ledger = remaker_in(run)
    else:
        from detaug.ledger.reading import read_header
        from detaug.remaking.pipelines import check_versions, remaker_of
        from detaug.verification.handed_in import load_factory

        factory = load_factory(target)
        header = read_header(run)
        check_versions(header)
        remaker = remaker_of(factory, header)
    shown, differs = make(
        remaker, epoch, step, None if ledger is None else line_of(ledger, epoch, step)
    )
    conclude(shown, int(differs))


@click.command(short_help="Sum a ledger up in a few lines that others can check.")
@click.argument("ledger", type=_FILE)
@click.option(
    "--checkpoint",
    "checkpoints",
    type=_FILE,
    multiple=True,
    help="Add its SHA-256; may be given more than once.",
)
@click.option("-o", "--output", type=OutputType(), help="Write to this file.  [default: stdout]")
def receipt(ledger: Path, checkpoints: tuple[Path, ...], output: Path | None) -> None:
    """Sum a ledger up: seed, versions, the pipeline's digest, one SHA-256 over all batches, and the SHA-256 of checkpoints,
    about 2 kB of JSON. `detaug check` tests it.

    LEDGER is what DeterministicAugmenter(..., ledger=LEDGER) or DETAUG_LEDGER=1 has written.
    A checkpoint of detaug's nnU-Net trainers must be of its seed, data and epochs.

    The exit status is 0, or 2 where the ledger is damaged, cannot be read, or is of another training than a checkpoint.
    """
    from detaug.ledger.receipt import as_text, make_receipt
    from detaug.nnunet.run_record import disagreements

    made = make_receipt(ledger, checkpoints, disagreements)
    if output is None:
        click.echo(as_text(made), nl=False)
        return
    write_output(output, as_text(made).encode())
    click.echo(
        f"{output}: {made['batches']:,} batches of {made['epochs']:,} epochs, digest {made['digest'][:16]}…",
        err=True,
    )


@click.command(short_help="Test a receipt: draw batches of its ledger, make them again, compare.")
@click.argument("receipt", type=_RESOLVED_FILE)
@click.argument("target", metavar="[MODULE:FACTORY]", required=False)
@click.option(
    "--ledger", type=_RESOLVED_FILE, required=True, help="The ledger of which the receipt was made."
)
@click.option("--samples", type=click.IntRange(min=1), default=20, help="Batches to be made again.")
@click.option(
    "--salt",
    default="",
    show_default=False,
    metavar="TEXT",
    help="Draw other batches, which nobody can foresee.",
)
@click.option(
    "--checkpoint",
    "checkpoints",
    type=_RESOLVED_FILE,
    multiple=True,
    help="Compare its SHA-256 with the receipt's.",
)
@click.option(
    "--nnunet",
    nargs=3,
    metavar="DATASET CONFIG FOLD",
    help="An nnU-Net training, in place of a factory.",
)
@click.option(
    "-tr",
    "--tr",
    "trainer",
    default="nnUNetTrainerDetAug",
    help="With --nnunet: the trainer's class.",
)
@click.option("-p", "--plans", default="nnUNetPlans", help="With --nnunet: the plans' identifier.")
def check(
    receipt: Path,
    target: str | None,
    ledger: Path,
    samples: int,
    salt: str,
    checkpoints: tuple[Path, ...],
    nnunet: tuple[str, str, str] | None,
    trainer: str,
    plans: str,
) -> None:
    """Test a receipt, in a minute instead of a training.

    Which batches are tested is drawn from the receipt's own digest, so that its author cannot choose them; and from --salt, a
    word of your own, so that the author cannot foresee them either. Each is made again by the pipeline (MODULE:FACTORY as for
    `detaug verify`, or --nnunet), and compared with its line in the ledger.

    The exit status is 0 if all is as the receipt says, 1 if something differs, 2 if it cannot be tested here.
    """
    from detaug.ledger.receipt import read_receipt
    from detaug.nnunet.run_record import disagreements
    from detaug.remaking import checking
    from detaug.reports.progress import progress

    if (target is None) == (nnunet is None):
        raise click.UsageError("name the pipeline: MODULE:FACTORY, or --nnunet DATASET CONFIG FOLD")
    with progress("check") as shown:
        if nnunet is not None:
            from detaug.nnunet.remaking import remaker_of_training

            remaker = partial(remaker_of_training, *nnunet, trainer, plans)
        else:
            from detaug.remaking.pipelines import remaker_of
            from detaug.verification.handed_in import load_factory

            remaker = partial(remaker_of, load_factory(target or ""))
        found = checking.check(
            read_receipt(receipt), ledger, remaker, samples, salt, checkpoints, disagreements, shown
        )
    conclude(found.shown(), 0 if found.ok else 1)
