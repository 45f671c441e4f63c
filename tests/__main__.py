"""`python -m tests`: the default suite, one tier after the other."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass

import click

from tests.support.preloaded import Preloaded


@dataclass(frozen=True)
class Tier:
    """A part of the suite.

    Attributes:
        folders: of its tests.
        processes: that share them, on two cores. A test spends half of its time waiting for its
            processes, hence four at a time; but not a unit test.
        libraries: what the files import. Every process imports every file, so all of them are
            forked from one that has imported these. Not where coverage is taken, of imports as well.
    """

    folders: tuple[str, ...]
    processes: int
    libraries: tuple[str, ...] = ()


#: Workers are forks of the process that runs the tests. With nnU-Net and the augmentation libraries
#: in it a fork costs twice as much. So `tests/peers`, which needs them, comes by itself.
TIERS = {
    "peers": Tier(
        ("tests/peers",),
        4,
        (
            "pytest",
            "numba",
            "pandas",
            "nnunetv2.training.nnUNetTrainer.nnUNetTrainer",
            "nnunetv2.inference.predict_from_raw_data",
            "monai.transforms",
            "monai.data",
            "torchio",
            "albumentations",
            "torchvision.transforms.v2",
            "pytorch_lightning",
            "accelerate",
            "ignite.handlers",
            "ray",
            "nilearn.datasets",
            "matplotlib.pyplot",
        ),
    ),
    "unit": Tier(("tests/unit",), 2),
    "processes": Tier(
        ("tests/processes", "tests/stress"),
        4,
        ("pytest", "numba", "pandas", "scipy", "batchgenerators.dataloading"),
    ),
}
#: Coverage of what runs without processes; of workers it would say nothing.
COVERAGE = ("--cov", "--cov-report=term:skip-covered")
#: As in `tests/conftest.py`, for what imports NumPy and torch before it.
ENVIRONMENT = {"OPENBLAS_THREAD_TIMEOUT": "4", "OMP_WAIT_POLICY": "passive"}


def distribution(tier: Tier, processes: int) -> list[str]:
    """Return pytest's arguments that spread a tier over processes."""
    if not tier.libraries or not Preloaded.FORKS:
        return ["--dist", "loadfile", "-n", str(processes)]
    libraries = ",".join(tier.libraries)
    python = shlex.join([sys.executable, "-m", "tests.support.forked_python", libraries])
    # Of plugins that the libraries have imported; their asserts need no rewriting.
    quiet = ["-W", "ignore:Module already imported so cannot be rewritten"]
    return ["--dist", "loadfile", "--tx", f"{processes}*popen//python={python}", *quiet]


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--coverage", is_flag=True, help="Show the coverage of tests/unit.")
@click.option("-n", "processes", type=click.IntRange(1), help="Processes that share the tests.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(coverage: bool, processes: int | None, arguments: tuple[str, ...]) -> None:
    """Run all tests but the slow ones; further ARGUMENTS are pytest's.

    The exit status is that of the first tier that failed.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    failed = 0
    for name, tier in TIERS.items():
        command = [sys.executable, "-m", "pytest", *distribution(tier, processes or tier.processes)]
        command += [*tier.folders, *arguments]
        if coverage and name == "unit":
            command += COVERAGE
        status = subprocess.run(command, check=False).returncode
        if not failed:
            failed = status
    sys.exit(failed)


if __name__ == "__main__":
    main()
