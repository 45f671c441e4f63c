"""Ranks of a gloo group on this machine: forks of a program that a test's file is, too.

That program has imported torch and used none of its threads, so forking it is quick and safe.
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

#: What a launcher says, which must not come from outside.
_LAUNCHED = ("RANK", "WORLD_SIZE", "DETAUG_SEED")


def found_by_ranks(file: str, number: int, folder: Path) -> list[Any]:
    """Run a test's file as the program that starts its ranks; return what each of them wrote.

    Rank r writes its findings as JSON into `rank_file(folder, r)`.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _LAUNCHED}
    done = run_code(Path(file), str(folder), folder=folder, environment=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(rank_file(folder, rank).read_text()) for rank in range(number)]


def rank_file(folder: Path | str, rank: int) -> Path:
    """Return the file of a rank's findings."""
    return Path(folder, f"rank{rank}.json")


def start_ranks(run_rank: Callable[[int, str], None], number: int, folder: str) -> NoReturn:
    """Fork the ranks, wait for them, and exit with 0 where none of them failed."""
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
