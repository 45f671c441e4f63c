"""`python -m benchmarks nnunet`: what it says before it measures."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner

from benchmarks.__main__ import main


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_told_before_data_sets_are_made() -> None:
    done = CliRunner().invoke(main, ["nnunet", "--device", "cuda"])
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: torch finds no GPU here, and --device cuda wants one")
