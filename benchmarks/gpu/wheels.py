"""Fetch what a GPU's machine lacks, as wheels in a folder that is carried there.

That machine is expected to have torch (2.11 or newer), numpy, scipy and numba, and need have no
network. There: ``pip install --no-index --no-deps --target SITE FOLDER/*.whl``, and SITE in
``PYTHONPATH``.
"""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

#: What the machine has; everything that these need is there as well.
EXPECTED = ("torch", "numpy", "scipy", "numba")

#: What the runs import, in the order in which they get a share of the folder's size: the large ones
#: last. SimpleITK and the plotting libraries are left out, since stand-ins do (`standins`).
PACKAGES = (
    # detaug's own
    "batchgenerators",
    "click",
    "cloudpickle",
    "psutil",
    "rich",
    "markdown-it-py",
    "mdurl",
    "pygments",
    "threadpoolctl",
    "typing_extensions",
    "xxhash",
    # nnU-Net's
    "nnunetv2",
    "batchgeneratorsv2",
    "dynamic_network_architectures",
    "acvl_utils",
    "tqdm",
    "einops",
    "blosc2",
    "msgpack",
    "ndindex",
    "numexpr",
    "httpx",
    "httpcore",
    "h11",
    "anyio",
    "certifi",
    "idna",
    "connected-components-3d",
    "nibabel",
    "importlib-resources",
    "tifffile",
    "imageio",
    "lazy-loader",
    "packaging",
    "joblib",
    "narwhals",
    "python-dateutil",
    "six",
    "pillow",
    "scikit-learn",
    "pandas",
    "scikit-image",
)

MIB = 2**20

#: pip matches a wheel's version of manylinux exactly: all that there are, the newest first.
MANYLINUX = (
    *(f"manylinux_2_{minor}" for minor in range(39, 4, -1)),
    "manylinux2014",
    "manylinux2010",
    "manylinux1",
)


@dataclass(frozen=True)
class Fetched:
    """What is in the folder, and what is not.

    Attributes:
        sizes: name of a wheel → bytes.
        too_large: requirement → bytes of its wheel, which did not fit.
        failed: requirement → the last line of what pip said.
    """

    sizes: dict[str, int]
    too_large: dict[str, int]
    failed: dict[str, str]

    def lines(self) -> list[str]:
        """Return the folder's content in words."""
        total = sum(self.sizes.values())
        lines = [f"{len(self.sizes)} wheels, {total / MIB:.1f} MiB"]
        lines += [
            f"does not fit: {requirement}, {size / MIB:.1f} MiB"
            for requirement, size in self.too_large.items()
        ]
        lines += [f"not there: {name}: {reason}" for name, reason in self.failed.items()]
        return lines


def fetch(
    folder: Path, python: str, max_size: float, packages: Sequence[str] = PACKAGES
) -> Fetched:
    """Put the versions of these packages that are installed here into a folder, as wheels.

    Args:
        folder: for the wheels; it is made.
        python: the other machine's version, e.g. ``3.12``.
        max_size: MiB that all wheels together may have.
        packages: names of distributions.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sizes: dict[str, int] = {}
    too_large: dict[str, int] = {}
    failed: dict[str, str] = {}
    room = max_size * MIB
    for name in packages:
        try:
            requirement = f"{name}=={importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            failed[name] = "not installed here, so no version was tried"
            continue
        with TemporaryDirectory() as temporary:
            error = _download(requirement, python, Path(temporary))
            wheels = list(Path(temporary).glob("*.whl"))
            if not wheels:
                failed[requirement] = error
                continue
            (wheel,) = wheels
            size = wheel.stat().st_size
            if size > room:
                too_large[requirement] = size
                continue
            (folder / wheel.name).write_bytes(wheel.read_bytes())
        sizes[wheel.name] = size
        room -= size
    return Fetched(sizes, too_large, failed)


def _download(requirement: str, python: str, folder: Path) -> str:
    """Put the wheel of a requirement into a folder; return what pip said last."""
    platforms = [f"--platform={tag}_{platform.machine()}" for tag in MANYLINUX]
    said = _pip(
        "download",
        "--no-deps",
        "--only-binary=:all:",
        f"--python-version={python}",
        "--implementation=cp",
        *platforms,
        f"--dest={folder}",
        requirement,
    )
    if any(folder.glob("*.whl")):
        return said
    # Published as source alone: a wheel made here fits everywhere if it is of pure Python.
    said = _pip("wheel", "--no-deps", f"--wheel-dir={folder}", requirement)
    for wheel in folder.glob("*.whl"):
        if not wheel.name.endswith("-none-any.whl"):
            wheel.unlink()
            return "published as source alone, and not of pure Python"
    return said


def _pip(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else ""
