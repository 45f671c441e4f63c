"""What two nodes must have in common to make the same bytes, and what may differ with a warning."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import dataclass

import ray

from detaug.training.machine import numpy_features, version_of
from detaug.versions import NUMERICS, SEED_SCHEME, __version__

#: Libraries whose arithmetic makes the bytes of a batch, and Ray, which refuses other versions of
#: itself and of Python.
_LIBRARIES = ("ray", "numpy", "scipy", "torch", "numba", "batchgenerators", "batchgeneratorsv2")
#: The widest vector instructions of each architecture say it all.
_TELLING = ("AVX512_SKX", "AVX512F", "AVX2", "FMA3", "SVE", "ASIMD")


@dataclass(frozen=True)
class NodeReport:
    """An actor's process and its node.

    Attributes:
        name: the node's host name and address, for messages.
        detaug: (version, seed scheme, numerics version).
        facts: of libraries their versions, and the processor: the architecture and the vector
            instructions that NumPy chooses its code by.
    """

    node_id: str
    name: str
    pid: int
    detaug: tuple[str, int, int]
    facts: dict[str, str]

    @staticmethod
    def here() -> NodeReport:
        """That of this process, which is connected to the cluster."""
        address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        vectors = [name for name in _TELLING if name in (numpy_features() or ())]
        return NodeReport(
            ray.get_runtime_context().get_node_id(),
            f"{socket.gethostname()} ({address})",
            os.getpid(),
            (__version__, SEED_SCHEME, NUMERICS),
            {
                "Python": platform.python_version(),
                **{name: found for name in _LIBRARIES if (found := version_of(name))},
                "processor": " ".join([platform.machine(), *vectors]),
            },
        )


def why_unusable(node: NodeReport, ours: NodeReport) -> str:
    """Why a node's batches would be other ones; empty: they would not."""
    if node.detaug[1:] != ours.detaug[1:]:
        return (
            f"node {node.name} has detaug {node.detaug[0]} (seed scheme {node.detaug[1]}, numerics "
            f"{node.detaug[2]}), this "
            f"process {ours.detaug[0]} ({ours.detaug[1]}, {ours.detaug[2]}): their batches differ. "
            "Install the same version"
        )
    return ""


def remark(node: NodeReport, ours: NodeReport) -> str:
    """What may change bytes on a node; empty: nothing may."""
    differing = [
        f"{name} {node.facts.get(name, 'none')} (here {here})"
        for name, here in ours.facts.items()
        if node.facts.get(name) != here
    ]
    return (
        f"node {node.name} differs: {', '.join(differing)}. detaug's own transforms give the same "
        "bytes; NumPy, SciPy and torch "
        "choose their code by version and processor, so that what loaders and other libraries' "
        "transforms compute may differ"
        if differing
        else ""
    )
