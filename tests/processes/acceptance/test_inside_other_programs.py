"""The augmenter where users run it: below spawned ranks, after other threads, in scripts of every
kind, in imported modules.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from detaug import DeterministicAugmenter, LocalProcesses
from detaug.system import import_lock as importing
from tests.support.augmenters import Maker
from tests.support.preloaded import run_code
from tests.support.processes import PRELUDE, Script, environment_of_a_script, wait_until
from tests.support.waiting import join
from tests.support.witness import WITNESS, assert_made_by_workers, witness

pytestmark = pytest.mark.timeout(180)


class MultipliesMatrices:
    """Does what takes torch's thread pool, in the worker."""

    def __iter__(self) -> MultipliesMatrices:
        return self

    def __next__(self) -> dict[str, Any]:
        a = torch.rand(300, 300)
        return {"data": a @ a, "sum": torch.nn.functional.conv2d(a[None, None], a[None, None, :9, :9]),
                WITNESS: witness()}  # fmt: skip


def test_forked_workers_may_use_torch_after_the_parent_used_its_threads(
    make: Maker, mark: str
) -> None:
    a = torch.rand(500, 500)
    (a @ a).sum()
    batches = [next(make(MultipliesMatrices(), None, 2, seed=1)) for _ in range(2)]
    assert_made_by_workers("fork", batches)


def test_standard_input_may_be_closed(script: Callable[..., Script]) -> None:
    run = script(
        """
        os.close(0)
        with augmenter(num_processes=1, check=False) as aug:
            batches = [next(aug) for _ in range(10)]
            assert os.getpid() not in {batch["pid"] for batch in batches}
        print("end")
        """,
        "spawn",
    )
    run.finish()
    assert run.err == ""
    assert run.lines == ["end"]


def test_script_without_a_main_guard_works_or_says_why_not(
    script: Callable[..., Script], start_method: str
) -> None:
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
    options = "num_processes=1, check=False"  # each process imports torch for seconds
    code = PRELUDE + f"\nwith augmenter({options}) as aug:\n    next(aug)\n    print('end')\n"
    run = run_code(code, "spawn", folder=tmp_path, environment=environment_of_a_script())
    assert run.stdout == "end\n", run.stderr


def test_change_of_folder_does_not_hurt_replaced_workers(
    script: Callable[..., Script], start_method: str
) -> None:
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


MODULE = """
import sys
from detaug import DeterministicAugmenter

class Loader:
    def __iter__(self):
        return self
    def __next__(self):
        return 1

with DeterministicAugmenter(Loader(), None, int(sys.argv[1]), seed=1, stateless=True) as augmenter:
    assert next(augmenter) == 1
"""


def run(folder: Path, number: str) -> subprocess.CompletedProcess[str]:
    return run_code("import train", number, folder=folder, environment=os.environ, timeout=100)


def test_batches_that_are_made_while_their_module_is_imported_need_no_workers(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(MODULE)
    assert run(tmp_path, "0").returncode == 0
    ended = run(tmp_path, "2")
    assert ended.returncode != 0
    assert "the module 'train' makes batches while it is imported" in ended.stderr
    assert "Put what makes the batches into a function" in ended.stderr


def test_workers_have_the_programs_arguments(
    script: Callable[..., Script], start_method: str
) -> None:
    body = """
        class Arguments(Loader):
            def __next__(self):
                return sys.argv
        with augmenter(Arguments(), check=False) as aug:
            print(next(aug) == sys.argv, sys.argv[1:])
    """
    ran = script(body, start_method, "--lr", "it's 0.1")
    ran.finish()
    assert ran.lines == [f"True {[start_method, '--lr', 'it' + chr(39) + 's 0.1']}"], ran.err


HALTED = """
import time
from pathlib import Path
folder = Path(__file__).parent
folder.joinpath("importing").touch()
while not folder.joinpath("go on").exists():
    time.sleep(0.01)
answer = "imported"
"""


class ImportsHalted:
    def __iter__(self) -> ImportsHalted:
        return self

    def __next__(self) -> str:
        return str(importlib.import_module("halted_import").answer)


@pytest.fixture
def halted_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A thread imports `halted_import` until this file is there."""
    (tmp_path / "halted_import.py").write_text(HALTED)
    monkeypatch.syspath_prepend(tmp_path)
    thread = threading.Thread(target=importlib.import_module, args=("halted_import",))
    thread.start()
    wait_until((tmp_path / "importing").exists, "the import has begun")
    yield tmp_path / "go on"
    (tmp_path / "go on").touch()
    join(thread, "the import has ended")
    del sys.modules["halted_import"]


def test_workers_start_when_another_threads_import_has_ended(halted_import: Path) -> None:
    threading.Timer(0.5, halted_import.touch).start()
    with DeterministicAugmenter(ImportsHalted(), None, 1, seed=1, check=False) as augmenter:
        assert next(augmenter) == "imported"


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_an_import_of_another_thread_that_does_not_end_is_an_error(
    halted_import: Path, start_method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "_PATIENCE", 0.2)
    executor = LocalProcesses(start_method=start_method)
    with (
        DeterministicAugmenter(
            ImportsHalted(), None, 1, seed=1, check=False, executor=executor
        ) as augmenter,
        pytest.raises(
            RuntimeError, match="another thread has been importing the module 'halted_import'"
        ),
    ):
        next(augmenter)
