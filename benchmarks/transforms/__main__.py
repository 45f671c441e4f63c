"""`python -m benchmarks.transforms`: run the rows, print one table, write JSON, draw a plot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from benchmarks.command import common_options, measure_rows
from benchmarks.report import Row
from benchmarks.transforms import (
    compiling,
    gate,
    k_space,
    mri,
    others,
    pipelines,
    resampling,
    table,
)
from benchmarks.transforms.timing import Settings
from detaug.bench.measuring import in_fresh_process
from detaug.cli.options import Command


def _short(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "-")


#: Rows of single images, which plain torch is a peer of, at other sizes than 128³ as well.
_SINGLE: dict[str, Callable[..., Row]] = {
    "noise": table.measure_noise,
    "gamma": table.measure_gamma,
    "blur": table.measure_blur,
    "low-resolution": table.measure_low_resolution,
    "ghosting": k_space.measure_ghosting,
    "gibbs-noise": k_space.measure_gibbs_noise,
}
_SIZES = {"32": (32, 32, 32), "48": (48, 48, 48), "127": (127, 127, 127)}
#: For what is done in k-space, whose time depends on the factors of an extent: large primes, 8 × 23, and a power of 2.
_K_SPACE_SIZES = {
    "mni": (193, 229, 193),
    "251-2d": (251, 251),
    "184-2d": (184, 184),
    "256-2d": (256, 256),
}

ROWS: dict[str, Callable[[Settings], Row]] = {
    "pipeline-3d": pipelines.measure_pipeline_3d,
    "pipeline-3d-4-channels": pipelines.measure_pipeline_3d_four_channels,
    "pipeline-3d-nearest-labels": pipelines.measure_pipeline_3d_nearest_labels,
    "pipeline-small-da5": pipelines.measure_small_da5,
    "pipeline-small-da5-nearest": pipelines.measure_small_da5_nearest,
    "pipeline-3d-extended": pipelines.measure_extended_pipeline_3d,
    "spatial-2-labels": table.measure_spatial_two_labels,
    "spatial-4-labels": table.measure_spatial_four_labels,
    "pipeline-2d": pipelines.measure_pipeline_2d,
    "pipeline-2d-by-turns": pipelines.measure_pipeline_2d_by_turns,
    "gate-3d": gate.measure_gate_3d,
    "gate-2d": gate.measure_gate_2d,
    "elastic": table.measure_elastic,
    **resampling.ROWS,
    **_SINGLE,
    **{
        f"{name}-{size}": partial(row, space=space)
        for name, row in _SINGLE.items()
        for size, space in _SIZES.items()
    },
    **{
        f"{name}-{size}": partial(_SINGLE[name], space=space)
        for name in ("ghosting", "gibbs-noise")
        for size, space in _K_SPACE_SIZES.items()
    },
    **{name.replace(" ", "-"): mri.measure(name) for name in mri.CONTESTS},
    "spikes": k_space.measure_spikes,
    "motion": k_space.measure_motion,
    **{_short(name): others.measure(name) for name in others.OTHERS},
    "compile-all": compiling.measure_all,
    "compile-default-pipelines": compiling.measure_default_pipelines,
    **{
        f"{_short(name)}-within-a-pipeline": others.measure_within(name)
        for name in others.READ_AND_WRITE
    },
}


TITLE = "detaug's transforms against their peers (one thread; medians, ratios with their range)"


@click.command(cls=Command)
@common_options(ROWS)
@click.option(
    "--seconds",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="For each row, at least.",
)
def main(names: tuple[str, ...], quick: bool, seconds: float, **output: Any) -> None:
    """Measure detaug's transforms against its peers', on one thread. Ratios are taken within this run."""
    settings = Settings(seconds=seconds, quick=quick)
    measures = ((name, partial(in_fresh_process, ROWS[name], settings)) for name in names or ROWS)
    measure_rows(TITLE, measures, quick, **output)


if __name__ == "__main__":
    main()
