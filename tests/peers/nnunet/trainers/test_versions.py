"""The last release of every minor version that the trainers support, each in an environment of its own, with data sets that it
planned and preprocessed itself."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from detaug.versions import SUPPORTED_NNUNET
from tests.peers.nnunet.environments import VERSIONS, environment
from tests.peers.nnunet.trainers.command_line import REPOSITORY, SHORT, Run, checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


def test_every_supported_version_is_tested() -> None:
    assert tuple(VERSIONS) == SUPPORTED_NNUNET


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """A function from a version to its interpreter, and the folder with its ``raw`` and ``preprocessed``."""
    made: dict[str, tuple[Path, Path]] = {}

    def of(version: str) -> tuple[Path, Path]:
        if version not in made:
            folder = os.environ.get("DETAUG_NNUNET_ENVIRONMENTS")
            python = environment(Path(folder) if folder else tmp_path_factory.mktemp("environments"), version)
            root = tmp_path_factory.mktemp(f"nnunet-{version}")
            command = [python, "-m", "tests.peers.nnunet.trainers.small_datasets", str(root), "plain"]
            done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-3000:]
            made[version] = (python, root)
        return made[version]

    return of


class VersionRun(Run):
    """A training by ``detaug nnunet train``, in the environment of an interpreter."""

    python: Path

    def command(self, *flags: str) -> list[str]:
        program = [str(self.python), "-m", "detaug", "nnunet", "train"]
        return [*program, *super().command(*flags)[1:]]

    def variables(self, seed: int | None, processes: int, **more: str) -> dict[str, str]:
        paths = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
        known = super().variables(seed, processes, **more)
        return {**known, "nnUNet_extTrainer": str(SHORT), "PYTHONPATH": paths}


@pytest.mark.parametrize(
    ("trainer", "configuration"),
    [("ShortDetAug", "3d_fullres"), ("ShortDetAug", "2d"), ("ShortDeterministic", "3d_fullres")],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_training_that_was_killed_and_continued_ends_with_the_same_bytes(
    prepared: Callable[[str], tuple[Path, Path]], tmp_path: Path, version: str, trainer: str, configuration: str
) -> None:
    python, root = prepared(version)
    runs = []
    for name in ("straight", "killed"):
        run = VersionRun(root, tmp_path / name, trainer=trainer, configuration=configuration)
        run.python = python
        run.environment = {"SHORT_EPOCHS": "3", "SHORT_VALIDATION": "0"}
        runs.append(run)
    straight, killed = runs
    said = straight.train(processes=2)
    assert ("training from PatchSource" in said) == (
        trainer == "ShortDetAug" and (version, configuration) != ("2.5", "2d")
    )
    killed.train_until_killed(2, processes=1)
    killed.train("--c", seed=None, processes=0)
    assert set(checkpoints(straight.folder)) == {"checkpoint_best.pth", "checkpoint_final.pth"}
    assert checkpoints(straight.folder) == checkpoints(killed.folder)


def test_a_training_is_not_continued_by_another_version_unless_that_is_allowed(
    prepared: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    python, root = prepared("2.8")
    run = VersionRun(root, tmp_path, environment={"SHORT_EPOCHS": "3", "SHORT_VALIDATION": "0"})
    run.python = python
    run.train_until_killed(2, processes=1)
    run.python, _ = prepared("2.6")
    refused = run.attempt("--c", seed=None, processes=0)
    assert refused.returncode == 2, refused.stdout[-3000:]
    assert re.search(r"versions: nnunetv2: 2\.8\.\d+ in the checkpoint, 2\.6\.\d+ now", refused.stdout)
    named = re.search(r"DETAUG_ALLOW=(\S+) continues nevertheless", refused.stdout)
    assert named is not None
    assert "continued although changed" in run.train("--c", seed=None, processes=0, DETAUG_ALLOW=named[1])
    code = "import sys, torch; print(torch.load(sys.argv[1], weights_only=False)['detaug']['allowed'])"
    told = subprocess.check_output([python, "-c", code, run.folder / "checkpoint_final.pth"], text=True)
    assert "versions: nnunetv2: 2.8." in told


@pytest.mark.parametrize("version", ["2.5", "2.7"])
def test_a_trainer_that_is_not_there_is_told(
    prepared: Callable[[str], tuple[Path, Path]], tmp_path: Path, version: str
) -> None:
    python, root = prepared(version)
    run = VersionRun(root, tmp_path, trainer="nnUNetTrainerOfNobody")
    run.python = python
    done = run.attempt()
    assert done.returncode == 2
    assert "there is no trainer nnUNetTrainerOfNobody" in done.stdout
