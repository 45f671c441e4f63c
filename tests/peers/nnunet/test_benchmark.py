"""`python -m benchmarks nnunet`: what it says before it measures."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_told_before_data_sets_are_made() -> None:
    command = [sys.executable, "-m", "benchmarks", "nnunet", "--device", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: torch finds no GPU here, and --device cuda wants one")
