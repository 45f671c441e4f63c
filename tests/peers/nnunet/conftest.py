"""Small data sets that nnU-Net has planned and preprocessed.

Each is made once in a session, when a test first needs it, which takes most of a minute. The
variable ``DETAUG_TEST_NNUNET`` names a folder where they are kept from session to session.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from detaug.training import deterministic_mode, isolate_rng
from tests.peers.nnunet.trainers.small_datasets import KINDS
from tests.support.preloaded import Preloaded, run_code

_PREPARING = "tests.peers.nnunet.trainers.small_datasets"


def _datasets_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all data sets, which processes that share the tests share as well."""
    kept = os.environ.get("DETAUG_TEST_NNUNET")
    if kept:
        return Path(kept)
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        return base.parent / "nnunet"
    return base / "nnunet"


@pytest.fixture(scope="session")
def nnunet_kind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Return a function that prepares a kind of data set of `small_datasets`.

    It returns the folder that has ``raw`` and ``preprocessed``.
    """
    root = _datasets_folder(tmp_path_factory)
    root.mkdir(parents=True, exist_ok=True)
    interpreter = Preloaded.of_tier(_PREPARING)

    def prepared(kind: str) -> Path:
        ready = root / "preprocessed" / KINDS[kind].name / "ready"
        with FileLock(root / f"{kind}.lock"):
            if ready.exists():
                return root
            # Not in a fork of this process: earlier tests have started torch's threads here, and a
            # fork waits for ever for threads that it does not have.
            ended = run_code(
                f"import {_PREPARING} as small; small.main()",
                str(root),
                kind,
                folder=Path.cwd(),
                environment=os.environ,
                interpreter=interpreter,
            )
            assert ended.returncode == 0, (ended.stdout + ended.stderr)[-3000:]
            ready.touch()
        return root

    yield prepared
    interpreter.close()


@pytest.fixture(scope="session")
def nnunet_root(nnunet_kind: Callable[[str], Path]) -> Path:
    """Return the folder with ``raw`` and ``preprocessed`` of the data set Dataset001_MNI152."""
    return nnunet_kind("plain")


@pytest.fixture
def nnunet_environment(
    nnunet_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Set nnU-Net's variables, seed 1 and no worker processes; return the data sets' folder.

    The results of the test are in a folder of its own. torch's settings and generators are restored
    after the test.
    """
    monkeypatch.setenv("nnUNet_raw", str(nnunet_root / "raw"))
    monkeypatch.setenv("nnUNet_preprocessed", str(nnunet_root / "preprocessed"))
    monkeypatch.setenv("nnUNet_results", str(tmp_path))
    monkeypatch.setenv("nnUNet_n_proc_DA", "0")
    monkeypatch.setenv("DETAUG_SEED", "1")
    # More threads are slower if several tests share the cores.
    monkeypatch.setenv("DETAUG_CPU_THREADS", "1")
    with deterministic_mode(), isolate_rng():
        yield nnunet_root


@pytest.fixture
def copied(nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let nnU-Net read a copy of the preprocessed data set; return the copy's folder of cases.

    A test may damage the copy.
    """
    copy = tmp_path / "copy" / "preprocessed"
    shutil.copytree(nnunet_environment / "preprocessed", copy)
    monkeypatch.setenv("nnUNet_preprocessed", str(copy))
    return copy / KINDS["plain"].name / "nnUNetPlans_3d_fullres"
