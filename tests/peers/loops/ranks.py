"""Programs that run on two ranks on one machine, as torchrun starts them."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.numbers import Seen
from tests.support.preloaded import Preloaded

TIMEOUT = 240  # seconds
#: Variables that are not inherited by programs: a launcher's, and the seed.
LAUNCHED = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "DETAUG_SEED",
)


def environment_of_rank(rank: int, num_ranks: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun sets for a rank."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def environment_without_ranks() -> dict[str, str]:
    """Return this process's variables for a program that no launcher has started."""
    inherited = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
    paths = os.pathsep.join([os.getcwd(), *sys.path])
    return {**inherited, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}


def free_port() -> int:
    """Return a TCP port that no program uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def run_on_two_ranks(module: str, *arguments: str, library: str) -> list[Any]:
    """Run a module as a program on each of two ranks, and return what each wrote as JSON.

    The ranks are forks of an interpreter that has imported the program's library.

    Args:
        module: its program takes the path of the file that it writes, then `arguments`.
        arguments: further arguments.
        library: name of the module that the interpreter imports.
    """
    # torch reads OMP_NUM_THREADS when it is imported, which the interpreter has done before.
    code = f"""
import runpy, torch
torch.set_num_threads(1)
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
    interpreter = Preloaded.of_tier(library)
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        files = [Path(folder, f"rank{rank}.json") for rank in range(2)]
        programs = []
        for rank, file in enumerate(files):
            program = interpreter.run(
                code,
                [str(file), *arguments],
                Path.cwd(),
                environment_without_ranks(),
                mark=environment_of_rank(rank, 2, port),
            )
            programs.append(program)
        try:
            errors = [program.communicate(timeout=TIMEOUT)[1] for program in programs]
        finally:
            for program in programs:
                program.kill()
            interpreter.close()
        for program, error in zip(programs, errors, strict=True):
            assert program.returncode == 0, error
        return [json.loads(file.read_text()) for file in files]


def epochs_of_ranks(ranks: list[dict[str, Any]], case: str) -> list[list[list[Seen]]]:
    """Return the batches that each rank saw in each epoch of a case.

    JSON has no tuples, so a batch's samples are made one again.
    """
    return [[_batches(epoch) for epoch in results[case]] for results in ranks]


def _batches(epoch: list[list[int]]) -> list[Seen]:
    return [tuple(batch) for batch in epoch]
