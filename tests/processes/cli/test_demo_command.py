"""`detaug demo` as a user meets it."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from detaug.demo import run as demo
from detaug.demo.run import OURS, run_all
from detaug.system.progress import Progress
from detaug.tools.cli import main
from tests.support.waiting import run_program


def test_command_line_loads_no_heavy_library_before_it_is_told_what_to_do() -> None:
    check = (
        "import sys; from detaug.tools.cli import main; main(['warmup', '--help'], "
        "standalone_mode=False); "
        "print(sorted({'torch', 'numba', 'scipy', 'batchgenerators'} & set(sys.modules)))"
    )
    done = run_program([sys.executable, "-c", check])
    assert done.returncode == 0, done.stderr
    assert "NUMBA_CACHE_DIR" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_missing_nilearn_is_said_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    from detaug.demo import mri

    mri.load_template.cache_clear()
    monkeypatch.setitem(sys.modules, "nilearn", None)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 2
    assert "pip install 'detaug[demo]'" in result.output


def test_demo_shows_that_every_run_of_ours_gives_the_same_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("nilearn")
    monkeypatch.setattr(demo, "BATCHES", 9)
    found = run_all(Progress())
    assert found.status == 0, str(found)
    assert "all 4 runs agree" in str(found)
    ours = [row for row in found.rows if row.augmenter == OURS]
    assert [row.processes for row in ours] == [0, 2, 2, 2]
    assert len({row.fingerprint for row in ours}) == 1
    assert ours[2].notices, "the death of a worker is said"
