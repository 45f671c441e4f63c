"""The command `python -m tests`, which runs the default suite, one tier after the other."""

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
        folders: where the tests are.
        processes: number of processes that run them on a machine with two cores. Unit tests get
            two. Other tests wait half of their time for processes of their own, so they get four.
        libraries: modules that the files import. Every process imports every file, so all of them
            are forks of one that has imported these. Empty for unit tests, as coverage counts the
            lines that imports run.
    """

    folders: tuple[str, ...]
    processes: int
    libraries: tuple[str, ...] = ()


#: Workers are forks of the process that runs the tests. After an import of nnU-Net and of the
#: augmentation libraries a fork takes twice as long. So `tests/peers`, which needs them, is a tier.
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
#: Options for the tier "unit" alone, as code that runs in workers is not measured.
COVERAGE = ("--cov", "--cov-report=term:skip-covered")
#: The same as in `tests/conftest.py`, for processes that import NumPy and torch before that file.
ENVIRONMENT = {"OPENBLAS_THREAD_TIMEOUT": "4", "OMP_WAIT_POLICY": "passive"}


def distribution(tier: Tier, processes: int) -> list[str]:
    """Return pytest's arguments that spread a tier over processes."""
    if not tier.libraries or not Preloaded.FORKS:
        return ["--dist", "loadfile", "-n", str(processes)]
    libraries = ",".join(tier.libraries)
    python = shlex.join([sys.executable, "-m", "tests.support.forked_python", libraries])
    # pytest warns of plugins that the libraries have imported. Their asserts need no rewriting.
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
    first_failure = 0
    for name, tier in TIERS.items():
        command = [sys.executable, "-m", "pytest", *distribution(tier, processes or tier.processes)]
        command += [*tier.folders, *arguments]
        if coverage and name == "unit":
            command += COVERAGE
        status = subprocess.run(command, check=False).returncode
        if not first_failure:
            first_failure = status
    sys.exit(first_failure)


if __name__ == "__main__":
    main()
