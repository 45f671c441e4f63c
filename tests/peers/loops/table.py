"""What loaders and training loops promise, measured: `python -m tests.peers.loops.table` prints docs/loops.md's table.

Every library reads 16 samples in shuffled batches of 2, each with a random number, in the way that its own documentation shows
for a training that is to be reproducible and to go on after a crash. A cell is a program of its own that ends within two minutes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SAMPLES, BATCH, SEED, SAVED_AT = 16, 2, 3, 3
TIMEOUT = 120

#: The samples of a batch, and their random numbers.
Batch = tuple[list[int], list[float]]


class Numbers(Dataset[torch.Tensor]):
    """Each item is (its index, a random number)."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return draw(index)


def draw(index: int, generator: Any = np.random) -> torch.Tensor:
    """An item. The worker that makes one in the middle of the epoch is killed once, where that is asked for."""
    wanted = Path(os.environ["TABLE_TOLD"], "kill")
    if index == SAMPLES // 2 and wanted.exists():
        wanted.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    number = float(generator.random()) + (float(torch.rand(())) if generator is np.random else 0)
    return torch.tensor([float(index), number], dtype=torch.float64)


class Run(NamedTuple):
    """One epoch, or the rest of one.

    Attributes:
        workers: worker processes.
        load: the folder of the run that this one continues.
        save: where the library saves after `SAVED_AT` batches of each rank.
        taken: called with every batch.
    """

    workers: int
    load: Path | None
    save: Path | None
    taken: Callable[[Batch], None]

    def take(self, batch: torch.Tensor) -> None:
        self.taken((batch[:, 0].int().tolist(), batch[:, 1].tolist()))


def place() -> tuple[int, int]:
    """This process's rank, and how many there are, as torchrun says."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def read(run: Run, loader: Any) -> None:
    """A plain loop, which saves the loader's state where it has one."""
    stateful = hasattr(loader, "state_dict")
    if run.load and stateful:
        loader.load_state_dict(torch.load(run.load / "loader.pt", weights_only=False))
    for number, batch in enumerate(loader, 1):
        run.take(batch)
        if run.save and number == SAVED_AT and stateful:
            state = loader.state_dict()  # of every rank, as some wait for each other
            if place()[0] == 0:
                torch.save(state, run.save / "loader.pt")


def sampler(dataset: Any) -> dict[str, Any]:
    rank, world = place()
    if world > 1:
        return {"sampler": DistributedSampler(dataset, world, rank, seed=SEED)}
    return {"shuffle": True, "generator": torch.Generator().manual_seed(SEED)}


def seed_all() -> None:
    np.random.seed(SEED)
    torch.manual_seed(SEED)


def torch_dataloader(run: Run) -> None:
    seed_all()
    read(run, DataLoader(Numbers(), BATCH, num_workers=run.workers, **sampler(Numbers())))


def torchdata_stateful(run: Run) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    seed_all()
    read(run, StatefulDataLoader(Numbers(), BATCH, num_workers=run.workers, **sampler(Numbers())))


def grain(run: Run) -> None:
    from grain.python import Batch as Together
    from grain.python import DataLoader as GrainLoader
    from grain.python import IndexSampler, RandomMapTransform, ShardOptions

    class Draws(RandomMapTransform):
        def random_map(self, element: int, rng: np.random.Generator) -> np.ndarray:
            return draw(element, rng).numpy()

    rank, world = place()
    indices = IndexSampler(
        SAMPLES, ShardOptions(rank, world, drop_remainder=True), shuffle=True, num_epochs=1, seed=SEED
    )
    loader = iter(
        GrainLoader(
            data_source=range(SAMPLES), sampler=indices, operations=[Draws(), Together(BATCH)], worker_count=run.workers
        )
    )
    if run.load:
        loader.set_state((run.load / "loader").read_bytes())
    for number, batch in enumerate(loader, 1):
        run.take(torch.from_numpy(batch))
        if run.save and number == SAVED_AT and rank == 0:
            (run.save / "loader").write_bytes(loader.get_state())


def streaming(run: Run) -> None:
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

    class Stream(StreamingDataset):
        def __getitem__(self, at: int) -> torch.Tensor:
            return draw(super().__getitem__(at)["index"])

    rank, world = place()
    os.environ.update({"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world)})
    folder = Path(os.environ["TABLE_FOLDER"]) / "stream"
    if rank == 0 and not folder.exists():
        with MDSWriter(out=str(folder), columns={"index": "int"}) as out:
            for index in range(SAMPLES):
                out.write({"index": index})
    if world > 1:
        torch.distributed.init_process_group("gloo")
        torch.distributed.barrier()
    seed_all()
    dataset = Stream(local=str(folder), shuffle=True, shuffle_seed=SEED, batch_size=BATCH, num_canonical_nodes=1)
    read(run, StreamingDataLoader(dataset, batch_size=BATCH, num_workers=run.workers))


def detaug(run: Run) -> None:
    from detaug import DeterministicAugmenter

    make = DeterministicAugmenter.from_torch_distributed
    with make(Numbers(), batch_size=BATCH, num_processes=run.workers, seed=SEED) as augmenter:
        read(run, augmenter.loader())


LIBRARIES: dict[str, Callable[[Run], None]] = {
    "torch DataLoader": torch_dataloader,
    "StatefulDataLoader": torchdata_stateful,
    "Grain": grain,
    "Streaming": streaming,
    "detaug": detaug,
}
MODULES = {"StatefulDataLoader": "torchdata", "Grain": "grain", "Streaming": "streaming"}


# --- the rows: each runs the library in programs of their own ------------------------------------------------------------


def batches(library: str, workers: int, load: Path | None = None, save: Path | None = None, ranks: int = 1, kill: bool = False,
            folder: Path | None = None) -> list[Batch] | None:  # fmt: skip
    """The batches of a run, rank after rank; None where it did not come to its end."""
    arguments = ["-m", "tests.peers.loops.table", "run", library, str(workers), str(load or ""), str(save or "")]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)] if ranks > 1 else []
    with tempfile.TemporaryDirectory() as told:
        if kill:
            Path(told, "kill").touch()
        environment = os.environ | {"TABLE_TOLD": told, "TABLE_FOLDER": str(folder or told)}
        command = [sys.executable, *launcher, *arguments]
        try:
            subprocess.run(command, env=environment, capture_output=True, timeout=TIMEOUT, check=True)
        except subprocess.SubprocessError:
            return None
        files = sorted(Path(told).glob("rank*.json"))
        if len(files) != ranks or Path(told, "kill").exists():
            return None
        return [tuple(batch) for file in files for batch in json.loads(file.read_text())]


def ids(found: list[Batch] | None) -> list[list[int]]:
    return [samples for samples, _ in found or []]


def measure(library: str) -> dict[str, bool]:
    """The table's column."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one, three = (batches(library, workers, folder=folder) for workers in (1, 3))
        whole = batches(library, 2, save=folder, folder=folder)
        rest = batches(library, 2, load=folder, folder=folder)
        killed = batches(library, 2, kill=True, folder=folder)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ranks = batches(library, 1, save=folder, ranks=2, folder=folder)
        alone = batches(library, 1, load=folder, folder=folder)
    return {
        "Same order for any number of workers": one is not None and ids(one) == ids(three),
        "Exact resume in mid-epoch": bool(rest) and ids(whole)[SAVED_AT:] == ids(rest),
        "Same augmentations after the resume": bool(rest) and whole is not None and whole[SAVED_AT:] == rest,
        "Goes on when a worker is killed": whole is not None and whole == killed,
        "Goes on with another number of ranks": bool(ranks and alone) and _once_each(ranks, alone),
    }


def _once_each(ranks: list[Batch], alone: list[Batch]) -> bool:
    """Whether what two ranks had taken when they were saved, and what one gave afterwards, is the epoch."""
    half = len(ranks) // 2
    seen = ids(ranks[:SAVED_AT]) + ids(ranks[half : half + SAVED_AT]) + ids(alone)
    return sorted(chain.from_iterable(seen)) == list(range(SAMPLES))


def main() -> None:
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["run"]:
        _, _, library, workers, load, save = sys.argv
        found: list[Batch] = []
        LIBRARIES[library](Run(int(workers), Path(load) if load else None, Path(save) if save else None, found.append))
        Path(os.environ["TABLE_TOLD"], f"rank{place()[0]}.json").write_text(json.dumps(found))
        return
    columns = {library: measure(library) for library in sys.argv[1:] or LIBRARIES}
    print("| |", " | ".join(columns), "|\n|---|" + "---|" * len(columns))
    for row in next(iter(columns.values())):
        print(f"| {row} |", " | ".join("yes" if found[row] else "no" for found in columns.values()), "|")


if __name__ == "__main__":
    main()
