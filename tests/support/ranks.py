"""Ranks of a gloo group on this machine.

A test's file is also the program whose forks are the ranks. That program has imported torch and has
used none of its threads, so forking it is quick and safe.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tests.support.preloaded import run_code
from tests.support.waiting import join

#: Variables that a launcher sets. The ranks must not inherit them from the tests' own environment.
_LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "DETAUG_SEED")


def found_by_ranks(file: str, number: int, folder: Path) -> list[Any]:
    """Run a test's file as the program that starts its ranks; return the results of the ranks.

    Args:
        file: the test's file, whose main program calls `start_ranks`.
        number: of ranks.
        folder: where rank r writes its results, as JSON, into `rank_file(folder, r)`.
    """
    environment = dict(os.environ)
    for name in _LAUNCHER_VARIABLES:
        environment.pop(name, None)
    completed = run_code(Path(file), str(folder), folder=folder, environment=environment)
    assert completed.returncode == 0, completed.stderr
    return [json.loads(rank_file(folder, rank).read_text()) for rank in range(number)]


def rank_file(folder: Path | str, rank: int) -> Path:
    """Return the path of a rank's results."""
    return Path(folder, f"rank{rank}.json")


def start_ranks(run_rank: Callable[[int, str], None], number: int, folder: str) -> NoReturn:
    """Fork the ranks, wait for them, and exit with 0 if none of them failed, else with 1."""
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=run_rank, args=(rank, folder)) for rank in range(number)]
    for rank in ranks:
        rank.start()
    try:
        for rank in ranks:
            join(rank, "a rank has ended")
    finally:
        for rank in ranks:
            rank.kill()
    sys.exit(any(rank.exitcode for rank in ranks))
