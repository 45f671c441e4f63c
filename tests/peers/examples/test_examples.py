"""Each example runs by itself, as a reader would run it, and reaches its last line."""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.preloaded import run_code

EXAMPLES = Path(__file__).parents[3] / "examples"

LAST_LINES = {
    "cluster_with_fsspec.py": "6 batches through fsspec, the same from this process and from a Ray cluster",
    "custom_loop_resume.py": "same batches, same weights",
    "nnunet_loader.py": "nnU-Net's batches are the same with 1 and with 2 processes",
    "own_transform.py": "own transforms are as reproducible as detaug's",
    "torch_dataset.py": "same batches with 0 and with 2 processes; another order and other augmentation in each epoch",
    "verify_lightning.py": "the Lightning training is reproducible and resumes exactly",
    "verify_plain_loop.py": "the loop is reproducible and resumes exactly",
}


def run(script: str) -> subprocess.CompletedProcess[str]:
    return run_code(EXAMPLES / script, folder=Path.cwd(), environment=os.environ)


#: nnU-Net plans and preprocesses a data set first; a Ray cluster starts.
SLOW = {"nnunet_loader.py", "cluster_with_fsspec.py"}


@pytest.mark.parametrize(
    "script", [pytest.param(each, marks=pytest.mark.slow) if each in SLOW else each for each in sorted(LAST_LINES)]
)
def test_example_says_what_it_shows(script: str) -> None:
    pytest.importorskip("nilearn")
    if script == "nnunet_loader.py":
        pytest.importorskip("nnunetv2")
    if script == "cluster_with_fsspec.py":
        pytest.importorskip("ray")
    if script == "verify_lightning.py" and not any(map(find_spec, ("lightning", "pytorch_lightning"))):
        pytest.skip("needs Lightning, of the extra peers")
    done = run(script)
    assert done.returncode == 0, done.stderr
    if script == "cluster_with_fsspec.py":
        assert "as expected: while fetching item 12" in done.stdout
        assert "on node" in done.stdout
    assert done.stdout.splitlines()[-1] == LAST_LINES[script]


def test_every_example_is_run() -> None:
    loops = {path.name for path in EXAMPLES.glob("loop_*.py")}  # tests/peers/loops runs them
    assert {path.name for path in EXAMPLES.glob("*.py")} - loops == {*LAST_LINES, "mri_slices.py"}
