"""Measure what each library's training loop does with `detaug.DataLoader`.

python -m tests.peers.loops.table [EXAMPLE ...] prints docs/loops.md's table. The programs are
examples/loop_*.py: each is its library's own tutorial with one import changed. They are run twice,
with another number of workers, killed by SIGKILL in mid-epoch and started again, and on two ranks.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.peers.loops.ranks import environment_of_rank, environment_without_ranks, free_port
from tests.support.preloaded import Preloaded

FOLDER = Path(__file__).parents[3] / "examples"
UNTIL = Path(__file__).with_name("until.py")
#: Of a whole training: three epochs of six batches.
STEPS = 18
#: The step after which a training is killed: the fourth of the second epoch.
KILLED_AT = 10
TIMEOUT = 240  # seconds


class Example(NamedTuple):
    """A program that shows a library's loop.

    Attributes:
        library: its name in the table.
        module: name of the module that is imported once for all runs.
        saved_at: the step of the last checkpoint before the kill.
        has_ranks: whether it runs under torchrun.
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
    """Runs an example in forks of an interpreter that has imported its library.

    Args:
        name: file name of the example.
        interpreter: of which the programs are forks.
    """

    def __init__(self, name: str, interpreter: Preloaded) -> None:
        self.name = name
        self.example = EXAMPLES[name]
        self._interpreter = interpreter

    @classmethod
    def of(cls, name: str) -> Training:
        """Return the training of an example by its file name."""
        return cls(name, Preloaded.of_tier(EXAMPLES[name].module, "nilearn.datasets"))

    def close(self) -> None:
        """Let go of the interpreter."""
        self._interpreter.close()

    def run(
        self, folder: Path, workers: int, num_ranks: int = 1, killed_at: int = 0
    ) -> list[list[str]]:
        """Return the lines of each rank, when all have ended.

        Args:
            folder: of checkpoints.
            workers: of each rank's loader.
            num_ranks: number of ranks.
            killed_at: the step after which each rank is killed by SIGKILL; 0: none is.
        """
        arguments = [
            str(killed_at),
            str(FOLDER / self.name),
            str(folder),
            "--workers",
            str(workers),
        ]
        is_launched = num_ranks > 1 or self.name == "loop_ddp.py"
        port = free_port()
        programs = []
        for rank in range(num_ranks):
            environment = {**environment_without_ranks(), "KERAS_BACKEND": "torch"}
            if is_launched:
                environment.update(environment_of_rank(rank, num_ranks, port))
            program = self._interpreter.run(UNTIL, arguments, Path.cwd(), environment)
            programs.append(program)

        lines = []
        for rank, program in enumerate(programs):
            with program:
                out, err = program.communicate(timeout=TIMEOUT)
            assert killed_at or program.returncode == 0, err
            lines.append([line.removeprefix(f"{rank} ") for line in out.splitlines()])
        if killed_at:
            assert -signal.SIGKILL in [program.returncode for program in programs]
        return lines


def steps(lines: list[str]) -> list[str]:
    """Return the lines of steps: the slices of a batch and the loss."""
    return [line for line in lines if line.startswith("slices")]


def slices(lines: list[str]) -> list[str]:
    """Return the part of each step's line that names the slices."""
    return [line.split(":")[0] for line in steps(lines)]


def weights(lines: list[str]) -> str:
    """Return the line with the fingerprint of the weights."""
    (line,) = [line for line in lines if line.startswith("weights")]
    return line


def results(lines: list[str]) -> list[str]:
    """Return what is the same in equal runs: libraries also print times."""
    return [*steps(lines), weights(lines)]


def answer(holds: bool) -> str:
    """Return a cell of the table."""
    return "yes" if holds else "no"


def measure(training: Training, folder: Path) -> dict[str, str]:
    """Return the table's row of an example."""
    (whole,) = training.run(folder / "whole", 2)
    (repeated,) = training.run(folder / "repeated", 2)
    (with_3_workers,) = training.run(folder / "with 3 workers", 3)
    assert len(steps(whole)) == len(set(steps(whole))) == STEPS
    row = {
        "two runs": answer(results(whole) == results(repeated)),
        "another number of workers": answer(results(whole) == results(with_3_workers)),
        "killed and resumed": killed_and_resumed(training, folder / "killed", whole),
        "two ranks and one": "–",
    }
    if training.example.has_ranks:
        ranks = training.run(folder / "ranks", 1, num_ranks=2)
        row["two ranks and one"] = answer([slices(lines) for lines in ranks] == shares_of(whole))
    return row


def killed_and_resumed(training: Training, folder: Path, whole: list[str]) -> str:
    """Return the cell of a training that is killed and started again.

    Args:
        training: of the example.
        folder: of checkpoints.
        whole: lines of a training that was not killed.
    """
    saved_at = training.example.saved_at
    (killed,) = training.run(folder, 3, killed_at=KILLED_AT)
    (rest,) = training.run(folder, 1)
    is_same_until_killed = steps(killed) == steps(whole)[:KILLED_AT]
    continues = steps(rest) == steps(whole)[saved_at:]
    if not is_same_until_killed or not continues or weights(rest) != weights(whole):
        return "no"
    if saved_at > 6:
        return "yes"
    return "from the epoch's start"


def shares_of(whole: list[str]) -> list[list[str]]:
    """Return the slices that rank 0 and rank 1 should have of a training without ranks."""
    return [slices(whole)[rank::2] for rank in range(2)]


def measure_ray() -> dict[str, str]:
    """Return the row of Ray Train, whose workers are killed here and restarted by Ray."""
    from tests.peers.loops import ray_train

    killed_at = ray_train.KILLED_AT
    trainings = [
        ray_train.Training(num_ranks=1, workers=1),
        ray_train.Training(num_ranks=1, workers=1),
        ray_train.Training(num_ranks=1, workers=2),
        ray_train.Training(num_ranks=1, workers=1, killed_at=killed_at),
        ray_train.Training(num_ranks=2, workers=1),
    ]
    (whole,), (repeated,), (with_2_workers,), (killed,), ranks = ray_train.run(trainings)
    assert len(steps(whole)) == len(set(steps(whole))) == STEPS
    resumed = [*whole[:killed_at], *whole[ray_train.SAVED_AT :]]
    return {
        "two runs": answer(repeated == whole),
        "another number of workers": answer(with_2_workers == whole),
        "killed and resumed": answer(killed == resumed),
        "two ranks and one": answer([slices(lines) for lines in ranks] == shares_of(whole)),
    }


def print_row(name: str, row: dict[str, str]) -> None:
    """Print a row of the table as soon as it is known."""
    print(f"| {name} |", " | ".join(row.values()), "|", flush=True)


def main() -> None:
    """Print the table, of all examples or of those named as arguments."""
    print("| with |", " | ".join(CLAIMS), "|")
    print("|---|" + "---|" * len(CLAIMS))
    for name in sys.argv[1:] or [*EXAMPLES, "ray"]:
        if name == "ray":
            print_row("Ray Train", measure_ray())
            continue
        training = Training.of(name)
        with tempfile.TemporaryDirectory() as folder:
            row = measure(training, Path(folder))
        training.close()
        print_row(EXAMPLES[name].library, row)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
