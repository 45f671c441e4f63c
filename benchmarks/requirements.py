"""What a benchmark cannot do without, asked for before anything is imported."""

from __future__ import annotations

import importlib.util
import sys


def require(*packages: str) -> None:
    """End the program with status 2 and one line if one of the packages is not installed."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        names = ", ".join(missing)
        print(f"the benchmarks need {names}: pip install '.[benchmarks]'", file=sys.stderr)
        raise SystemExit(2)
