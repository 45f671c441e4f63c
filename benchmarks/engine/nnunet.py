"""Row: nnU-Net's own 3-D loader with its own transforms on real MRI, under both engines."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.engine.loaders import BatchNumber
from benchmarks.engine.systems import STOCK, SYSTEMS, batch_number_for
from benchmarks.nnunet.dataset import Preprocessed, dataset_folder, preprocessed
from benchmarks.nnunet.loaders import IN_3D, NNUNET, make_loader
from benchmarks.report import OURS, Row, row_of
from benchmarks.settings import SEED, Settings
from detaug.tools.bench.timing import Consumption, consume, in_fresh_process, interleaved

BATCHES = 72
ROUNDS = 5
#: Every worker of the stock pipeline has then timed the algorithms of its blur (seconds, once).
WARM_UP = 24


def measure_nnunet(settings: Settings, data: Path | None) -> Row:
    """Measure steady state; both systems make the same numbered batches.

    CPU time per batch is shown too: it hardly notices who else is on the machine.
    """
    batches = settings.batches(BATCHES)
    with dataset_folder(data) as root:
        cases = preprocessed(root, IN_3D.configuration)
        runs = interleaved(
            (OURS, STOCK),
            settings.rounds(ROUNDS),
            partial(in_fresh_process, _consume, cases, settings, batches),
        )
    seconds = {}
    cpu = {}
    for name, runs_of_system in runs.items():
        seconds[name] = [run.seconds_per_batch for run in runs_of_system]
        cpu[name] = [run.cpu_seconds_per_batch for run in runs_of_system]
    in_cpu_time = row_of("", "ms", cpu)
    return row_of(
        "nnU-Net's 3-D loader and transforms",
        "batches/s",
        seconds,
        {"workers": settings.workers, "batches": batches, **IN_3D.settings()},
        {
            "CPU ms per batch": in_cpu_time.ours,
            f"CPU ms per batch, {STOCK}": in_cpu_time.comparisons[0].theirs,
        },
    )


def _consume(cases: Preprocessed, settings: Settings, batches: int, system: str) -> Consumption:
    ignore_expected_warning()
    loader = numbered_loader(cases, batch_number_for(system))
    with SYSTEMS[system](loader, settings.workers) as iterator:
        return consume(iterator, warm_up=WARM_UP, least=batches)


def ignore_expected_warning() -> None:
    """Drop detaug's line on the blur that chooses its algorithm by timing, as it should."""

    def is_unexpected(record: logging.LogRecord) -> bool:
        return "benchmark=True" not in record.getMessage()

    logging.getLogger("detaug").addFilter(is_unexpected)


def numbered_loader(cases: Preprocessed, number: BatchNumber) -> Any:
    """Return nnU-Net's loader, which draws from the batch's number under every system.

    The transforms' gates make one batch cost several times another. With the same batches on both
    sides, what differs is the systems; the reseeding costs both the same 0.02 % of a batch.
    """
    from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader

    from detaug.seeding.generators import reseed_global_rngs
    from detaug.seeding.tree import SeedTree

    seeds = SeedTree(SEED)

    class NumberedLoader(nnUNetDataLoader):  # type: ignore[misc]
        def generate_train_batch(self) -> dict[str, Any]:
            reseed_global_rngs(seeds.sequence(0, number.next()))
            return super().generate_train_batch()  # type: ignore[no-any-return]

    return make_loader(NNUNET, IN_3D, cases, kind=NumberedLoader)
