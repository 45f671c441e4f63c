"""Wrong params by the thousand, with every access of every kernel checked."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.waiting import run_program


@pytest.mark.slow
# It compiles every kernel anew, with bounds checked.
@pytest.mark.timeout(1800)
def test_no_params_make_a_kernel_read_or_write_beyond_an_array(tmp_path: Path) -> None:
    surroundings = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.support.transforms.params_fuzz", "--rounds", "60"]
    made = run_program(command, timeout=1750, env=surroundings)
    assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-4000:]
