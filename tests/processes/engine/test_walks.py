"""A reader who follows a draw, a batch or a death passes through few files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

#: A commit that raises one says why.
MOST = {"a draw of one transform": 15, "a batch": 18, "a worker's death": 15}


def test_walks_are_short() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-m", "tests.walks"], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = {name: int(count) for name, count in re.findall(r"^(\S.*): (\d+) files$", done.stdout, re.MULTILINE)}
    assert found.keys() == MOST.keys()
    assert all(0 < found[name] <= most for name, most in MOST.items()), done.stdout
