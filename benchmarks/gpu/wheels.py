"""Fetch what a GPU's machine lacks, as wheels in a folder that is carried there.

That machine is expected to have torch (2.11 or newer), numpy, scipy and numba, and need have no
network. There: ``pip install --no-index --no-deps --target SITE FOLDER/*.whl``, and SITE in
``PYTHONPATH``.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from detaug.tools.cli.options import CannotRun

#: What the machine has; everything that these need is there as well.
EXPECTED = ("torch", "numpy", "scipy", "numba")

#: What nnU-Net's packages require, and these runs do not import; the first three have stand-ins.
UNUSED = (
    "simpleitk",
    "matplotlib",
    "seaborn",
    "future",
    "graphviz",
    "imagecodecs",
    "requests",
    "timm",
    "unittest2",
    "yacs",
)

MIB = 2**20

#: pip matches a wheel's version of manylinux exactly: all that there are, the newest first.
MANYLINUX = (
    *(f"manylinux_2_{minor}" for minor in range(39, 4, -1)),
    "manylinux2014",
    "manylinux2010",
    "manylinux1",
)


def needed_packages() -> list[str]:
    """Return the distributions that the runs import and the machine lacks."""
    return sorted(needed_by(["detaug", "nnunetv2"], UNUSED) - needed_by(EXPECTED) - {"detaug"})


def needed_by(names: Collection[str], without: Collection[str] = ()) -> set[str]:
    """Return distributions that are installed here, and all that they require, but for some."""
    needed: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in needed or name in without:
            continue
        try:
            requirements = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:
            continue  # of another platform
        needed.add(name)
        for requirement in requirements:
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(canonicalize_name(requirement.name))
    return needed


def fetch(folder: Path, python: str, max_size: float, packages: Collection[str]) -> Iterator[str]:
    """Put the versions of these packages that are installed here into a folder, as wheels.

    Args:
        folder: for the wheels; it is made.
        python: the other machine's version, e.g. ``3.12``.
        max_size: MiB that all wheels together may have; the large ones come last.
        packages: names of distributions.

    Yields:
        what does not fit, and what is in the folder, in words.

    Raises:
        CannotRun: pip found no wheel or source of a package.
    """
    folder.mkdir(parents=True, exist_ok=True)
    room = max_size * MIB
    with TemporaryDirectory() as temporary:
        download([f"{name}=={version(name)}" for name in packages], python, Path(temporary))
        wheels = sorted((_size(wheel), wheel) for wheel in Path(temporary).glob("*.whl"))
        for size, wheel in wheels:
            if size > room:
                yield f"does not fit: {wheel.name}, {size / MIB:.1f} MiB"
                continue
            room -= size
            shutil.move(wheel, folder)
    yield f"{len(list(folder.iterdir()))} wheels, {max_size - room / MIB:.1f} MiB"


def _size(file: Path) -> int:
    return file.stat().st_size


def download(requirements: Collection[str], python: str, folder: Path) -> None:
    """Put wheels of these requirements into a folder.

    What is published as source alone becomes a wheel here, which fits everywhere if it is of pure
    Python.
    """
    tags = [f"--platform={tag}_{platform.machine()}" for tag in MANYLINUX]
    target = (f"--python-version={python}", "--implementation=cp", *tags)
    _pip("download", "--no-deps", *target, f"--dest={folder}", *requirements)
    sources = [str(file) for file in folder.iterdir() if file.suffix != ".whl"]
    if sources:
        _pip("wheel", "--no-deps", f"--wheel-dir={folder}", *sources)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotRun(f"pip {arguments[0]} failed: {done.stderr.strip()}")
