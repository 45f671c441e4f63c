"""Ranks of `torch.distributed` (gloo), each a process of its own: what they see together, killed and resumed as fewer and more.

Run as a program, this file is the process that starts the ranks: it has imported torch and used none of its threads, so that
forking them is quick and safe.
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from detaug import DeterministicAugmenter
from detaug.reports.atomic_files import write_text
from tests.support.comparing import prints
from tests.support.loaders import Noise, RandomSampler, Samples

EPOCHS, BATCHES = 2, 26
#: A run is killed so many rounds after it has saved its state, which are made again.
LOST = 2


def augmenter_of(source: str, num_processes: int, **options: Any) -> DeterministicAugmenter:
    if source == "loader":
        make = options.pop("make", DeterministicAugmenter.from_torch_distributed)
        return make(RandomSampler(), Noise(), num_processes, batches_per_epoch=BATCHES, **options)
    options.pop("make", None)
    return DeterministicAugmenter.from_dataset(Samples(2 * BATCHES), 2, num_processes=num_processes, **options)


def train(rank: int, world_size: int, folder: Path, source: str, tail: str, run: int, saves_at: int | None) -> None:
    """A rank. Each batch is a line of its file; in round `saves_at` one rank saves the state, and another is killed later."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet{run}", rank=rank, world_size=world_size
    )
    options: dict[str, Any] = {"tail": tail}
    if source == "data set":
        options |= {"rank": rank, "world_size": world_size, "seed": 12}
    augmenter = augmenter_of(source, rank % 2, **options)
    state = folder / "state.json"
    if state.exists():
        augmenter.load_state_dict(json.loads(state.read_text()))
    rounds = 0
    with open(folder / f"run{run}rank{rank}", "w", buffering=1) as lines:
        for epoch in range(augmenter.epoch, EPOCHS):
            augmenter.set_epoch(epoch)
            while True:
                at = augmenter.epoch, augmenter.step
                batch = next(augmenter, None)
                if batch is None:
                    break
                print(*at, *prints([batch]), file=lines)
                rounds += 1
                torch.distributed.barrier()
                if rounds == saves_at and rank == world_size // 2:
                    write_text(state, json.dumps(augmenter.state_dict()))
                torch.distributed.barrier()
                if saves_at is not None and rounds == saves_at + LOST and rank == world_size - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
    augmenter.close()


def run_ranks(folder: Path, source: str, tail: str, runs: list[tuple[int, int | None]]) -> None:
    """One number of ranks after the other; where one of them dies, its run is over."""
    context = multiprocessing.get_context("fork")
    for run, (world_size, saves_at) in enumerate(runs):
        ranks = [
            context.Process(target=train, args=(rank, world_size, folder, source, tail, run, saves_at))
            for rank in range(world_size)
        ]
        for rank in ranks:
            rank.start()
        if saves_at is not None:
            ranks[-1].join()
            assert ranks[-1].exitcode == -signal.SIGKILL
            for rank in ranks:
                rank.kill()
        for rank in ranks:
            rank.join()
        if saves_at is None:
            assert [rank.exitcode for rank in ranks] == [0] * world_size


def seen_by(folder: Path, run: int, world_size: int) -> list[tuple[int, int, str]]:
    """(epoch, step, fingerprint) of all ranks."""
    found = []
    for rank in range(world_size):
        for line in (folder / f"run{run}rank{rank}").read_text().splitlines():
            epoch, step, print_ = line.split()
            found.append((int(epoch), int(step), print_))
    return sorted(found)


@pytest.mark.parametrize(
    ("source", "tail", "runs"),
    [
        ("loader", "drop", [(4, 3), (2, 4), (1, None)]),  # 12 steps, 8 more, and the rest of 26
        ("data set", "pad", [(2, 5), (4, None)]),
        pytest.param("loader", "pad", [(2, 5), (4, 2), (3, None)], marks=pytest.mark.slow),
        pytest.param("data set", "drop", [(4, 2), (3, 4), (2, None)], marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_killed_ranks_go_on_as_others_with_the_sequence_of_a_single_process(
    tmp_path: Path, source: str, tail: str, runs: list[tuple[int, int | None]]
) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "DETAUG_SEED")}
    path = os.pathsep.join([str(Path(__file__).parents[3]), kept.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path), source, tail, json.dumps(runs)],
        env={**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    state = json.loads((tmp_path / "state.json").read_text())
    with augmenter_of(source, 0, make=DeterministicAugmenter, seed=state["seed"]) as alone:
        expected = {(epoch, step): print_ for epoch in range(EPOCHS) for step, print_ in enumerate(prints(alone))}
    reached, seen = 0, []
    for run, (world_size, saves_at) in enumerate(runs):
        lines = seen_by(tmp_path, run, world_size)
        assert all(expected[epoch, step] == print_ for epoch, step, print_ in lines)
        if saves_at is not None:
            assert (0, reached + saves_at * world_size) in [line[:2] for line in lines], "it was killed later"
            reached += saves_at * world_size
            lines = [line for line in lines if line[:2] < (0, reached)]
        seen += [line[:2] for line in lines]
    last = runs[-1][0]
    for epoch, left in enumerate([(BATCHES - reached) % last, BATCHES % last]):
        steps = list(range(BATCHES - left if tail == "drop" else BATCHES))
        padding = list(range((last - left) % last if tail == "pad" else 0))
        assert sorted(step for at, step in seen if at == epoch) == sorted(steps + padding)


if __name__ == "__main__":
    run_ranks(Path(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
