"""What the commands have in common: options, the record of the machine, and results to keep."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from benchmarks.report import DISTURBING
from detaug.tools.cli.options import CannotRun
from detaug.training.machine import environment

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results"

#: Packages that change a benchmark's figures, beside those that `environment` lists.
PACKAGES = ("blosc2", "nilearn")

quick_option = click.option(
    "--quick", is_flag=True, help="Few short rounds: shows that it runs, not how fast."
)

data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the data sets in this folder, or find them there.  [default: made now, minutes]",
)


# --- the record of the machine --------------------------------------------------------------------


def environment_record() -> dict[str, Any]:
    """Return date, commit, versions and hardware; no host name and no paths."""
    machine = environment()
    packages = {"detaug": machine["detaug"]["version"], **machine["packages"]}
    for name in PACKAGES:
        packages[name] = version(name) if find_spec(name) else None
    # What a distribution adds to the kernel's number says nothing about speed.
    release = machine["system"]["release"].partition("-")[0]
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "python": machine["python"]["version"],
        "packages": packages,
        "system": {**machine["system"], "release": release},
        "cpu": machine["cpu"]["model"],
        "cores": machine["cpu"]["usable_cores"],
    }


def commit() -> str | None:
    """Return the work tree's commit, with ``+`` where it has changes; None outside of one."""
    if shutil.which("git") is None:
        return None
    head = _git("rev-parse", "--short=10", "HEAD")
    if head.returncode:
        return None
    name = head.stdout.strip()
    if _git("diff", "--quiet", "HEAD").returncode:
        name += "+"
    return name


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# --- results to keep ------------------------------------------------------------------------------


def require_commit(record: Mapping[str, Any]) -> None:
    """Raise `CannotRun` unless the work tree is a commit's."""
    name = record["commit"]
    if name is None:
        raise CannotRun("results are kept with their commit, and this folder is no git work tree")
    if name.endswith("+"):
        raise CannotRun(
            f"the work tree has changes on top of {name[:-1]}, and results are kept with their "
            "commit: commit them first, or measure with --quick, which keeps nothing"
        )


def require_idle(cores_elsewhere: Mapping[str, float]) -> None:
    """Raise `CannotRun` if other programs kept the cores busy during a row.

    Args:
        cores_elsewhere: row → how many cores.
    """
    disturbed = [name for name, cores in cores_elsewhere.items() if cores > DISTURBING]
    if disturbed:
        raise CannotRun(
            f"other programs ran during {'; '.join(disturbed)}: nothing is kept. "
            "Measure again on an idle machine"
        )


def keep(result: Mapping[str, Any], folder: Path, prefix: str = "") -> None:
    """Write the file of this machine's CPU, which replaces that of an earlier run."""
    cpu = re.sub(r"\W+", "-", result["environment"]["cpu"].lower()).strip("-")
    file = folder / f"{prefix}{cpu}.json"
    text = json.dumps(result, indent=1, ensure_ascii=False)
    file.write_text(f"{text}\n", encoding="utf-8")
    click.echo(f"kept in {file}", err=True)
