"""`python -m benchmarks engine`: the way of batches from workers to the loop, and their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from benchmarks.calls import Stopwatch, alternate
from benchmarks.engine import short_runs
from benchmarks.engine.loaders import (
    STOCK,
    SYSTEMS,
    TORCH,
    HeavyTailLoader,
    InSlotLoader,
    ReadyLoader,
    batch_number_for,
    detaug,
    numbered_loader,
    ready_batch,
)
from benchmarks.engine.short_runs import UNCHECKED
from benchmarks.report import OURS, Row, Unit, row_of
from benchmarks.rows import rows_command
from benchmarks.settings import WORKERS, Measure, Settings
from detaug.tools.bench.timing import consume, in_fresh_process, interleaved

#: Batches of a round, and those before it that are not timed.
BATCHES = 300
WARM_UP = 40

# --- transport of a ready 25 MB batch -------------------------------------------------------------

#: A clone and a copy in one process: no engine of this kind is much faster.
FLOOR = "clone + memcpy"

#: In its first seconds detaug makes its slots and checks the first batches, which takes a core two
#: seconds once in a training. Afterwards it checks one batch in a hundred.
DETAUGS_WARM_UP = 5.0


def _transport(kind: type[ReadyLoader], settings: Settings, system: str) -> float:
    """Time a consumer that takes each batch and lets the last one go.

    Args:
        kind: detaug's loader; the other systems clone the batch.
        settings: how long.
        system: which.
    """
    batches = settings.batches(BATCHES)
    if system == FLOOR:
        return _clone_and_copy(batches)
    warm_up_seconds = 0.0
    if system != OURS:
        kind = ReadyLoader
    elif not settings.quick:
        warm_up_seconds = DETAUGS_WARM_UP
    with SYSTEMS[system](kind(ready_batch()), WORKERS) as iterator:
        consumption = consume(
            iterator, warm_up=WARM_UP, warm_up_seconds=warm_up_seconds, least=batches
        )
    return consumption.seconds_per_batch


def _clone_and_copy(batches: int) -> float:
    """Return the seconds for cloning the batch and copying it into memory that is there already."""
    # One thread, as a worker has.
    torch.set_num_threads(1)
    batch = ready_batch()
    buffers = {name: torch.zeros_like(tensor) for name, tensor in batch.items()}

    def clone_and_copy(_: int, stopwatch: Stopwatch) -> None:
        with stopwatch:
            for name, tensor in batch.items():
                buffers[name].copy_(tensor.clone())

    timed = alternate({FLOOR: clone_and_copy}, range(WARM_UP + batches))[FLOOR]
    return sum(seconds.wall for seconds in timed[WARM_UP:]) / batches


# --- other rows -----------------------------------------------------------------------------------

#: While one worker makes a slow batch, each other one finishes ten. Any ordered engine has to keep
#: those somewhere; with fewer places the loss belongs to the setting and not to the engine.
TAIL_WORKERS = replace(WORKERS, num_cached=HeavyTailLoader.TAIL_FACTOR * (WORKERS.processes - 1))


def _heavy_tail(settings: Settings, system: str) -> float:
    """Time 25 MB batches, one in twenty of which takes ten times as long as the others."""
    loader = HeavyTailLoader(ready_batch(), batch_number_for(system))
    with SYSTEMS[system](loader, TAIL_WORKERS) as iterator:
        batches = settings.batches(BATCHES)
        return consume(iterator, warm_up=WARM_UP, least=batches).seconds_per_batch


def _first_batch(_: Settings, system: str) -> float:
    """Time a system from its start to its first batch, which is ready: there is no other wait."""
    loader = ReadyLoader(ready_batch())
    started = Stopwatch()
    with started:
        # Not a ``with`` block: its end, which stops the workers, is not timed.
        running = SYSTEMS[system](loader, WORKERS)
        next(running.__enter__())
    running.__exit__(None, None, None)
    return started.wall


#: Batches of a round of nnU-Net's own loader. Every worker of the stock pipeline has then timed the
#: algorithms of its blur (seconds, once).
NNUNETS_BATCHES = 72
NNUNETS_WARM_UP = 24

#: nnU-Net's epoch.
EPOCH = 250


def _nnunet(settings: Settings, system: str) -> float:
    """Time steady state; both systems make the same numbered batches."""
    loader = numbered_loader(settings.data, batch_number_for(system))
    with SYSTEMS[system](loader, WORKERS) as iterator:
        batches = settings.batches(NNUNETS_BATCHES)
        return consume(iterator, warm_up=NNUNETS_WARM_UP, least=batches).seconds_per_batch


def _epoch(settings: Settings, name: str) -> float:
    """Return the CPU seconds that all processes take for an epoch, with or without the check.

    It is the second epoch, with the check's share of a long training. In the first one an
    interpreter with another hash seed makes a batch, which happens once in a training.
    """
    loader = numbered_loader(settings.data, batch_number_for(OURS))
    options = {} if name == OURS else {"check": False}
    batches = settings.batches(EPOCH)
    with detaug(loader, WORKERS, **options) as augmenter:
        return consume(augmenter, warm_up=batches, least=batches).cpu


def measure(
    name: str,
    unit: Unit,
    systems: tuple[str, ...],
    rounds: int,
    cost: Callable[[Settings, str], float],
    settings: Settings,
) -> Row:
    """Return the row of ``cost(settings, system)``, each in a process of its own."""
    measure_cost = partial(in_fresh_process, cost, settings)
    return row_of(name, unit, interleaved(systems, settings.rounds(rounds), measure_cost))


IN_SLOT = "transport, made in the slot"
TAIL = f"heavy-tailed cost, num_cached={TAIL_WORKERS.num_cached}"
NNUNETS = "nnU-Net's 3-D loader and transforms"
CHECK = "the run-time check, CPU time of an epoch of nnU-Net's 3-D loader"
START = "one batch from start to end, CPU time"
SMALL = f"{short_runs.SMALL_BATCHES} batches of 200 kB from start to end"
SHORT = f"{short_runs.MONAIS_BATCHES} batches of MONAI's, 64³, from start to end, CPU time"
LONGER = f"{short_runs.MORE_BATCHES} batches of MONAI's, 64³, by DataLoader, CPU time"

ALL = (OURS, STOCK, TORCH)
BOTH = (OURS, UNCHECKED)
COPIED = partial(_transport, ReadyLoader)
MADE_IN_SLOT = partial(_transport, InSlotLoader)

ROWS: dict[str, Measure] = {
    "transport": partial(measure, "transport", "batches/s", (*ALL, FLOOR), 7, COPIED),
    "transport-in-slot": partial(measure, IN_SLOT, "batches/s", (*ALL, FLOOR), 7, MADE_IN_SLOT),
    "heavy-tail": partial(measure, TAIL, "batches/s", (OURS, STOCK), 5, _heavy_tail),
    "first-batch": partial(measure, "first batch, ready loader", "ms", ALL, 15, _first_batch),
    "nnunet": partial(measure, NNUNETS, "batches/s", (OURS, STOCK), 5, _nnunet),
    "check": partial(measure, CHECK, "s", BOTH, 3, _epoch),
    "check-start": partial(measure, START, "s", BOTH, 7, short_runs.one_batch),
    "check-small-batches": partial(
        measure, SMALL, "s", (*BOTH, STOCK), 7, short_runs.small_batches
    ),
    "check-short-epoch": partial(measure, SHORT, "s", (*BOTH, TORCH), 7, short_runs.short_epoch),
    "data-loader": partial(measure, LONGER, "s", (OURS, TORCH), 3, short_runs.data_loader),
}

#: Rows that no page shows: what the check costs, and what a short run does.
NOT_SHOWN = ("check", "check-start", "check-small-batches", "check-short-epoch", "data-loader")

main = rows_command("detaug's engine against other systems", ROWS)
