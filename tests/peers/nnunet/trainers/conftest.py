"""nnU-Net's folders for trainers in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detaug.training import deterministic_mode, isolate_rng


@pytest.fixture
def nnunet_environment(nnunet_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """nnU-Net's folders, results of this test's own, seed 1, no worker processes; torch is left as it was found."""
    monkeypatch.setenv("nnUNet_raw", str(nnunet_root / "raw"))
    monkeypatch.setenv("nnUNet_preprocessed", str(nnunet_root / "preprocessed"))
    monkeypatch.setenv("nnUNet_results", str(tmp_path))
    monkeypatch.setenv("nnUNet_n_proc_DA", "0")
    monkeypatch.setenv("DETAUG_SEED", "1")
    # more threads are slower where tests share the cores
    monkeypatch.setenv("DETAUG_CPU_THREADS", "1")
    with deterministic_mode(), isolate_rng():
        yield nnunet_root
