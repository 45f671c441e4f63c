"""The command `python -m tests`, which runs the default suite, one tier after the other."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass

import click

from tests.support.preloaded import TIER_VARIABLE, Preloaded


@dataclass(frozen=True)
class Tier:
    """A part of the suite.

    Attributes:
        folders: where the tests are.
        processes: number of processes that run them on a machine with two cores. Unit tests get
            two. Other tests wait half of their time for processes of their own, so they get four.
        libraries: modules that the files import. Every process imports every file, so all of them
            are forks of one that has imported these; tiers with the same ones share it.
    """

    folders: tuple[str, ...]
    processes: int
    libraries: tuple[str, ...]


_LIBRARIES = (
    "pytest",
    "numba",
    "pandas",
    # They import half of SciPy.
    "batchgenerators.transforms.noise_transforms",
    "batchgenerators.transforms.color_transforms",
    "hypothesis",
    "rich.markdown",
)
#: Workers are forks of the process that runs the tests. After an import of nnU-Net and of the
#: augmentation libraries a fork takes twice as long. So `tests/peers`, which needs them, is a tier.
TIERS = {
    "unit": Tier(("tests/unit",), 2, _LIBRARIES),
    "peers": Tier(
        ("tests/peers",),
        4,
        (
            "pytest",
            "numba",
            "pandas",
            # What an optimizer's first step and DistributedDataParallel import.
            "torch._dynamo",
            "nnunetv2.training.nnUNetTrainer.nnUNetTrainer",
            "nnunetv2.inference.predict_from_raw_data",
            "monai.transforms",
            "monai.data",
            "torchio",
            "albumentations",
            "torchvision.transforms.v2",
            "pytorch_lightning",
            "accelerate",
            "transformers.trainer",
            "ignite.handlers",
            "ray",
            "nilearn.datasets",
            "matplotlib.pyplot",
        ),
    ),
    "processes": Tier(("tests/processes", "tests/stress"), 4, _LIBRARIES),
}
#: Options for the tier "unit" alone, as code that runs in workers is not measured.
COVERAGE = ("--cov", "--cov-report=term:skip-covered")
#: The same as in `tests/conftest.py`, for processes that import NumPy and torch before that file.
ENVIRONMENT = {"OPENBLAS_THREAD_TIMEOUT": "4", "OMP_WAIT_POLICY": "passive"}


def distribution(tier: Tier, processes: int, forks: bool) -> list[str]:
    """Return pytest's arguments that spread a tier over processes.

    Args:
        tier: the tier.
        processes: how many.
        forks: whether they are forks of the tier's interpreter, or import everything themselves.
    """
    if not forks:
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
    tiers_left = Counter(tier.libraries for tier in TIERS.values())
    interpreters = {libraries: Preloaded(*libraries) for libraries in tiers_left}
    # The libraries of a later tier are imported while an earlier one runs.
    for interpreter in interpreters.values():
        interpreter.start()
    first_failure = 0
    for name, tier in TIERS.items():
        is_covered = coverage and name == "unit"
        # Coverage is of imports as well.
        forks = Preloaded.FORKS and not is_covered
        spread = distribution(tier, processes or tier.processes, forks)
        command = [sys.executable, "-m", "pytest", *spread, *tier.folders, *arguments]
        if is_covered:
            command += COVERAGE
        environment = {**os.environ, TIER_VARIABLE: ",".join(tier.libraries)}
        status = subprocess.run(command, env=environment, check=False).returncode
        if not first_failure:
            first_failure = status
        tiers_left[tier.libraries] -= 1
        if not tiers_left[tier.libraries]:
            # That of tests/peers holds a gigabyte.
            interpreters[tier.libraries].close()
    sys.exit(first_failure)


if __name__ == "__main__":
    main()
