"""Row: what a batch costs that comes from a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from batchgenerators.dataloading.data_loader import DataLoader

from benchmarks.engine.loaders import ReadyLoader, ready_batch
from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SEED
from benchmarks.engine.timing import seconds_per_batch
from benchmarks.report import Row, ratio_check
from detaug.bench.measuring import Ratio, in_fresh_process, interleaved

WARMUP, BATCHES, ROUNDS = 40, 200, 3


@dataclass(frozen=True)
class _OneCore:
    """Actors that claim no CPU, so that more of them than cores may wait side by side."""

    actors: int

    @contextmanager
    def iterator(self, loader: DataLoader, num_cached: int) -> Iterator[Any]:
        import ray

        from detaug import DeterministicAugmenter
        from detaug.ray import RayExecutor

        ray.init(
            "local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            object_store_memory=2**31,
        )
        executor = RayExecutor(self.actors, num_cpus=0.0)
        try:
            with DeterministicAugmenter(
                loader, None, 0, num_cached, seed=SEED, check=False, executor=executor
            ) as augmenter:
                yield augmenter
        finally:
            ray.shutdown()


@contextmanager
def _local(loader: DataLoader, processes: int, num_cached: int) -> Iterator[Any]:
    from detaug import DeterministicAugmenter

    with DeterministicAugmenter(
        loader, None, processes, num_cached, seed=SEED, check=False
    ) as augmenter:
        yield augmenter


def measure_cluster_transport(settings: Settings) -> Row:
    """A ready batch of 25 MB from actors on this node, against worker processes."""
    rounds, batches = settings.rounds(ROUNDS), settings.batches(BATCHES)
    seconds = interleaved(
        ("Ray", "local processes"),
        rounds,
        lambda name: in_fresh_process(_transport, name, settings, batches),
    )
    return Row(
        name="a ready 25 MB batch through Ray",
        unit="batches/s",
        ours=1 / median(seconds["Ray"]),
        checks=[
            ratio_check(
                "local processes",
                1 / median(seconds["local processes"]),
                Ratio.of(seconds["local processes"], seconds["Ray"]),
            )
        ],
        repeats=rounds,
        settings={
            "actors": settings.processes,
            "num_cached": settings.num_cached,
            "batches": batches,
        },
        details={"seconds_per_batch": seconds},
    )


def _transport(name: str, settings: Settings, batches: int) -> float:
    loader = ReadyLoader(ready_batch())
    systems = {
        "Ray": lambda: _OneCore(settings.processes).iterator(loader, settings.num_cached),
        "local processes": lambda: _local(loader, settings.processes, settings.num_cached),
    }
    with systems[name]() as iterator:
        return seconds_per_batch(iterator, WARMUP, batches, None)
