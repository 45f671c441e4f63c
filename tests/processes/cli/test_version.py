"""`detaug --version`, alone and with --verbose."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner

from detaug.tools.cli import main
from detaug.versions import NUMERICS, __version__, source_digest


def test_the_version_is_one_line() -> None:
    done = CliRunner().invoke(main, ["--version"])
    assert (done.exit_code, done.output) == (
        0,
        f"detaug, version {__version__}, source {source_digest()}\n",
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--version", "--verbose"],
        # torch asks the system for seconds
        pytest.param(["--verbose", "--version"], marks=pytest.mark.slow),
    ],
)
def test_verbose_adds_the_machine_and_ends_with_advice(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"detaug, version {__version__}, source ")
    assert "\nseed scheme " in done.output
    assert f"numerics {NUMERICS}\n" in done.output
    assert "OMP_NUM_THREADS=2\n" in done.output
    assert f"PyTorch version: {torch.__version__}" in done.output
    assert done.output.splitlines()[-1].startswith("- hash seed: ")


@pytest.mark.parametrize("words", [["--verbose"], ["--verbose", "warmup"]])
def test_verbose_without_version_is_refused(words: list[str]) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "--verbose has an effect with --version only" in done.output
