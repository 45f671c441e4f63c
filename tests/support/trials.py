"""A fixture that makes the interpreters of `verify` forks of one that has imported detaug."""

from __future__ import annotations

import socket
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from detaug.system.interpreters import worker_environment
from detaug.verification import trials
from tests.support.preloaded import PRELOADED
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]

PROGRAM = """
import os, socket, sys
from detaug.verification.trials import main
for number in (1, 2):
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
main(connection.detach())
"""


@pytest.fixture
def preloaded_trials(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Make `verify` start forks of an interpreter that has already imported torch.

    The import takes most of the time of `verify`. A fork keeps the hash seed of its interpreter, so
    tests of hash seeds do not use this fixture.
    """

    def start_in_a_fork(hash_seed: int) -> tuple[Any, Connection]:
        """Start the program in a fork; return it and the parent's end of the connection."""
        with socket.socket(socket.AF_UNIX) as server:
            address = str(tmp_path_factory.mktemp("trials") / "s")
            server.bind(address)
            server.listen()
            server.settimeout(PATIENCE)
            program = PRELOADED.run(PROGRAM, [address], ROOT, worker_environment(hash_seed))
            connection, _ = server.accept()
            return program, Connection(connection.detach())

    monkeypatch.setattr(trials, "start", start_in_a_fork)
