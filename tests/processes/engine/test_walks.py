"""A reader who follows a draw, a batch or a death passes through few files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_walks_are_short() -> None:
    root, command = Path(__file__).parents[3], [sys.executable, "-m", "tests.walks"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
