"""`python -m tests`: the default suite, one tier after the other."""

from __future__ import annotations

import subprocess
import sys

import click

#: What pytest is told of each tier, for two cores. A test spends half of its time waiting for its
#: processes, hence four at a time; but not a unit test.
#:
#: Workers are forks of the process that runs the tests. With nnU-Net and the augmentation libraries
#: in it a fork costs twice as much, and pytest imports every file that it may run. So
#: `tests/peers`, which needs them, comes by itself.
TIERS = {
    "peers": ("-n", "4", "tests/peers"),
    "unit": ("-n", "2", "tests/unit"),
    "processes": ("-n", "4", "tests/processes", "tests/stress"),
}
#: Coverage of what runs without processes; of workers it would say nothing.
COVERAGE = ("--cov", "--cov-report=term:skip-covered")


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--coverage", is_flag=True, help="Show the coverage of tests/unit.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(coverage: bool, arguments: tuple[str, ...]) -> None:
    """Run all tests but the slow ones; further ARGUMENTS are pytest's.

    The exit status is that of the first tier that failed.
    """
    failed = 0
    for tier, own in TIERS.items():
        command = [sys.executable, "-m", "pytest", "--dist", "loadfile", *own, *arguments]
        if coverage and tier == "unit":
            command += COVERAGE
        status = subprocess.run(command, check=False).returncode
        if not failed:
            failed = status
    sys.exit(failed)


if __name__ == "__main__":
    main()
