"""Small data sets that nnU-Net has planned and preprocessed, made once per session when a test first wants them.

Making one takes most of a minute. ``DETAUG_TEST_NNUNET`` names a folder where they are kept from session to session.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from tests.peers.nnunet.trainers.datasets import KINDS

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def nnunet_kind(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function from a kind of `tests.peers.nnunet.trainers.datasets` to the folder with its ``raw`` and ``preprocessed``."""
    kept = os.environ.get("DETAUG_TEST_NNUNET")
    base = tmp_path_factory.getbasetemp()
    # processes that share the tests (pytest-xdist) share the data sets as well
    root = Path(kept) if kept else (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "nnunet"
    root.mkdir(parents=True, exist_ok=True)

    def prepared(kind: str) -> Path:
        ready = root / "preprocessed" / KINDS[kind].name / "ready"
        with FileLock(root / f"{kind}.lock"):
            if not ready.exists():
                # nnU-Net spawns processes, which import the main module anew
                command = [sys.executable, "-m", "tests.peers.nnunet.trainers.datasets", str(root), kind]
                done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
                assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
                ready.touch()
        return root

    return prepared


@pytest.fixture(scope="session")
def nnunet_root(nnunet_kind: Callable[[str], Path]) -> Path:
    """The folder with ``raw`` and ``preprocessed`` of the plain data set, Dataset001_MNI152."""
    return nnunet_kind("plain")
