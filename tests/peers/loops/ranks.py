"""Programs that run on two ranks on one machine, as torchrun starts them."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.preloaded import Preloaded

#: What a launcher says, which must not come from outside.
LAUNCHED = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    "DETAUG_SEED",
)


def environment_of_rank(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun says to a rank."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def environment_without_ranks() -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
    paths = os.pathsep.join([os.getcwd(), *sys.path])
    return others | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def run_on_two_ranks(module: str, *arguments: str, library: str) -> list[Any]:
    """Run ``python -m module FILE arguments`` on each rank; return what each has written into its
    file as JSON.

    The ranks are forks of an interpreter that has imported the program's library.
    """
    # OMP_NUM_THREADS is read when torch is imported, which the interpreter did before.
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
            started = interpreter.run(
                code,
                [str(file), *arguments],
                Path.cwd(),
                environment_without_ranks(),
                mark=environment_of_rank(rank, 2, port),
            )
            programs.append(started)
        try:
            errors = [program.communicate(timeout=240)[1] for program in programs]
        finally:
            for program in programs:
                program.kill()
            interpreter.close()
        for program, error in zip(programs, errors, strict=True):
            assert program.returncode == 0, error
        return [json.loads(file.read_text()) for file in files]
