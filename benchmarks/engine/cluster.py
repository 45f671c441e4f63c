"""Rows: what a batch costs that comes from a Ray cluster, and how many its driver, or the parent of local processes, can take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import psutil
from batchgenerators.dataloading.data_loader import DataLoader

from benchmarks.engine.loaders import Integers, ReadyLoader, ready_batch
from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SEED
from benchmarks.measure import Ratio, in_fresh_process, interleaved, seconds_per_batch
from benchmarks.report import Check, Row, ratio_check

WARMUP, BATCHES, ROUNDS = 40, 200, 3
TINY_WARMUP, TINY = 1000, 10_000
#: Workers side by side, however few cores there are: most of them are idle, since one of them makes such batches faster than
#: anybody takes them.
NUMBERS = (1, 2, 4, 8, 16, 32, 48, 64)
QUICK_NUMBERS = (1, 4)

#: Message-only batches/s that the coordinator takes.
CEILING = 5_000.0
#: The share of the best rate at which it counts as reached.
SATURATED = 0.95
#: Seconds for the workers to start, and private bytes of an actor: each imports torch.
START_PATIENCE, ACTOR_BYTES = 400.0, 330e6
#: Ray ends actors where a node uses more of its memory than this.
MEMORY_SHARE = 0.95


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
                loader, None, 0, num_cached, seed=SEED, check_every=0, executor=executor
            ) as augmenter:
                yield augmenter
        finally:
            ray.shutdown()


@contextmanager
def _local(loader: DataLoader, processes: int, num_cached: int) -> Iterator[Any]:
    from detaug import DeterministicAugmenter

    with DeterministicAugmenter(
        loader, None, processes, num_cached, seed=SEED, check_every=0, start_method="fork"
    ) as augmenter:
        yield augmenter


def measure_cluster_transport(settings: Settings) -> Row:
    """A ready batch of 25 MB from actors on this node, against worker processes."""
    rounds, batches = settings.rounds(ROUNDS), settings.batches(BATCHES)
    seconds = interleaved(
        ("Ray", "local processes"), rounds, lambda name: in_fresh_process(_transport, name, settings, batches)
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
        settings={"actors": settings.processes, "num_cached": settings.num_cached, "batches": batches},
        details={"seconds_per_batch": seconds},
    )


def measure_cluster_ceiling(settings: Settings) -> Row:
    """What the driver can take from actors, in messages and in bytes, by their number."""
    return _ceiling("a Ray cluster", "actors", settings)


def measure_local_ceiling(settings: Settings) -> Row:
    """What the parent can take from worker processes, in messages and in bytes, by their number."""
    return _ceiling("local processes", "processes", settings)


def _ceiling(system: str, workers: str, settings: Settings) -> Row:
    rounds, tiny, large = settings.rounds(ROUNDS), settings.batches(TINY), settings.batches(BATCHES)
    numbers = QUICK_NUMBERS if settings.quick else NUMBERS
    if "Ray" in system:
        memory = psutil.virtual_memory()
        room = memory.available - (1 - MEMORY_SHARE) * memory.total
        numbers = tuple(number for number in numbers if number * ACTOR_BYTES < room)
    batch = ready_batch()
    gigabytes = sum(array.nbytes for array in batch.values() if hasattr(array, "nbytes")) / 1e9
    rates: dict[str, dict[int, list[float]]] = {}
    for what, loader, count, factor in (
        ("message-only batches/s", Integers(), tiny, 1.0),
        (f"GB/s in batches of {1e3 * gigabytes:.0f} MB", ReadyLoader(batch), large, gigabytes),
    ):
        seconds = _by_number(system, numbers, rounds, loader, count)
        rates[what] = {number: [factor / each for each in found] for number, found in seconds.items()}
    checks = []
    for what, found in rates.items():
        best = max(median(each) for each in found.values())
        saturated = min(number for number, each in found.items() if median(each) >= SATURATED * best)
        for number, each in found.items():
            who = {"actors": "actor", "processes": "process"}[workers] if number == 1 else workers
            name = f"{number} {who}, {what}" + (" (saturated)" if number == saturated else "")
            bound = CEILING if number == saturated and "message" in what else None
            checks.append(Check(name, None, median(each), (min(each), max(each)), ">=", bound))
    messages = next(iter(rates.values()))
    return Row(
        name=f"what the coordinator takes from {system}",
        unit="message-only batches/s",
        ours=max(median(each) for each in messages.values()),
        checks=checks,
        repeats=rounds,
        settings={
            "batches": tiny,
            "large batches": large,
            "saturated": SATURATED,
            "left out for want of memory": sorted(set(QUICK_NUMBERS if settings.quick else NUMBERS) - set(numbers)),
        },
        details={"rates": rates},
    )


def _transport(name: str, settings: Settings, batches: int) -> float:
    loader = ReadyLoader(ready_batch())
    systems = {
        "Ray": lambda: _OneCore(settings.processes).iterator(loader, settings.num_cached),
        "local processes": lambda: _local(loader, settings.processes, settings.num_cached),
    }
    with systems[name]() as iterator:
        return seconds_per_batch(iterator, WARMUP, batches, None)


def _by_number(
    system: str, numbers: Sequence[int], rounds: int, loader: DataLoader, batches: int
) -> dict[int, list[float]]:
    """Seconds per batch in each round, by the number of workers. They are started once: starting takes most of the time."""
    return {number: in_fresh_process(_seconds_of, system, number, loader, batches, rounds) for number in numbers}


def _seconds_of(system: str, workers: int, loader: DataLoader, batches: int, rounds: int) -> list[float]:
    is_tiny = isinstance(loader, Integers)
    cached = 256 if is_tiny else 6
    iterating = _OneCore(workers).iterator(loader, cached) if "Ray" in system else _local(loader, workers, cached)
    with iterating as iterator:
        next(iterator)
        deadline = time.monotonic() + START_PATIENCE
        while len(iterator._engine.worker_pids(ready=True)) < workers:
            if time.monotonic() > deadline or iterator._engine._fatal is not None:
                raise RuntimeError(f"of {workers} workers only {len(iterator._engine.worker_pids(ready=True))} started")
            time.sleep(0.2)
        # Until the memory of every batch that may be ahead has been used before.
        warmup = TINY_WARMUP if is_tiny else WARMUP + 2 * workers
        return [seconds_per_batch(iterator, warmup, batches, None) for _ in range(rounds)]
