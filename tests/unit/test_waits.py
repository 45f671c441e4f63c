"""Every wait in a test has a bound, so that a test fails rather than waits for ever."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
#: Methods that may wait for ever if they are called without a timeout.
WAITING = {"communicate", "join", "recv", "result", "wait"}
#: Functions of `subprocess` that wait for the end of a program.
RUNNING = {"call", "check_call", "check_output", "run"}
#: Files that may wait without a bound: a tier has no time limit, the preloaded interpreter lives
#: until its programs have ended, and the last file gives waits their bounds.
EXEMPT = {"tests/__main__.py", "tests/support/preloaded.py", "tests/support/waiting.py"}


def waits_without_a_bound(source: str) -> list[str]:
    """Return the calls in a program that may wait for ever, as ``line: call``."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [f"{call.lineno}: {ast.unparse(call)}" for call in calls if may_wait_for_ever(call)]


def may_wait_for_ever(call: ast.Call) -> bool:
    """Return whether a call waits without a bound."""
    if not isinstance(call.func, ast.Attribute):
        return False
    keywords = {keyword.arg for keyword in call.keywords}
    name = call.func.attr
    owner = ast.unparse(call.func.value)
    if owner == "subprocess":
        return name in RUNNING and "timeout" not in keywords
    if owner == "os":
        return name == "waitpid" and ast.unparse(call.args[1]) == "0"
    # By its contract an engine's wait ends with a batch or an error.
    if owner.endswith("engine"):
        return False
    return name in WAITING and not call.args and "timeout" not in keywords


def files_of_tests() -> Iterator[Path]:
    for file in sorted(TESTS.rglob("*.py")):
        if str(file.relative_to(TESTS.parent)) not in EXEMPT:
            yield file


def test_every_wait_of_a_test_has_a_bound() -> None:
    waits = {}
    for file in files_of_tests():
        calls = waits_without_a_bound(file.read_text(encoding="utf-8"))
        if calls:
            waits[str(file.relative_to(TESTS))] = calls
    assert waits == {}, "tests/support/waiting.py has waits that end"


@pytest.mark.parametrize(
    "call",
    [
        "thread.join()",
        "process.wait()",
        "connection.recv()",
        "process.communicate(input='')",
        "future.result()",
        "os.waitpid(pid, 0)",
        "subprocess.run(command, check=False)",
    ],
)
def test_a_wait_without_a_bound_is_seen(call: str) -> None:
    assert waits_without_a_bound(f"if True:\n    {call}") == [f"2: {call}"]


@pytest.mark.parametrize(
    "call",
    [
        "','.join(texts)",
        "process.wait(5)",
        "process.communicate(timeout=5)",
        "os.waitpid(pid, os.WNOHANG)",
        "subprocess.run(command, timeout=5)",
    ],
)
def test_a_wait_with_a_bound_is_none(call: str) -> None:
    assert waits_without_a_bound(call) == []
