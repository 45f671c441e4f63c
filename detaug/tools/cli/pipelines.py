"""Commands for a pipeline: `detaug verify`, `preview`, `bench`, and `demo`, which needs none."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from detaug.tools.cli import options
from detaug.tools.cli.options import OutputType, conclude, json_option, write_output


@click.command(short_help="Prove that a pipeline is deterministic, or find the cause.")
@click.argument("target", metavar="MODULE:FACTORY")
@click.option(
    "--against",
    "ledger",
    metavar="LEDGER",
    type=click.Path(path_type=Path, resolve_path=True),
    help="Only replay batches of this recorded run, and compare them.",
)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    help="Batches that every row compares.  [default: 12; with --against 20]",
)
@click.option(
    "--seed",
    type=options.seed,
    help="Seed of all rows.  [default: the augmenter's own, else 1234]",
)
@click.option(
    "--processes", type=options.numbers, help="Process counts, comma-separated.  [default: 1,2,3]"
)
@click.option(
    "--start-method",
    "start_methods",
    type=click.Choice(["fork", "spawn", "forkserver"]),
    multiple=True,
    help="How workers start; may be given more than once.  [default: this system's, and spawn]",
)
@json_option
def verify(
    target: str, ledger: Path | None, batches: int | None, json_file: Path | None, **settings: Any
) -> None:
    """Prove that a pipeline gives the same batches under all circumstances, or find the cause.

    MODULE:FACTORY, as package.module:factory or path/to/file.py:factory, is a function without
    arguments. It returns (loader, transform), in which the transform may be None; or a map-style
    data set; or a DeterministicAugmenter. The command makes its batches with several process counts
    and start methods, resumed, replayed, with another clock, another PYTHONHASHSEED and more.

    With --against, batches of a run that kept a ledger are replayed in this process with the
    ledger's seed, evenly spaced from the first to the last, and compared with the ledger. If one
    differs, the command names its keys, and the parameters and versions that have changed.

    The exit status is 0 if all are equal, 1 if bytes differ, and 2 if the pipeline or the ledger
    does not exist, or a row or batch could not be made.
    """
    # Imported in the command, so that ``--help`` does not wait for torch.
    from detaug.system.progress import progress

    # It replays in this process: none of the rows' settings applies.
    if ledger is not None:
        _verify_against(target, ledger, batches, json_file, settings)
        return
    from detaug.verification import verify as run
    from detaug.verification.augmenter_runs import DEFAULT_BATCHES

    # What is left on screen is the table; the bar is for the time until then.
    with progress("verify") as bar:
        result = run(target, batches=batches or DEFAULT_BATCHES, progress=bar.update, **settings)
    conclude([result], result.status, json_file, result.as_json())


#: Arguments of `verify`, with their options, that go without --against only.
_WITHOUT_LEDGER = {
    "seed": "--seed",
    "processes": "--processes",
    "start_methods": "--start-method",
}


def _verify_against(
    target: str, ledger: Path, batches: int | None, json_file: Path | None, settings: dict[str, Any]
) -> None:
    """Run `detaug verify --against`."""
    for name, option in _WITHOUT_LEDGER.items():
        # An option that would do nothing is an error, here as everywhere.
        if settings[name] not in (None, ()):
            raise click.UsageError(
                f"{option} has no effect with --against: batches are made in this process, with the"
                " ledger's seed"
            )
    from detaug.system.progress import progress
    from detaug.verification.factories import load_factory
    from detaug.verification.replay import DEFAULT_BATCHES, verify_against

    with progress("verify") as bar:
        result = verify_against(load_factory(target), ledger, batches or DEFAULT_BATCHES, bar)
    conclude(result.render(), int(not result.ok), json_file, result.as_json())


@click.command(short_help="Draw what a pipeline does to samples, transform by transform.")
@click.argument("target", metavar="[MODULE:FACTORY]", required=False)
@click.option(
    "--nnunet",
    nargs=2,
    metavar="DATASET CONFIG",
    help="Draw a training of nnU-Net's, on your preprocessed data.",
)
@click.option(
    "-f", "--fold", type=options.fold, default="0", help="With --nnunet: a number, or 'all'."
)
@click.option(
    "-tr",
    "--tr",
    "trainer",
    default="nnUNetTrainerDetAug",
    help="With --nnunet: the trainer's class.",
)
@click.option("-p", "--plans", default="nnUNetPlans", help="With --nnunet: the plans' identifier.")
@click.option(
    "-o",
    "--output",
    type=OutputType(".png", ".svg", ".pdf"),
    default="preview.png",
    help="The picture.",
)
@click.option(
    "--only-applied",
    is_flag=True,
    help="For a talk: find samples in which most transforms act, and draw these transforms alone.",
)
@click.option("--samples", type=click.IntRange(1, 32), default=3, help="Rows of the sheet.")
@click.option(
    "--seed",
    type=options.seed,
    envvar="DETAUG_SEED",
    help="Seed of the samples.  [default: the augmenter's own, else 1234]",
)
@click.option("--epoch", type=click.IntRange(0, 2**32 - 1), default=0, help="Epoch of the samples.")
@click.option("--step", type=click.IntRange(0), default=0, help="Step of the first batch.")
@click.option(
    "--channel", type=click.IntRange(0), default=0, help="Channel of the image, counted from 0."
)
def preview(
    target: str | None,
    nnunet: tuple[str, str] | None,
    fold: int | str,
    trainer: str,
    plans: str,
    output: Path,
    **arguments: Any,
) -> None:
    """Draw a contact sheet: a row for each sample, a column for each transform, with its params.

    MODULE:FACTORY is as for `detaug verify`. The samples are those of a training with this seed. If
    the factory returns an augmenter, its name counts as well: name="train" draws other numbers than
    no name. Without a factory, the command draws the demo: a pipeline on an MRI that comes with
    nilearn.

    MODULE:FACTORY may also be one of detaug's transforms. The command then draws the demo's MRI at
    three strengths: the weakest, the median and the strongest of 16 draws.

    With --nnunet, preprocessed cases are unpickled, as nnU-Net does it. Unpickling runs code that
    is in them.

    The exit status is 2 if there is no pipeline with images.
    """
    from detaug.system.progress import progress
    from detaug.tools.previews import preview as make

    if target is not None and nnunet is not None:
        raise click.UsageError("give MODULE:FACTORY or --nnunet, not both")
    with progress("preview") as bar:
        bar.update("make samples")
        if nnunet is None:
            result = make(target, **arguments)
        else:
            from detaug.nnunet.verification.settings import Settings
            from detaug.tools.previews.preview import preview_training

            training: dict[str, Any] = {"fold": fold, "trainer": trainer, "plans": plans}
            # Without one, the training's own default stays.
            if arguments["seed"] is not None:
                training["seed"] = arguments["seed"]
            # Nothing is trained, and batches need no GPU.
            settings = Settings(*nnunet, device="cpu", **training)
            result = preview_training(settings, **arguments)
        bar.update("draw")
        # `OutputType` has refused unknown suffixes before the work began.
        write_output(output, result.picture(output.suffix[1:].lower()))
    click.echo(f"{output}: {result.summary}")


@click.command(short_help="Measure a pipeline under detaug, batchgenerators and torch.")
@click.argument("target", metavar="[MODULE:FACTORY]", required=False)
@click.option("-o", "--output", type=OutputType(".png"), default="bench.png", help="The picture.")
@click.option(
    "--processes",
    type=options.numbers,
    help="Process counts, comma-separated.  [default: 1, and all cores]",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3600),
    default=1.5,
    help="Duration of each run, in seconds.",
)
@json_option
def bench(
    target: str | None,
    output: Path,
    processes: tuple[int, ...] | None,
    seconds: float,
    json_file: Path | None,
) -> None:
    """Measure batches per second by the number of processes.

    MODULE:FACTORY is as for `detaug verify`; without it, the command measures the demo's patches of
    an MRI. The same pipeline runs under DeterministicAugmenter, batchgenerators'
    NonDetMultiThreadedAugmenter and torch's DataLoader in turn, each run in its own process. The
    command takes about a minute on two idle cores. If other programs use the cores meanwhile, the
    table and the picture mark the figures as not valid.

    The exit status is 2 if detaug cannot run the pipeline. If only another system cannot, the table
    has the reason.
    """
    # Without workers, every system would make its batches in the loop: nothing to compare.
    if 0 in (processes or ()):
        raise click.BadParameter(
            "a training that waits needs at least one process", param_hint="--processes"
        )
    from rich.text import Text

    from detaug.system.progress import progress
    from detaug.tools.bench import run as benching
    from detaug.tools.pictures.charts import require_matplotlib

    # Before a minute of measuring, not after it.
    require_matplotlib()
    with progress("bench") as bar:
        result = benching.bench(target, processes or (), seconds, bar)
    write_output(output, result.png())
    conclude([*result.render(), Text(f"Drawn in {output}", "dim")], 0, json_file, asdict(result))


@click.command(short_help="Compare batches of a real MRI: batchgenerators' and detaug's.")
def demo() -> None:
    """Run one augmentation pipeline on a real MRI several times, and compare the batches.

    The pipeline is batchgenerators' own 3-D augmentation. It runs twice under
    NonDetMultiThreadedAugmenter. Then it runs under DeterministicAugmenter: in the calling process,
    in two workers, with a worker killed in mid-run, and stopped halfway and resumed.

    The exit status is 1 if two runs of DeterministicAugmenter differ, and 2 if the MRI is missing.
    """
    from detaug.demo.run import run_all
    from detaug.system.progress import progress

    # What is left on screen is the table; the bar is for the time until then.
    with progress("demo") as bar:
        result = run_all(bar)
    conclude([result], result.status)
