"""What loaders and training loops promise, measured: `python -m tests.peers.loops.other_loaders`
prints docs/loops.md's table.

Every library reads 16 samples in shuffled batches of 2, each with a random number, in the way that
its own documentation shows for a training that is to be reproducible and to go on after a crash. A
cell is a program of its own that ends within two minutes.
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
PROGRAM = ["-m", "tests.peers.loops.other_loaders", "run"]
#: This process's place, as torchrun says.
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

#: The samples of a batch, and their random numbers.
Batch = tuple[list[int], list[float]]


class Numbers(Dataset[torch.Tensor]):
    """Each item is (its index, a random number)."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return draw(index)


def draw(index: int, generator: Any = np.random) -> torch.Tensor:
    """An item. The worker that makes one in the middle of the epoch is killed once, where that is
    asked for.
    """
    wanted = Path(os.environ["TABLE_TOLD"], "kill")
    if index == SAMPLES // 2 and wanted.exists():
        wanted.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    number = float(generator.random()) + (float(torch.rand(())) if generator is np.random else 0)
    return torch.tensor([float(index), number], dtype=torch.float64)


class Run(NamedTuple):
    """One epoch of a library, or the rest of one. A `folder` has what the runs of a column share;
    there the state is saved after `SAVED_AT` batches of each rank, or loaded, as `state` says.
    """

    library: str
    workers: int
    folder: str
    state: str = ""
    ranks: int = 1
    kill: bool = False

    def batches(self) -> list[Batch]:
        """Rank after rank, made by programs of their own; empty where one did not come to its end."""
        torchrun = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc_per_node",
            str(self.ranks),
        ]
        command = [
            sys.executable,
            *(torchrun if self.ranks > 1 else []),
            *PROGRAM,
            json.dumps(self),
        ]
        with tempfile.TemporaryDirectory() as told:
            kill = Path(told, "kill")
            if self.kill:
                kill.touch()
            try:
                environment = os.environ | {"TABLE_TOLD": told}
                subprocess.run(
                    command, env=environment, capture_output=True, timeout=TIMEOUT, check=True
                )
            except subprocess.SubprocessError:
                return []
            made = [json.loads(file.read_text()) for file in sorted(Path(told).glob("rank*.json"))]
            return [] if kill.exists() else [tuple(batch) for batches in made for batch in batches]


# --- the libraries: each gives its loader, in so many worker processes
# -------------------------------------------------------


def sampler(dataset: Any) -> dict[str, Any]:
    if RANKS > 1:
        return {"sampler": DistributedSampler(dataset, RANKS, RANK, seed=SEED)}
    return {"shuffle": True, "generator": torch.Generator().manual_seed(SEED)}


def torch_dataloader(run: Run) -> Any:
    return DataLoader(Numbers(), BATCH, num_workers=run.workers, **sampler(Numbers()))


def torchdata_stateful(run: Run) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(Numbers(), BATCH, num_workers=run.workers, **sampler(Numbers()))


def grain(run: Run) -> Any:
    from grain.python import Batch as Together
    from grain.python import DataLoader as GrainLoader
    from grain.python import IndexSampler, RandomMapTransform, ShardOptions

    class Draws(RandomMapTransform):
        def random_map(self, element: int, rng: np.random.Generator) -> np.ndarray:
            return draw(element, rng).numpy()

    shard = ShardOptions(RANK, RANKS, drop_remainder=True)
    indices = IndexSampler(SAMPLES, shard, shuffle=True, num_epochs=1, seed=SEED)
    operations = [Draws(), Together(BATCH)]
    loader = iter(
        GrainLoader(
            data_source=range(SAMPLES),
            sampler=indices,
            operations=operations,
            worker_count=run.workers,
        )
    )
    loader.state_dict, loader.load_state_dict = (
        loader.get_state,
        loader.set_state,
    )  # by torch's names
    return loader


def streaming(run: Run) -> Any:
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

    class Stream(StreamingDataset):
        def __getitem__(self, at: int) -> torch.Tensor:
            return draw(super().__getitem__(at)["index"])

    os.environ.update({"LOCAL_RANK": str(RANK), "LOCAL_WORLD_SIZE": str(RANKS)})
    folder = Path(run.folder, "stream")
    if RANK == 0 and not folder.exists():
        with MDSWriter(out=str(folder), columns={"index": "int"}) as out:
            for index in range(SAMPLES):
                out.write({"index": index})
    if RANKS > 1:
        torch.distributed.init_process_group("gloo")
        torch.distributed.barrier()
    dataset = Stream(
        local=str(folder), shuffle=True, shuffle_seed=SEED, batch_size=BATCH, num_canonical_nodes=1
    )
    return StreamingDataLoader(dataset, batch_size=BATCH, num_workers=run.workers)


def detaug(run: Run) -> Any:
    from detaug import DataLoader as DetaugLoader

    order = sampler(Numbers())
    # Ranks without a process group cannot agree on a seed; a generator would be another one.
    order.pop("generator", None)
    return DetaugLoader(Numbers(), BATCH, num_workers=run.workers, seed=SEED, **order)


LIBRARIES: dict[str, Callable[[Run], Any]] = {
    "torch DataLoader": torch_dataloader,
    "StatefulDataLoader": torchdata_stateful,
    "Grain": grain,
    "Streaming": streaming,
    "detaug": detaug,
}
MODULES = {"StatefulDataLoader": "torchdata", "Grain": "grain", "Streaming": "streaming"}


def read(run: Run) -> list[Batch]:
    """A plain loop of this rank, which saves or loads the loader's state where it has one."""
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    loader, found, file = LIBRARIES[run.library](run), [], Path(run.folder, "state.pt")
    stateful = hasattr(loader, "state_dict")
    if run.state == "load" and stateful:
        loader.load_state_dict(torch.load(file, weights_only=False))
    for number, batch in enumerate(loader, 1):
        samples, numbers = torch.as_tensor(batch).T.tolist()
        found.append(([int(sample) for sample in samples], numbers))
        if run.state == "save" and number == SAVED_AT and stateful:
            state = loader.state_dict()  # of every rank, as some wait for each other
            if RANK == 0:
                torch.save(state, file)
    return found


# --- the rows
# ----------------------------------------------------------------------------------------------------------


def measure(library: str) -> dict[str, bool]:
    """The table's column."""
    with tempfile.TemporaryDirectory() as folder:
        one, three = (Run(library, workers, folder).batches() for workers in (1, 3))
        whole, rest = (Run(library, 2, folder, state).batches() for state in ("save", "load"))
        killed = Run(library, 2, folder, kill=True).batches()
    with tempfile.TemporaryDirectory() as folder:
        ranks = Run(library, 1, folder, "save", ranks=2).batches()
        alone = Run(library, 1, folder, "load").batches()
    half = len(ranks) // 2
    seen = ids(ranks[:SAVED_AT]) + ids(ranks[half : half + SAVED_AT]) + ids(alone)
    return {
        "Same order for any number of workers": bool(one) and ids(one) == ids(three),
        "Exact resume in mid-epoch": bool(rest) and ids(whole)[SAVED_AT:] == ids(rest),
        "Same augmentations after the resume": bool(rest) and whole[SAVED_AT:] == rest,
        "Continues when a worker is killed": bool(whole) and whole == killed,
        "Continues with another number of ranks": bool(ranks)
        and sorted(chain.from_iterable(seen)) == list(range(SAMPLES)),
    }


def ids(found: list[Batch]) -> list[list[int]]:
    return [samples for samples, _ in found]


def main() -> None:
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["run"]:
        found = read(Run(*json.loads(sys.argv[2])))
        Path(os.environ["TABLE_TOLD"], f"rank{RANK}.json").write_text(json.dumps(found))
        return
    columns = {library: measure(library) for library in sys.argv[1:] or LIBRARIES}
    print("| |", " | ".join(columns), "|\n|---|" + "---|" * len(columns))
    for row in next(iter(columns.values())):
        print(
            f"| {row} |",
            " | ".join("yes" if found[row] else "no" for found in columns.values()),
            "|",
        )


if __name__ == "__main__":
    main()
