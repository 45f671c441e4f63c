"""What `verify` says where the machine is at fault and not the pipeline: rows that failed, with the
cause, and status 2.
"""

from __future__ import annotations

import multiprocessing
import subprocess
from typing import Any

import pytest

from detaug.verification import Result, trials, verify
from tests.processes.verify import pipelines

QUICK: dict[str, Any] = {"batches": 2, "processes": [1], "start_methods": ["fork"]}


def no_interpreter(_: int) -> Any:
    raise FileNotFoundError(2, "No such file or directory", "/nowhere/python")


def interpreter_that_ends_at_once(_: int) -> Any:
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    return subprocess.Popen(["false"]), ours


def failed(result: Result) -> dict[str, str]:
    return {row.what: row.detail for row in result.rows if row.verdict == "failed"}


@pytest.mark.parametrize(
    ("start", "cause"),
    [
        (no_interpreter, "No such file or directory"),
        (interpreter_that_ends_at_once, "ended (exit code 1) before"),
    ],
)
def test_what_cannot_start_is_no_difference(
    monkeypatch: pytest.MonkeyPatch, start: Any, cause: str
) -> None:
    monkeypatch.setattr(trials, "start", start)
    result = verify(pipelines.sound, **QUICK)
    told = failed(result)
    assert len(told) >= 3, str(result)
    assert all(cause in detail for detail in told.values()), told
    assert {row.verdict for row in result.rows} == {"equal", "failed"}
    assert (result.status, result.causes) == (2, ()), "the pipeline is not blamed"
    assert f"not known: {len(told)} of {len(result.rows)} rows could not be measured" in str(result)


def test_difference_remains_one_where_other_rows_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "start", no_interpreter)
    result = verify(pipelines.default_rng, **QUICK)
    assert failed(result)
    assert result.status == 1
    assert str(result.cause).startswith(
        "the pipeline depends on something that only shows with: 1 process, fork"
    )
