"""Train with `detaug.DataLoader` in Ray Train, on a cluster of this machine.

The training uses `prepare_data_loader` and reports checkpoints; Ray restarts a rank that is killed.

python -m tests.peers.loops.ray_train FOLDER TRAININGS runs these trainings (a JSON list of
`Training`) one after another. It is not among the examples, since Ray's workers have no terminal to
write to.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from detaug import DataLoader, fingerprint
from tests.peers.loops.ranks import environment_without_ranks
from tests.support.numbers import Numbers, samples

EPOCHS = 3
#: The step after which rank 0 is killed: the third of the second epoch.
KILLED_AT = 9
#: The step of the last checkpoint before.
SAVED_AT = 8
TIMEOUT = 240  # seconds, for each training

#: Variables of the cluster. By default its workers have a lower priority than all other programs,
#: and start too late on a busy machine.
CLUSTER = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "240",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class Training(NamedTuple):
    """One call of TorchTrainer.fit.

    Attributes:
        num_ranks: number of Ray's workers.
        workers: processes of each rank's loader.
        killed_at: the step after which rank 0 is killed by SIGKILL, once; 0: never.
    """

    num_ranks: int
    workers: int
    killed_at: int = 0


def train(config: dict[str, Any]) -> None:
    """Train as in Ray's guide to PyTorch, and write a line for each step.

    The differences from the guide are one import, shard=True, and the loader's state in the
    checkpoint.
    """
    import ray.train.torch

    loader: DataLoader[torch.Tensor] = DataLoader(
        Numbers(), 2, shuffle=True, num_workers=config["workers"], seed=3, shard=True
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
    context = ray.train.get_context()
    rank = context.get_world_rank()
    lines = Path(config["folder"], f"rank{rank}.txt")
    for epoch in range(first_epoch, EPOCHS):
        if context.get_world_size() > 1:
            batches.sampler.set_epoch(epoch)
        for count, batch in enumerate(batches, 1):
            loss = network(batch).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            write(lines, f"slices {samples(batch)}: loss {loss:.6f}")
            kill_once(lines, config["killed_at"])
            state = {"network": network.state_dict(), "loader": loader.state_dict(), "epoch": epoch}
            if count % 2 == 0:
                report(state, rank)
    if rank == 0:
        write(lines, f"weights {weights_fingerprint(network)}")


def weights_fingerprint(network: torch.nn.Module) -> str:
    """Return the fingerprint of the weights, whether Ray has wrapped the network or not."""
    weights = {}
    for name, tensor in network.state_dict().items():
        weights[name.removeprefix("module.")] = tensor
    return fingerprint(weights)


def write(file: Path, line: str) -> None:
    """Append a line to a file."""
    with file.open("a") as lines:
        lines.write(f"{line}\n")


def kill_once(lines: Path, killed_at: int) -> None:
    """Kill this rank after the line of the step `killed_at`, unless it was killed before."""
    from ray import train as ray_train

    marker = lines.with_name("killed")
    if len(lines.read_text().splitlines()) != killed_at or marker.exists():
        return
    # This waits until Ray has all checkpoints that were reported.
    ray_train.get_all_reported_checkpoints()
    marker.touch()
    os.kill(os.getpid(), signal.SIGKILL)


def report(state: dict[str, Any], rank: int) -> None:
    """Report to Ray, as all ranks must; only rank 0 passes a checkpoint."""
    from ray import train as ray_train

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if rank == 0:
            torch.save(state, Path(folder, "state.pt"))
            checkpoint = ray_train.Checkpoint.from_directory(folder)
        ray_train.report({}, checkpoint=checkpoint)


def run(trainings: Sequence[Training]) -> list[list[list[str]]]:
    """Return the lines of each rank of each training."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", __name__, folder, json.dumps(trainings)],
            env=environment_without_ranks() | CLUSTER,
            capture_output=True,
            text=True,
            timeout=TIMEOUT * (1 + len(trainings)),
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-20000:])
        lines = []
        for index in range(len(trainings)):
            files = sorted(Path(folder, str(index)).glob("rank*"))
            lines.append([file.read_text().splitlines() for file in files])
        return lines


def main() -> None:
    """Run the trainings of the command line."""
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    root = Path(sys.argv[1])
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 2**20,
    )
    for index, values in enumerate(json.loads(sys.argv[2])):
        training = Training(*values)
        folder = root / str(index)
        folder.mkdir()
        storage = str(folder / "ray")
        failures = FailureConfig(max_failures=1)
        trainer = TorchTrainer(
            train,
            train_loop_config={"folder": str(folder), **training._asdict()},
            scaling_config=ScalingConfig(num_workers=training.num_ranks),
            run_config=RunConfig(storage_path=storage, failure_config=failures),
        )
        trainer.fit()
    ray.shutdown()


if __name__ == "__main__":
    main()
