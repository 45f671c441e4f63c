"""The differences between nodes: those that are errors, and those that are warnings."""

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
#: The vector instructions that are compared; the widest ones imply the others.
_VECTORS = ("AVX512_SKX", "AVX512F", "AVX2", "FMA3", "SVE", "ASIMD")


@dataclass(frozen=True)
class NodeReport:
    """An actor's process and its node.

    Attributes:
        node_id: Ray's id of the node.
        name: the node's host name and address, for messages.
        pid: the process id.
        detaug: (version, seed scheme, numerics version).
        facts: the versions of libraries; and the processor, which is the architecture and the
            vector instructions by which NumPy chooses its code.
    """

    node_id: str
    name: str
    pid: int
    detaug: tuple[str, int, int]
    facts: dict[str, str]

    @staticmethod
    def here() -> NodeReport:
        """Return the report on this process, which is connected to the cluster."""
        address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return NodeReport(
            node_id=ray.get_runtime_context().get_node_id(),
            name=f"{socket.gethostname()} ({address})",
            pid=os.getpid(),
            detaug=(__version__, SEED_SCHEME, NUMERICS),
            facts=_facts(),
        )


def _facts() -> dict[str, str]:
    """Return the `NodeReport.facts` of this process."""
    facts = {"Python": platform.python_version()}
    for library in _LIBRARIES:
        version = version_of(library)
        if version:
            facts[library] = version
    features = numpy_features() or ()
    vectors = [name for name in _VECTORS if name in features]
    facts["processor"] = " ".join([platform.machine(), *vectors])
    return facts


def why_unusable(node: NodeReport, driver: NodeReport) -> str:
    """Return why a node's batches would differ from the driver's; empty: they would not."""
    if node.detaug[1:] == driver.detaug[1:]:
        return ""
    version, scheme, numerics = node.detaug
    driver_version, driver_scheme, driver_numerics = driver.detaug
    return (
        f"node {node.name} has detaug {version} (seed scheme {scheme}, numerics {numerics}), this"
        f" process {driver_version} ({driver_scheme}, {driver_numerics}): their batches differ."
        " Install the same version"
    )


def remark(node: NodeReport, driver: NodeReport) -> str:
    """Return a warning that bytes of a node's batches may differ; empty: they do not."""
    differing = []
    for name, driver_value in driver.facts.items():
        if node.facts.get(name) != driver_value:
            differing.append(f"{name} {node.facts.get(name, 'none')} (here {driver_value})")
    if not differing:
        return ""
    return (
        f"node {node.name} differs: {', '.join(differing)}. detaug's own transforms give the same"
        " bytes; NumPy, SciPy and torch choose their code by version and processor, so that what"
        " loaders and other libraries' transforms compute may differ"
    )
