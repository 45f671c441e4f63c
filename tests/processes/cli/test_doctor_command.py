"""`detaug doctor` as a user meets it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from detaug.cli.machine import doctor


@pytest.mark.parametrize("width", [80, 120])
def test_it_prints_the_record_and_then_advice_within_the_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    result = CliRunner().invoke(doctor)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert max(len(line) for line in lines) <= width
    titles = ("detaug.version", "cpu.", "numpy.", "python.", "gpu.", "switches.", "kernel_cache.")
    starts = [next(i for i, line in enumerate(lines) if line.startswith(title)) for title in titles]
    assert starts == sorted(starts)
    assert any("torch.backends.cudnn.benchmark " in line for line in lines)
    assert any(line.startswith("note") for line in lines[starts[-1] :])
    assert "PYTHONHASHSEED" in result.output


def test_json_is_all_that_is_printed() -> None:
    result = CliRunner().invoke(doctor, ["--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert set(found) == {"environment", "advice"}
    assert found["environment"]["cpu"]["usable_cores"] >= 1
    assert all(set(each) == {"level", "topic", "text"} for each in found["advice"])
    assert {each["level"] for each in found["advice"]} <= {"note", "warning"}
