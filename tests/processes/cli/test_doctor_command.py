"""`detaug doctor` as a user meets it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from detaug.cli.machine import doctor


@pytest.mark.parametrize("width", [80, 120])
def test_it_prints_the_record_and_then_advice_within_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    result = CliRunner().invoke(doctor)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert max(len(line) for line in lines) <= width
    titles = ("detaug", "python", "cpu", "numpy", "gpu", "switches", "variables", "shared_memory", "kernel_cache")
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


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_strict_fails_on_a_warning_and_only_then(monkeypatch: pytest.MonkeyPatch, form: list[str]) -> None:
    from detaug.doctor import machine

    no_cards = {"devices": [], "driver": None, "cuda": None, "hip": None, "cudnn": None}
    monkeypatch.setattr(machine, "_graphics_cards", lambda: no_cards)
    monkeypatch.setattr(machine, "version_of", lambda package: "2.8.1" if package == "nnunetv2" else None)
    for name in ("nnUNet_n_proc_DA", "nnUNet_compile", "TORCHINDUCTOR_MAX_AUTOTUNE"):
        monkeypatch.delenv(name, raising=False)
    calm = CliRunner().invoke(doctor, ["--strict", *form])
    assert calm.exit_code == 0, calm.output
    monkeypatch.setenv("nnUNet_compile", "true")
    assert CliRunner().invoke(doctor, ["--strict", *form]).exit_code == 1
    assert CliRunner().invoke(doctor, form).exit_code == 0
