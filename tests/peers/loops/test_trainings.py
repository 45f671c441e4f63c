"""The examples loop_*.py: a training that was killed goes on by its library's own means, and ends with the same weights."""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.preloaded import Preloaded, Program

FOLDER = Path(__file__).parents[3] / "examples"
UNTIL = Path(__file__).with_name("until.py")

#: Example → what is imported once for all its runs.
LIBRARIES = {
    "loop_accelerate.py": "accelerate",
    "loop_ddp.py": "torch.distributed",
    "loop_ignite.py": "ignite.handlers",
    "loop_lightning.py": "pytorch_lightning",
    "loop_monai.py": "monai.engines",
    "loop_trainer.py": "transformers.trainer",
}
STEPS = 18  # three epochs of six batches
#: Checkpoints are made every four steps: this is two steps into the second epoch, and one checkpoint is behind its first.
KILLED_AT = 10
SAVED_AT = 8
LAUNCHED = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "DETAUG_SEED",
)


@pytest.fixture(scope="module", params=sorted(LIBRARIES))
def training(request: pytest.FixtureRequest) -> Iterator[Training]:
    library, _, _ = LIBRARIES[request.param].partition(".")
    if not (find_spec(library) and find_spec("nilearn")):
        pytest.skip(f"needs {library}, of the extra peers")
    interpreter = Preloaded(LIBRARIES[request.param], "nilearn.datasets")
    yield Training(request.param, interpreter)
    interpreter.close()


class Training:
    def __init__(self, name: str, interpreter: Preloaded) -> None:
        self.name, self.interpreter = name, interpreter
        self._whole: dict[int, list[list[str]]] = {}

    def run(
        self, folder: Path, workers: int, ranks: int = 1, killed_at: int = 0
    ) -> list[list[str]]:
        """The lines of each rank, when all have ended."""
        arguments = [
            str(killed_at),
            str(FOLDER / self.name),
            str(folder),
            "--workers",
            str(workers),
        ]
        launched = ranks > 1 or self.name == "loop_ddp.py"
        port = str(_free_port())
        programs = [
            self._started(arguments, _place(rank, ranks, port) if launched else {})
            for rank in range(ranks)
        ]
        found = []
        for program in programs:
            with program:
                out, err = program.communicate(timeout=240)
            assert killed_at or program.returncode == 0, err
            found.append([line.removeprefix(f"{len(found)} ") for line in out.splitlines()])
        assert not killed_at or -signal.SIGKILL in [program.returncode for program in programs]
        return found

    def whole(self, folder: Path, ranks: int = 1) -> list[list[str]]:
        """The lines of each rank of a training that nothing interrupted."""
        if ranks not in self._whole:
            self._whole[ranks] = self.run(folder / "whole", 2, ranks)
        return self._whole[ranks]

    def _started(self, arguments: list[str], place: dict[str, str]) -> Program:
        return self.interpreter.run(UNTIL, arguments, Path.cwd(), _environment() | place)


def _environment() -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
    return others | {"OMP_NUM_THREADS": "1"}


def _place(rank: int, ranks: int, port: str) -> dict[str, str]:
    """What torchrun says to a rank."""
    here = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
    }
    return {**here, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def steps(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("slices")]


def slices(lines: list[str]) -> list[str]:
    return [line.split(":")[0] for line in steps(lines)]


def weights(lines: list[str]) -> str:
    (line,) = [line for line in lines if line.startswith("weights")]
    return line


@pytest.mark.slow  # each library's own means are in its test_*_loops.py, a killed training in the test of one and two ranks
def test_a_killed_training_goes_on_to_the_same_weights(training: Training, tmp_path: Path) -> None:
    (whole,) = training.whole(tmp_path)
    assert len(steps(whole)) == STEPS
    assert len(set(slices(whole))) == STEPS
    (killed,) = training.run(tmp_path / "killed", 3, killed_at=KILLED_AT)
    assert steps(killed) == steps(whole)[:KILLED_AT]
    (resumed,) = training.run(tmp_path / "killed", 1)
    assert steps(resumed) == steps(whole)[SAVED_AT:]
    assert weights(resumed) == weights(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    "training", ["loop_accelerate.py", "loop_ddp.py", "loop_lightning.py"], indirect=True
)
def test_two_ranks_that_are_killed_go_on_to_the_same_weights(
    training: Training, tmp_path: Path
) -> None:
    whole = training.whole(tmp_path, ranks=2)
    (alone,) = training.whole(tmp_path)
    assert [slices(rank) for rank in whole] == [slices(alone)[0::2], slices(alone)[1::2]]
    assert weights(whole[0]) == weights(whole[1])
    training.run(tmp_path / "killed", 1, ranks=2, killed_at=5)
    resumed = training.run(tmp_path / "killed", 2, ranks=2)
    assert [steps(rank) for rank in resumed] == [steps(rank)[4:] for rank in whole]
    assert [weights(rank) for rank in resumed] == [weights(rank) for rank in whole]


@pytest.mark.parametrize("training", ["loop_ddp.py"], indirect=True)
def test_one_rank_goes_on_with_the_batches_and_to_the_weights_of_two(
    training: Training, tmp_path: Path
) -> None:
    whole = training.whole(tmp_path)[0]
    killed = training.run(tmp_path / "killed", 1, ranks=2, killed_at=5)
    assert [steps(rank) for rank in killed] == [steps(whole)[0:10:2], steps(whole)[1:10:2]]
    (resumed,) = training.run(tmp_path / "killed", 2)
    assert steps(resumed) == steps(whole)[8:]
    assert weights(resumed) == weights(whole)


@pytest.mark.parametrize("name", sorted(set(LIBRARIES) - {"loop_ddp.py"}))
def test_a_missing_library_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nilearn")
    library, _, _ = LIBRARIES[name].partition(".")
    for module in [
        library,
        *(module for module in sys.modules if module.startswith(f"{library}.")),
    ]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.syspath_prepend(str(FOLDER))
    with pytest.raises(SystemExit, match="pip install .*" + library.split("_")[-1]):
        runpy.run_path(str(FOLDER / name))


def test_every_loop_is_run() -> None:
    assert {path.name for path in FOLDER.glob("loop_*.py")} == set(LIBRARIES)
