"""`python -m benchmarks.nodes`: how many CPU nodes a GPU needs, at nnU-Net's speed and at detaug's."""

from __future__ import annotations

from pathlib import Path

import click
from rich import box
from rich.table import Table

from benchmarks.nodes.needs import GPUS, Gpu, Machines, cores, gigabytes_per_second, nodes
from detaug.bench.measuring import in_fresh_process
from detaug.cli.options import Command, console, json_option, write_json

#: An nnU-Net batch of 2 × 1 × 128³, float32 with labels in int16 (bytes).
BATCH_BYTES = 2 * 128**3 * (4 + 2)
MANY = 8


class _GpuType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    name = "name=milliseconds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Gpu:
        if isinstance(value, Gpu):
            return value
        name, _, text = str(value).rpartition("=")
        try:
            milliseconds = float(text)
        except ValueError:
            milliseconds = 0.0
        if not name or not milliseconds > 0:
            self.fail(f"{value!r} is not like H200=60", param, ctx)
        return Gpu(name, milliseconds / 1e3, "given")


@click.command(cls=Command)
@click.option(
    "--measured",
    type=(click.FloatRange(min=0, min_open=True), click.FloatRange(min=0, min_open=True)),
    metavar="STOCK DETAUG",
    help="CPU seconds of a batch, as `python -m benchmarks.nnunet --only 3d` shows them.  [default: measured now, minutes]",
)
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    type=_GpuType(),
    help="A GPU and its training step, e.g. H200=60.",
)
@click.option(
    "--own-cores",
    default=4,
    show_default=True,
    type=click.IntRange(min=0),
    help="Of the GPU's node, per GPU.",
)
@click.option(
    "--busy-cores",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    help="Of them, for the training.",
)
@click.option(
    "--node-cores", default=16, show_default=True, type=click.IntRange(min=1), help="Of a CPU node."
)
@click.option(
    "--slowdown",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Your cores take so many times as long as the one that was measured.",
)
@click.option(
    "--quick", is_flag=True, help="A short measurement: shows that it runs, not how fast."
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="As for `python -m benchmarks.nnunet`.",
)
@json_option
def main(
    measured: tuple[float, float] | None,
    gpus: tuple[Gpu, ...],
    own_cores: int,
    busy_cores: int,
    node_cores: int,
    slowdown: float,
    quick: bool,
    data: Path | None,
    json_file: Path | None,
) -> None:
    """Compute how many cores and CPU nodes keep a GPU busy that trains nnU-Net's 3d_fullres with batches of two."""
    machines = Machines(own_cores, busy_cores, node_cores, slowdown)
    stock, ours = measured if measured is not None else _measure(data, quick)
    output = console()
    table = Table(
        title="cores, and CPU nodes beside the GPU's own", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for name in (
        "GPU",
        "step",
        "cores: nnU-Net",
        "detaug",
        "nodes for 1 GPU: nnU-Net",
        "detaug",
        f"for {MANY} GPUs: nnU-Net",
        "detaug",
        f"GB/s for {MANY}",
    ):
        table.add_column(name, overflow="fold", justify="left" if name == "GPU" else "right")
    rows = []
    for gpu in (*GPUS, *gpus):
        row = {
            "gpu": gpu.name,
            "step_seconds": gpu.step,
            "origin": gpu.origin,
            "cores": {"nnU-Net": cores(stock, gpu, machines), "detaug": cores(ours, gpu, machines)},
            "nodes": {
                str(number): {
                    "nnU-Net": nodes(stock, gpu, machines, number),
                    "detaug": nodes(ours, gpu, machines, number),
                }
                for number in (1, MANY)
            },
            "gigabytes_per_second": gigabytes_per_second(BATCH_BYTES, gpu, MANY),
        }
        rows.append(row)
        table.add_row(
            gpu.name,
            f"{1e3 * gpu.step:.0f} ms",
            *(f"{row['cores'][system]:.1f}" for system in ("nnU-Net", "detaug")),
            *(
                str(row["nodes"][str(n)][system])
                for n in (1, MANY)
                for system in ("nnU-Net", "detaug")
            ),
            f"{row['gigabytes_per_second']:.2f}",
        )
    output.print(table)
    said = (
        "given"
        if measured is not None
        else "a short measurement"
        if quick
        else "measured on one thread"
    )
    output.print(
        f"A batch of 2 × 1 × 128³ takes {stock:.3f} CPU seconds with nnU-Net's loader and transforms, {ours:.3f} with detaug's "
        f"({said})"
        + (f"; all of it {slowdown:g} times as long" if slowdown != 1 else "")
        + ". Assumed: cores do not slow each "
        f"other down; the GPU's node has {own_cores} of its own for each GPU, of which the training takes {busy_cores}; a CPU "
        f"node has {node_cores}; the last column is what the network carries if other nodes make every batch.",
        highlight=False,
    )
    for gpu in (*GPUS, *gpus):
        output.print(f"{gpu.name}: step of {1e3 * gpu.step:.0f} ms, {gpu.origin}.", highlight=False)
    write_json(
        json_file,
        {"seconds": {"nnU-Net": stock, "detaug": ours}, "machines": vars(machines), "rows": rows},
    )


def _measure(data: Path | None, quick: bool) -> tuple[float, float]:
    """CPU seconds of a batch: (nnU-Net's, detaug's)."""
    from benchmarks.nnunet.__main__ import SPEED
    from benchmarks.nnunet.dataset import dataset_folder, preprocessed
    from benchmarks.nnunet.loaders import DETAUG, STOCK
    from benchmarks.nnunet.speed import measure_speed

    speed = SPEED["3d"]
    with dataset_folder(data) as root:
        found = preprocessed(root, speed.task.kind, speed.task.configuration)
        row = in_fresh_process(
            measure_speed, speed.name, speed.task, found, speed.bound, speed.rounds, quick
        )
    seconds = row.details["cpu_seconds"]
    stock, ours = (sorted(seconds[system])[len(seconds[system]) // 2] for system in (STOCK, DETAUG))
    return stock, ours


if __name__ == "__main__":
    main()
