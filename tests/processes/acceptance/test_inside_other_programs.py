"""The augmenter where users run it: below spawned ranks, after other threads, in scripts of every kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.augmenters import Maker
from tests.support.preloaded import run_code
from tests.support.processes import PRELUDE, Script, environment_of_a_script
from tests.support.witness import WITNESS, assert_made_by_workers, witness

pytestmark = pytest.mark.timeout(120)


class MultipliesMatrices:
    """Does what takes torch's thread pool, in the worker."""

    def __iter__(self) -> MultipliesMatrices:
        return self

    def __next__(self) -> dict[str, Any]:
        a = torch.rand(300, 300)
        return {"data": a @ a, "sum": torch.nn.functional.conv2d(a[None, None], a[None, None, :9, :9]),
                WITNESS: witness()}  # fmt: skip


def test_forked_workers_may_use_torch_after_the_parent_used_its_threads(make: Maker, mark: str) -> None:
    a = torch.rand(500, 500)
    (a @ a).sum()
    batches = [next(make(MultipliesMatrices(), None, 2, seed=1)) for _ in range(2)]
    assert_made_by_workers("fork", batches)


def test_standard_input_may_be_closed(script: Callable[..., Script]) -> None:
    run = script(
        """
        os.close(0)
        with augmenter() as aug:
            batches = [next(aug) for _ in range(10)]
            assert os.getpid() not in {batch["pid"] for batch in batches}
        print("end")
        """,
        "spawn",
    )
    run.finish()
    assert run.err == ""
    assert run.lines == ["end"]


def test_script_without_a_main_guard_works_or_says_why_not(script: Callable[..., Script], start_method: str) -> None:
    run = script(
        "pass",
        start_method,
        prelude=PRELUDE + "\nwith augmenter() as aug:\n    next(aug)\n    print('end')\n",
    )
    run.finish()
    if run.process.returncode == 0:
        assert run.lines.count("end") == 1
    else:
        assert start_method != "fork"
        assert "__main__" in run.err
    run.assert_nobody_left()


def test_code_typed_into_an_interpreter_works(tmp_path: Path) -> None:
    code = PRELUDE + "\nwith augmenter() as aug:\n    next(aug)\n    print('end')\n"
    run = run_code(code, "spawn", folder=tmp_path, environment=environment_of_a_script())
    assert run.stdout == "end\n", run.stderr


def test_change_of_folder_does_not_hurt_replaced_workers(script: Callable[..., Script], start_method: str) -> None:
    run = script(
        """
        with augmenter() as aug:
            first = next(aug)
            os.mkdir("elsewhere")
            os.chdir("elsewhere")
            sys.path.clear()
            os.kill(first["pid"], signal.SIGKILL)
            pids = {next(aug)["pid"] for _ in range(30)}
        assert os.getpid() not in pids
        print("end")
        """,
        start_method,
    )
    run.finish()
    assert run.lines == ["end"]
    assert "Traceback" not in run.err
