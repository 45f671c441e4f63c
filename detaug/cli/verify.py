"""`detaug verify`: prove that a pipeline is deterministic, or name the line that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from detaug.cli.options import SeedType, Target, json_option

if TYPE_CHECKING:
    from detaug.verify import Result


class _Numbers(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.2 on
    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(int(part) for part in str(value).split(",") if part.strip())
        except ValueError:
            numbers = (-1,)
        if any(number < 0 for number in numbers):
            self.fail(f"{value!r} is not a list of non-negative integers such as 1,2,3", param, ctx)
        return numbers


@click.command(short_help="Prove that a pipeline is deterministic, or find the line that is not.")
@click.argument("target", metavar="MODULE:FACTORY")
@click.option("--batches", type=click.IntRange(min=1), default=12, help="Batches that every row compares.")
@click.option("--seed", type=SeedType(), help="The one seed of all rows.  [default: the augmenter's own, else 1234]")
@click.option("--thorough", is_flag=True, help="All start methods with all process counts, more faults: minutes.")
@click.option("--processes", type=_Numbers(), help="Process counts, comma-separated.  [default: 1,2,3]")
@click.option(
    "--start-method",
    "start_methods",
    type=click.Choice(["fork", "spawn", "forkserver"]),
    multiple=True,
    help="How workers start; may be given more than once.  [default: this system's, and spawn]",
)
@click.option("--hash-seeds", type=_Numbers(), help="PYTHONHASHSEED of other interpreters.  [default: 1,2]")
@click.option("--stateless/--stateful", default=None, help="Declare the loader so, as stateless=... does.")
@click.option("--num-streams", type=click.IntRange(min=1), help="As for DeterministicAugmenter.")
@click.option("--batches-per-epoch", type=click.IntRange(min=1), help="As for DeterministicAugmenter.")
@click.option(
    "--seconds-for-cause",
    "search_seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    help="For the search for lines that differ; then what is known is reported.",
)
@json_option
def verify(target: str, json_target: Target, **options: Any) -> None:
    """Prove that a pipeline gives the same batches under all circumstances, or name the line that does not.

    MODULE:FACTORY, as package.module:factory or path/to/file.py:factory, is a function without arguments. It returns
    (loader, transform), where the transform may be None, a map-style data set, or a DeterministicAugmenter. Its batches
    are made with several process counts and start methods, with workers held up and killed, resumed, replayed, with
    another clock, another PYTHONHASHSEED and more.

    The exit status is 0 if all are equal, 1 if any row differs, 2 on wrong use. What the pipeline does by itself and
    DeterministicAugmenter repairs is shown and does not count.
    """
    from detaug.verify import UnusableError

    options["start_methods"] = options["start_methods"] or None  # click's word for "not given" is an empty tuple
    try:
        result = _with_progress(target, options)
    except (UnusableError, ImportError) as error:
        raise click.UsageError(str(error)) from error
    json_target.console().print(result)
    json_target.write(result.as_json())
    if not result.ok:
        raise click.exceptions.Exit(1)


def _with_progress(target: str, options: dict[str, Any]) -> Result:
    from detaug.reports.progress import progress
    from detaug.verify import verify as run

    # What is left on screen is the table; the bar is for the time until then.
    with progress("verify") as shown:
        return run(target, progress=shown.update, **options)
