"""The versions of nnU-Net that the trainers support."""

from __future__ import annotations

import importlib.metadata
import os

from detaug.versions import SUPPORTED_NNUNET

#: Set to 1 to use another version.
ANY_VERSION_VARIABLE = "DETAUG_ANY_NNUNET"


class UnsupportedNNUNet(RuntimeError):
    """The installed nnU-Net is not a version that detaug's trainers support."""


def installed_version() -> str:
    """The version of nnunetv2.

    Raises:
        UnsupportedNNUNet: it is not installed as a package.
    """
    try:
        return importlib.metadata.version("nnunetv2")
    except importlib.metadata.PackageNotFoundError:
        raise UnsupportedNNUNet('nnunetv2 is not installed: pip install "detaug[nnunet]"') from None


def check_nnunet_version() -> str:
    """The installed version, if the trainers support it (with ``DETAUG_ANY_NNUNET=1`` in the environment: any).

    Raises:
        UnsupportedNNUNet: they do not.
    """
    version = installed_version()
    if _supported(version) or os.environ.get(ANY_VERSION_VARIABLE) == "1":
        return version
    known = " or ".join(f"{each}.x" for each in SUPPORTED_NNUNET)
    raise UnsupportedNNUNet(
        f"nnunetv2 {version} is installed, and detaug's trainers support {known}: a training might silently not be "
        f'reproducible. Install a supported one (pip install "nnunetv2=={SUPPORTED_NNUNET[-1]}.*"), or set '
        f"{ANY_VERSION_VARIABLE}=1 to continue and check the result with `detaug nnunet verify`"
    )


def _supported(version: str) -> bool:
    return any(version == each or version.startswith(f"{each}.") for each in SUPPORTED_NNUNET)
