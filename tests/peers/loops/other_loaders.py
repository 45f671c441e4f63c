"""Measure what loaders of several libraries promise.

`python -m tests.peers.loops.other_loaders` prints docs/loops.md's table.

Every library reads 16 samples in shuffled batches of 2, each with a random number. It does so in
the way that its own documentation shows for a training that is reproducible and continues after a
crash. Every run is a program of its own that ends within two minutes.
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

SAMPLES = 16
BATCH = 2
SEED = 3
#: The state is saved after so many batches of each rank.
SAVED_AT = 3
TIMEOUT = 120  # seconds
PROGRAM = ["-m", "tests.peers.loops.other_loaders", "run"]
#: A variable with the folder in which a program finds what it should do, and writes its batches.
FOLDER_VARIABLE = "TABLE_FOLDER"
#: In that folder: exists as long as a worker should kill itself.
KILL_FILE = "kill"
#: This process's rank, and their number, as torchrun sets them.
RANK = int(os.environ.get("RANK", 0))
RANKS = int(os.environ.get("WORLD_SIZE", 1))

#: Indices of a batch's samples, and their random numbers.
Batch = tuple[list[int], list[float]]


class Numbers(Dataset[torch.Tensor]):
    """A data set whose item `index` is (index, a random number)."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        kill_at_half(index)
        return as_item(index, float(np.random.random()) + float(torch.rand(())))


def kill_at_half(index: int) -> None:
    """Kill this process if it makes the middle sample, once, if the run asks for it."""
    kill_file = Path(os.environ[FOLDER_VARIABLE], KILL_FILE)
    if index == SAMPLES // 2 and kill_file.exists():
        kill_file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def as_item(index: int, number: float) -> torch.Tensor:
    """Return an item of a data set."""
    return torch.tensor([float(index), number], dtype=torch.float64)


class Run(NamedTuple):
    """One epoch of a library, or the rest of one.

    Attributes:
        library: a key of `LIBRARIES`.
        workers: processes of each rank's loader.
        folder: of what the runs of a column share, such as the saved state.
        state: "save" to save the loader's state after `SAVED_AT` batches of each rank, "load" to
            begin with that state, or "".
        ranks: number of ranks.
        kill: whether a worker is killed once.
    """

    library: str
    workers: int
    folder: str
    state: str = ""
    ranks: int = 1
    kill: bool = False

    def batches(self) -> list[Batch]:
        """Return the batches of all ranks, rank after rank.

        The list is empty if a program did not end by itself or no worker was killed that should be.
        """
        with tempfile.TemporaryDirectory() as folder:
            kill_file = Path(folder, KILL_FILE)
            if self.kill:
                kill_file.touch()
            try:
                subprocess.run(
                    self._command(),
                    env={**os.environ, FOLDER_VARIABLE: folder},
                    capture_output=True,
                    timeout=TIMEOUT,
                    check=True,
                )
            except subprocess.SubprocessError:
                return []
            if kill_file.exists():
                return []
            batches: list[Batch] = []
            for file in sorted(Path(folder).glob("rank*.json")):
                batches.extend(tuple(batch) for batch in json.loads(file.read_text()))
            return batches

    def _command(self) -> list[str]:
        """Return the command line of the run's program."""
        command = [sys.executable]
        if self.ranks > 1:
            command.extend(["-m", "torch.distributed.run", "--standalone"])
            command.extend(["--nproc_per_node", str(self.ranks)])
        return [*command, *PROGRAM, json.dumps(self)]


# --- the libraries: one function for each returns its loader, with the run's number of workers


def order_options(dataset: Any) -> dict[str, Any]:
    """Return the arguments of torch's DataLoader for a shuffled order."""
    if RANKS > 1:
        return {"sampler": DistributedSampler(dataset, RANKS, RANK, seed=SEED)}
    return {"shuffle": True, "generator": torch.Generator().manual_seed(SEED)}


def torch_dataloader(run: Run) -> Any:
    """Return torch's DataLoader."""
    dataset = Numbers()
    return DataLoader(dataset, BATCH, num_workers=run.workers, **order_options(dataset))


def torchdata_stateful(run: Run) -> Any:
    """Return torchdata's StatefulDataLoader."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    dataset = Numbers()
    return StatefulDataLoader(dataset, BATCH, num_workers=run.workers, **order_options(dataset))


def grain(run: Run) -> Any:
    """Return the iterator of Grain's DataLoader."""
    from grain import python as grain_python

    class Draws(grain_python.RandomMapTransform):
        def random_map(self, element: int, rng: np.random.Generator) -> np.ndarray:
            kill_at_half(element)
            return as_item(element, float(rng.random())).numpy()

    shard = grain_python.ShardOptions(RANK, RANKS, drop_remainder=True)
    sampler = grain_python.IndexSampler(SAMPLES, shard, shuffle=True, num_epochs=1, seed=SEED)
    loader = grain_python.DataLoader(
        data_source=range(SAMPLES),
        sampler=sampler,
        operations=[Draws(), grain_python.Batch(BATCH)],
        worker_count=run.workers,
    )
    iterator = iter(loader)
    # The names that `read` calls are torch's.
    iterator.state_dict = iterator.get_state
    iterator.load_state_dict = iterator.set_state
    return iterator


def streaming(run: Run) -> Any:
    """Return the StreamingDataLoader of a data set that is first written."""
    from streaming import StreamingDataLoader, StreamingDataset

    class Stream(StreamingDataset):
        def __getitem__(self, at: int) -> torch.Tensor:
            return Numbers()[super().__getitem__(at)["index"]]

    os.environ.update({"LOCAL_RANK": str(RANK), "LOCAL_WORLD_SIZE": str(RANKS)})
    folder = Path(run.folder, "stream")
    if RANK == 0 and not folder.exists():
        write_stream(folder)
    if RANKS > 1:
        torch.distributed.init_process_group("gloo")
        torch.distributed.barrier()
    dataset = Stream(
        local=str(folder), shuffle=True, shuffle_seed=SEED, batch_size=BATCH, num_canonical_nodes=1
    )
    return StreamingDataLoader(dataset, batch_size=BATCH, num_workers=run.workers)


def write_stream(folder: Path) -> None:
    """Write the data set of Streaming."""
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"index": "int"}) as out:
        for index in range(SAMPLES):
            out.write({"index": index})


def detaug(run: Run) -> Any:
    """Return detaug's DataLoader."""
    from detaug import DataLoader as DetaugLoader

    dataset = Numbers()
    options = order_options(dataset)
    # Ranks without a process group cannot agree on a seed, so it is passed; a generator would be
    # another one.
    options.pop("generator", None)
    return DetaugLoader(dataset, BATCH, num_workers=run.workers, seed=SEED, **options)


LIBRARIES: dict[str, Callable[[Run], Any]] = {
    "torch DataLoader": torch_dataloader,
    "StatefulDataLoader": torchdata_stateful,
    "Grain": grain,
    "Streaming": streaming,
    "detaug": detaug,
}
#: What has to be installed, if not torch or detaug alone.
MODULES = {"StatefulDataLoader": "torchdata", "Grain": "grain", "Streaming": "streaming"}


def read(run: Run) -> list[Batch]:
    """Return what a plain loop of this rank reads; it saves or loads the state if there is one."""
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    loader = LIBRARIES[run.library](run)
    file = Path(run.folder, "state.pt")
    has_state = hasattr(loader, "state_dict")
    if run.state == "load" and has_state:
        loader.load_state_dict(torch.load(file, weights_only=False))
    batches = []
    for count, batch in enumerate(loader, 1):
        indices, numbers = torch.as_tensor(batch).T.tolist()
        batches.append(([int(index) for index in indices], numbers))
        if run.state == "save" and count == SAVED_AT and has_state:
            # All ranks call it, since some libraries' ranks wait for each other.
            state = loader.state_dict()
            if RANK == 0:
                torch.save(state, file)
    return batches


# --- the columns


def measure(library: str) -> dict[str, str]:
    """Return the table's column of a library: "yes" or "no" for each claim."""
    with tempfile.TemporaryDirectory() as folder:
        with_1_worker = Run(library, 1, folder).batches()
        with_3_workers = Run(library, 3, folder).batches()
        whole = Run(library, 2, folder, "save").batches()
        rest = Run(library, 2, folder, "load").batches()
        killed = Run(library, 2, folder, kill=True).batches()
    claims = {
        "Same order for any number of workers": (
            with_1_worker and indices_of(with_1_worker) == indices_of(with_3_workers)
        ),
        "Exact resume in mid-epoch": rest and indices_of(whole)[SAVED_AT:] == indices_of(rest),
        "Same augmentations after the resume": rest and whole[SAVED_AT:] == rest,
        "Continues when a worker is killed": whole and whole == killed,
        "Continues with another number of ranks": continues_with_fewer_ranks(library),
    }
    return {claim: "yes" if holds else "no" for claim, holds in claims.items()}


def continues_with_fewer_ranks(library: str) -> bool:
    """Return whether one rank continues from the state of two, with every sample read once."""
    with tempfile.TemporaryDirectory() as folder:
        of_both = Run(library, 1, folder, "save", ranks=2).batches()
        rest = Run(library, 1, folder, "load").batches()
    half = len(of_both) // 2
    before_save = of_both[:SAVED_AT] + of_both[half : half + SAVED_AT]
    samples = list(chain.from_iterable(indices_of(before_save + rest)))
    return bool(of_both) and sorted(samples) == list(range(SAMPLES))


def indices_of(batches: list[Batch]) -> list[list[int]]:
    """Return the indices of the samples in each batch."""
    return [indices for indices, _ in batches]


def main() -> None:
    """Print the table, or write the batches of one run of this rank."""
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["run"]:
        batches = read(Run(*json.loads(sys.argv[2])))
        Path(os.environ[FOLDER_VARIABLE], f"rank{RANK}.json").write_text(json.dumps(batches))
        return
    columns = {library: measure(library) for library in sys.argv[1:] or LIBRARIES}
    print("| |", " | ".join(columns), "|")
    print("|---|" + "---|" * len(columns))
    for claim in next(iter(columns.values())):
        cells = [column[claim] for column in columns.values()]
        print(f"| {claim} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
