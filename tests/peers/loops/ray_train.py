"""Ray Train with detaug.DataLoader: `prepare_data_loader`, reported checkpoints, and a worker that
is killed and restarted.

python -m tests.peers.loops.ray_train FOLDER RANKS WORKERS KILLED_AT prints the lines of a training,
as examples/loop_*.py do. It is no example: Ray's workers write where no terminal is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from detaug import DataLoader, fingerprint
from tests.peers.loops.ranks import environment_without_ranks
from tests.support.numbers import Numbers, samples

EPOCHS = 3
STEPS = 18
KILLED_AT = 10
SAVED_AT = 8


def train(config: dict[str, Any]) -> None:
    """As in Ray's guide to PyTorch, with one import changed, shard=True, and the loader's state in
    the checkpoint.
    """
    import ray.train.torch

    loader = DataLoader(
        Numbers(), 2, shuffle=True, num_workers=config["workers"], seed=3, shard=config["shard"]
    )
    batches = ray.train.torch.prepare_data_loader(loader)
    torch.manual_seed(0)
    network = ray.train.torch.prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(network.parameters(), 1e-3)
    first_epoch = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"))
        network.load_state_dict(state["network"])
        loader.load_state_dict(state["loader"])
        first_epoch = state["epoch"]
    rank = ray.train.get_context().get_world_rank()
    lines = Path(config["folder"], f"rank{rank}.txt")
    marker = Path(config["folder"], f"killed{rank}")
    for epoch in range(first_epoch, EPOCHS):
        batches.sampler.set_epoch(epoch)
        for number, batch in enumerate(batches, 1):
            loss = network(batch).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with lines.open("a") as file:
                file.write(f"slices {samples(batch)}: loss {loss:.6f}\n")
            num_lines = len(lines.read_text().splitlines())
            if num_lines == config["killed_at"] and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            state = {"network": network.state_dict(), "loader": loader.state_dict(), "epoch": epoch}
            if number % 2 == 0:
                report(state, rank)
    if rank == 0:
        weights = {name.removeprefix("module."): v for name, v in network.state_dict().items()}
        with lines.open("a") as file:
            file.write(f"weights {fingerprint(weights)}\n")


def report(state: dict[str, Any], rank: int) -> None:
    """Report a checkpoint; every rank must, and rank 0 has it."""
    from ray import train as ray_train

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if rank == 0:
            torch.save(state, Path(folder, "state.pt"))
            checkpoint = ray_train.Checkpoint.from_directory(folder)
        ray_train.report({}, checkpoint=checkpoint)


def run(ranks: int, workers: int, killed_at: int = 0, shard: bool = True) -> list[list[str]]:
    """Return the lines of each rank."""
    with tempfile.TemporaryDirectory() as folder:
        config = {"folder": folder, "workers": workers, "killed_at": killed_at, "shard": shard}
        command = [sys.executable, "-m", __name__, json.dumps({**config, "ranks": ranks})]
        done = subprocess.run(
            command, env=environment_without_ranks(), capture_output=True, text=True, timeout=280
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-20000:])
        files = [Path(folder, f"rank{rank}.txt") for rank in range(ranks)]
        return [file.read_text().splitlines() for file in files]


def main() -> None:
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    config = json.loads(sys.argv[1])
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    TorchTrainer(
        train,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=config["ranks"]),
        run_config=RunConfig(
            storage_path=config["folder"], failure_config=FailureConfig(max_failures=1)
        ),
    ).fit()


if __name__ == "__main__":
    main()
