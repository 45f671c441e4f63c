"""What two nodes must have in common to make the same bytes, and what may differ with a warning."""

from __future__ import annotations

import os
import platform
import re
import socket
from dataclasses import dataclass

import ray

from detaug.doctor.machine import numpy_features, version_of
from detaug.versions import NUMERICS, SEED_SCHEME, __version__

#: Libraries whose arithmetic makes the bytes of a batch, and Ray, which refuses other versions of itself and of Python.
_LIBRARIES = ("ray", "numpy", "scipy", "torch", "numba", "batchgenerators", "batchgeneratorsv2")
#: The widest vector instructions of each architecture say it all.
_TELLING = ("AVX512_SKX", "AVX512F", "AVX2", "FMA3", "SVE", "ASIMD")


@dataclass(frozen=True)
class NodeReport:
    """An actor's process and its node.

    Attributes:
        name: the node's host name and address, for messages.
        detaug: (version, seed scheme, numerics version).
        processor: the architecture and the vector instructions that NumPy chooses its code by.
    """

    node_id: str
    name: str
    pid: int
    detaug: tuple[str, int, int]
    libraries: tuple[tuple[str, str], ...]
    processor: str

    @staticmethod
    def here() -> NodeReport:
        """That of this process, which is connected to the cluster."""
        address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return NodeReport(
            ray.get_runtime_context().get_node_id(),
            f"{socket.gethostname()} ({address})",
            os.getpid(),
            (__version__, SEED_SCHEME, NUMERICS),
            (
                ("Python", platform.python_version()),
                *((name, found) for name in _LIBRARIES if (found := version_of(name))),
            ),
            " ".join([platform.machine(), *(name for name in _TELLING if name in (numpy_features() or ()))]),
        )


def why_unusable(node: NodeReport, ours: NodeReport) -> str:
    """Why a node's batches would be other ones; empty: they would not."""
    if node.detaug[1:] != ours.detaug[1:]:
        return (
            f"node {node.name} has detaug {node.detaug[0]} (seed scheme {node.detaug[1]}, numerics {node.detaug[2]}), this "
            f"process {ours.detaug[0]} ({ours.detaug[1]}, {ours.detaug[2]}): their batches differ. Install the same version"
        )
    return ""


def remarks(node: NodeReport, ours: NodeReport) -> list[str]:
    """What may change bytes on a node, in sentences."""
    said = []
    theirs = dict(node.libraries)
    differing = [(name, theirs.get(name, "none"), here) for name, here in ours.libraries if theirs.get(name) != here]
    if differing:
        what = ", ".join(f"{name} {there} (here {here})" for name, there, here in differing)
        said.append(
            f"node {node.name} has other versions of libraries: {what}. detaug's own transforms give the same bytes; what "
            "loaders and other libraries' transforms compute may differ"
        )
    if node.processor != ours.processor:
        said.append(
            f"node {node.name} has another type of processor ({node.processor}; here {ours.processor}). detaug's own "
            "transforms give the same bytes on any; NumPy, SciPy and torch choose their code by the processor, so that what "
            "loaders and other libraries' transforms compute may differ in the last bits"
        )
    return said


def advice_on(error: str) -> str:
    """What to do about an error that is there because another node lacks something; empty: it need not be.

    A missing file is known by the system's words, or by the class alone, as fsspec has it.
    """
    if "No such file or directory" in error or re.search(r"^FileNotFoundError\b", error, re.MULTILINE):
        return "Paths must exist on every node of the cluster: a shared folder, or fsspec"
    if "ModuleNotFoundError" in error:
        return (
            "Modules must be importable on every node of the cluster: install them there, or pass your own by "
            'runtime_env={"working_dir": "."}'
        )
    return ""
