"""``python -c "import train"``, where the module makes batches while it is imported."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from detaug import DeterministicAugmenter
from tests.support.preloaded import run_code
from tests.support.processes import wait_until

pytestmark = pytest.mark.timeout(180)

MODULE = """
import sys
from detaug import DeterministicAugmenter, LocalProcesses

class Item:
    def __init__(self, number):
        self.number = number

class Refused(Exception):
    pass

class Loader:
    def __iter__(self):
        return self
    def __next__(self):
        import detaug
        if detaug.current().step == 5:
            raise Refused("at step 5")
        return {"item": Item(detaug.current().step)}

number = int(sys.argv[2])
executor = LocalProcesses(sys.argv[1]) if number else None
with DeterministicAugmenter(Loader(), None, number, seed=1, executor=executor, stateless=True) as aug:
    batches = [next(aug) for _ in range(5)]
    print([batch["item"].number for batch in batches], {type(batch["item"]) for batch in batches} == {Item})
    try:
        next(aug)
    except Refused as error:
        print("refused")
print("end")
"""


def run(folder: Path, *arguments: str, code: str = "import train") -> subprocess.CompletedProcess[str]:
    return run_code(code, *arguments, folder=folder, environment=os.environ, timeout=100)


@pytest.mark.parametrize("arguments", [("fork", "2"), ("fork", "0"), ("spawn", "0")])
def test_it_works_where_workers_import_nothing(tmp_path: Path, arguments: tuple[str, str]) -> None:
    (tmp_path / "train.py").write_text(MODULE)
    ended = run(tmp_path, *arguments)
    assert ended.stdout.splitlines() == ["[0, 1, 2, 3, 4] True", "refused", "end"], ended.stderr


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_it_is_a_clear_error_where_workers_would_import_it(tmp_path: Path, method: str) -> None:
    (tmp_path / "train.py").write_text(MODULE)
    ended = run(tmp_path, method, "2")
    assert ended.returncode != 0
    assert ended.stdout == ""
    assert "the module 'train' makes batches while it is imported" in ended.stderr
    assert "start_method='fork'" in ended.stderr


READS_ARGUMENTS = """
import sys
from detaug import DeterministicAugmenter, LocalProcesses

class Loader:
    def __iter__(self):
        return self
    def __next__(self):
        return sys.argv

if __name__ == "__main__":
    with DeterministicAugmenter(Loader(), None, 1, seed=1, executor=LocalProcesses(sys.argv[1]), stateless=True) as aug:
        print(next(aug))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_workers_have_the_programs_arguments(tmp_path: Path, method: str) -> None:
    (tmp_path / "train.py").write_text(READS_ARGUMENTS)
    code = "import runpy, sys; sys.argv[0] = 'train.py'; runpy.run_path('train.py', run_name='__main__')"
    ended = run(tmp_path, method, "--lr", "it's 0.1", code=code)
    assert ended.stdout.strip() == repr(["train.py", method, "--lr", "it's 0.1"]), ended.stderr


HALTED = """
import os, time
from pathlib import Path
folder = Path(__file__).parent
if folder.joinpath("importing").exists():
    answer = "imported anew"
else:
    folder.joinpath("importing").touch()
    while not folder.joinpath("go on").exists():
        time.sleep(0.01)
    answer = "imported once"
"""


class ImportsHalted:
    def __iter__(self) -> ImportsHalted:
        return self

    def __next__(self) -> str:
        return str(importlib.import_module("halted_import").answer)


def test_module_that_another_thread_was_importing_is_imported_anew_by_forked_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "halted_import.py").write_text(HALTED)
    monkeypatch.syspath_prepend(tmp_path)
    importing = threading.Thread(target=importlib.import_module, args=("halted_import",))
    importing.start()
    try:
        wait_until((tmp_path / "importing").exists, "the import has begun")
        with DeterministicAugmenter(ImportsHalted(), None, 1, seed=1, check=False) as augmenter:
            assert next(augmenter) == "imported anew"
    finally:
        (tmp_path / "go on").touch()
        importing.join()
    assert sys.modules.pop("halted_import").answer == "imported once"
