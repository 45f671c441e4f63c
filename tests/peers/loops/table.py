"""What each library's training loop does with detaug.DataLoader, measured: python -m
tests.peers.loops.table [EXAMPLE ...]

It prints docs/loops.md's table. The programs are examples/loop_*.py: each is its library's own
tutorial with one import changed. They are run twice, with other workers, killed by SIGKILL in
mid-epoch and started again, and on two ranks.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.peers.loops.ranks import environment_of_rank, environment_without_ranks, free_port
from tests.support.preloaded import Preloaded, Program

FOLDER = Path(__file__).parents[3] / "examples"
UNTIL = Path(__file__).with_name("until.py")
STEPS = 18  # three epochs of six batches
#: Two steps into the second epoch.
KILLED_AT = 10
TIMEOUT = 240  # seconds


class Example(NamedTuple):
    """A program of a library's.

    Attributes:
        library: as the table calls it.
        module: what is imported once for all its runs.
        saved_at: the step of the last checkpoint before the kill.
        has_ranks: it runs under torchrun.
    """

    library: str
    module: str
    saved_at: int = 8
    has_ranks: bool = False


EXAMPLES = {
    "loop_ddp.py": Example("plain loop, DDP", "torch._dynamo", has_ranks=True),
    "loop_lightning.py": Example("Lightning", "pytorch_lightning", has_ranks=True),
    "loop_accelerate.py": Example("Accelerate", "accelerate", has_ranks=True),
    "loop_trainer.py": Example("HF Trainer", "transformers.trainer", has_ranks=True),
    "loop_ignite.py": Example("Ignite", "ignite.handlers"),
    "loop_monai.py": Example("MONAI", "monai.engines"),
    "loop_skorch.py": Example("skorch", "skorch", 6),
    "loop_keras.py": Example("Keras 3", "keras", 6),
}

#: The table's columns.
CLAIMS = ("two runs", "another number of workers", "killed and resumed", "two ranks and one")


class Training:
    """Runs an example in an interpreter that has imported its library."""

    def __init__(self, name: str, interpreter: Preloaded) -> None:
        self.name = name
        self.example = EXAMPLES[name]
        self._interpreter = interpreter

    @classmethod
    def of(cls, name: str) -> Training:
        return cls(name, Preloaded.of_tier(EXAMPLES[name].module, "nilearn.datasets"))

    def close(self) -> None:
        self._interpreter.close()

    def run(
        self, folder: Path, workers: int, ranks: int = 1, killed_at: int = 0
    ) -> list[list[str]]:
        """Return the lines of each rank, when all have ended.

        Args:
            folder: of its checkpoints.
            killed_at: the step after which each rank is killed by SIGKILL; 0: none is.
        """
        program = [str(killed_at), str(FOLDER / self.name), str(folder)]
        arguments = [*program, "--workers", str(workers)]
        is_launched = ranks > 1 or self.name == "loop_ddp.py"
        port = free_port()
        places = [environment_of_rank(rank, ranks, port) for rank in range(ranks)]
        programs = [self._started(arguments, place if is_launched else {}) for place in places]
        lines = []
        for rank, started in enumerate(programs):
            with started:
                out, err = started.communicate(timeout=TIMEOUT)
            assert killed_at or started.returncode == 0, err
            lines.append([line.removeprefix(f"{rank} ") for line in out.splitlines()])
        assert not killed_at or -signal.SIGKILL in [started.returncode for started in programs]
        return lines

    def _started(self, arguments: list[str], place: dict[str, str]) -> Program:
        environment = environment_without_ranks() | {"KERAS_BACKEND": "torch"} | place
        return self._interpreter.run(UNTIL, arguments, Path.cwd(), environment)


def steps(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("slices")]


def slices(lines: list[str]) -> list[str]:
    return [line.split(":")[0] for line in steps(lines)]


def weights(lines: list[str]) -> str:
    (line,) = [line for line in lines if line.startswith("weights")]
    return line


def results(lines: list[str]) -> list[str]:
    """Return what is the same in equal runs: libraries also print times."""
    return [*steps(lines), weights(lines)]


def measure(training: Training, folder: Path) -> dict[str, str]:
    """Return the table's row."""
    (whole,) = training.run(folder / "whole", 2)
    (again,) = training.run(folder / "again", 2)
    (others,) = training.run(folder / "others", 3)
    assert len(steps(whole)) == len(set(steps(whole))) == STEPS
    saved_at = training.example.saved_at
    (killed,) = training.run(folder / "killed", 3, killed_at=KILLED_AT)
    (rest,) = training.run(folder / "killed", 1)
    goes_on = steps(killed) == steps(whole)[:KILLED_AT] and weights(rest) == weights(whole)
    where = "yes" if saved_at > 6 else "from the epoch's start"
    row = {
        "two runs": "yes" if results(whole) == results(again) else "no",
        "another number of workers": "yes" if results(whole) == results(others) else "no",
        "killed and resumed": where if goes_on and steps(rest) == steps(whole)[saved_at:] else "no",
        "two ranks and one": "–",
    }
    if training.example.has_ranks:
        parts = training.run(folder / "ranks", 1, ranks=2)
        shares = [slices(whole)[rank::2] for rank in range(2)]
        row["two ranks and one"] = "yes" if [slices(part) for part in parts] == shares else "no"
    return row


def measure_ray() -> dict[str, str]:
    """Return the row of Ray Train, whose workers are killed and restarted by Ray itself."""
    from tests.peers.loops import ray_train

    killed_at = ray_train.KILLED_AT
    trainings = {
        "whole": ray_train.Training(1, 1),
        "again": ray_train.Training(1, 1),
        "others": ray_train.Training(1, 2),
        "killed": ray_train.Training(1, 1, killed_at),
        "ranks": ray_train.Training(2, 1),
    }
    lines = dict(zip(trainings, ray_train.run(list(trainings.values())), strict=True))
    (whole,) = lines["whole"]
    (killed,) = lines["killed"]
    assert len(steps(whole)) == len(set(steps(whole))) == STEPS
    goes_on = killed == [*whole[:killed_at], *whole[ray_train.SAVED_AT :]]
    shares = [slices(whole)[rank::2] for rank in range(2)]
    held = {
        "two runs": lines["again"] == [whole],
        "another number of workers": lines["others"] == [whole],
        "killed and resumed": goes_on,
        "two ranks and one": [slices(part) for part in lines["ranks"]] == shares,
    }
    return {claim: "yes" if holds else "no" for claim, holds in held.items()}


def main() -> None:
    print("| with |", " | ".join(CLAIMS), "|\n|---|" + "---|" * len(CLAIMS))
    for name in sys.argv[1:] or [*EXAMPLES, "ray"]:
        if name == "ray":
            print("| Ray Train |", " | ".join(measure_ray().values()), "|", flush=True)
            continue
        training = Training.of(name)
        with tempfile.TemporaryDirectory() as folder:
            row = measure(training, Path(folder))
        training.close()
        print(f"| {EXAMPLES[name].library} |", " | ".join(row.values()), "|", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
