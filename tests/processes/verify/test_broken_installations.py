"""What `verify` says where the machine is at fault and not the pipeline: rows that failed, with the cause, and status 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.preloaded import run_code
from tests.support.processes import environment_of_a_script

VERIFY = """
import sys
from detaug.cli import main
main(["verify", "user.py:make", "--batches", "2", "--processes", "1", "--json", "found.json", *sys.argv[1:]])
"""
LOADER = """
import numpy as np
{above}
class Loader:
    def __next__(self):
        {before}
        return {{"data": np.random.rand(2, 3)}}
def make():
    return Loader(), None
"""
NO_DESCRIPTORS = """
import os, resource
def use_up(free):
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number + free, number + free))
"""


def verified(folder: Path, breakage: str, *more: str, above: str = "", before: str = "pass") -> tuple[int, Any, str]:
    """The exit status, the result, and what was printed."""
    (folder / "user.py").write_text(LOADER.format(above=above, before=before))
    done = run_code(f"{breakage}\n{VERIFY}", *more, folder=folder, environment=environment_of_a_script())
    return done.returncode, json.loads((folder / "found.json").read_text()), done.stdout + done.stderr


def failed(found: Any) -> dict[str, str]:
    return {row["what"]: row["detail"] for row in found["rows"] if row["verdict"] == "failed"}


@pytest.mark.parametrize(
    ("breakage", "rows", "cause"),
    [
        ("import sys; sys.executable = '/bin/false'", 3, ""),
        ("import sys; sys.executable = '/nowhere/python'", 3, "No such file or directory"),
        (f"import detaug.verification.verifying\n{NO_DESCRIPTORS}\nuse_up(7)", 1, "Too many open files"),
    ],
    ids=["interpreters_end_at_once", "no_interpreter", "no_descriptors"],
)
def test_what_cannot_start_is_no_difference(tmp_path: Path, breakage: str, rows: int, cause: str) -> None:
    status, found, said = verified(tmp_path, breakage)
    assert status == 2, said
    told = failed(found)
    assert len(told) >= rows, said
    assert all(detail and cause in detail for detail in told.values()), told
    assert {row["verdict"] for row in found["rows"]} == {"equal", "failed"}
    assert not found["causes"], "the pipeline is not blamed"
    assert f"not known: {len(told)} of {len(found['rows'])} rows could not be measured" in said
    assert "Traceback" not in said


def test_difference_remains_one_where_other_rows_fail(tmp_path: Path) -> None:
    breakage = "import sys; sys.executable = '/nowhere/python'"
    status, found, said = verified(tmp_path, breakage, before="np.random.seed()")
    assert status == 1, said
    assert failed(found)
    assert found["causes"][0]["what"].startswith(
        "the pipeline depends on something that only shows with: 1 process, fork"
    )
