"""Environments with the last release of each minor version of nnU-Net: `python -m tests.peers.nnunet.environments FOLDER`.

Each is a virtual environment of a few megabytes: all but nnU-Net itself is found in the environment of the interpreter that
makes it. ``DETAUG_NNUNET_ENVIRONMENTS=FOLDER`` has the tests use them; without it they make their own.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

#: Version -> what is installed of it, without its dependencies.
VERSIONS = {
    "2.5": ["nnunetv2==2.5.*", "dynamic-network-architectures==0.3.*"],
    "2.6": ["nnunetv2==2.6.*"],
    "2.7": ["nnunetv2==2.7.*"],
    "2.8": ["nnunetv2==2.8.*"],
}


def environment(folder: Path, version: str) -> Path:
    """The interpreter of a version's environment, which is made where there is none."""
    home = folder / version
    python = home / "bin" / "python"
    ready = home / "ready"
    if not ready.exists():
        venv.create(home, with_pip=True, clear=True)
        packages = next((home / "lib").glob("python*/site-packages"))
        (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
        command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed", *VERSIONS[version]]
        subprocess.run(command, check=True)
        ready.touch()
    return python


if __name__ == "__main__":
    for each in VERSIONS:
        print(environment(Path(sys.argv[1]), each))
