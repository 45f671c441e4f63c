"""Small data sets that nnU-Net has planned and preprocessed, made once per session when a test
first wants them.

Making one takes most of a minute. ``DETAUG_TEST_NNUNET`` names a folder where they are kept from
session to session.
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


@pytest.fixture(scope="session")
def nnunet_kind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """A function from a kind of `small_datasets` to the folder with its ``raw`` and
    ``preprocessed``.
    """
    kept = os.environ.get("DETAUG_TEST_NNUNET")
    base = tmp_path_factory.getbasetemp()
    # processes that share the tests (pytest-xdist) share the data sets as well
    root = (
        Path(kept)
        if kept
        else (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "nnunet"
    )
    root.mkdir(parents=True, exist_ok=True)
    interpreter = Preloaded.of_tier(_PREPARING)

    def prepared(kind: str) -> Path:
        ready = root / "preprocessed" / KINDS[kind].name / "ready"
        with FileLock(root / f"{kind}.lock"):
            if not ready.exists():
                # not a fork of this process: earlier tests have started threads of torch's here,
                # and a fork waits for ever for those that it does not have
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
    """The folder with ``raw`` and ``preprocessed`` of the plain data set, Dataset001_MNI152."""
    return nnunet_kind("plain")


@pytest.fixture
def nnunet_environment(
    nnunet_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """nnU-Net's folders, results of this test's own, seed 1, no worker processes; torch is left as
    it was found.
    """
    monkeypatch.setenv("nnUNet_raw", str(nnunet_root / "raw"))
    monkeypatch.setenv("nnUNet_preprocessed", str(nnunet_root / "preprocessed"))
    monkeypatch.setenv("nnUNet_results", str(tmp_path))
    monkeypatch.setenv("nnUNet_n_proc_DA", "0")
    monkeypatch.setenv("DETAUG_SEED", "1")
    # more threads are slower where tests share the cores
    monkeypatch.setenv("DETAUG_CPU_THREADS", "1")
    with deterministic_mode(), isolate_rng():
        yield nnunet_root


@pytest.fixture
def copied(nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the preprocessed data set to do harm to; its configuration's folder of cases."""
    copy = tmp_path / "copy" / "preprocessed"
    shutil.copytree(nnunet_environment / "preprocessed", copy)
    monkeypatch.setenv("nnUNet_preprocessed", str(copy))
    return copy / KINDS["plain"].name / "nnUNetPlans_3d_fullres"
