"""`RayExecutor`: the connection to a cluster, and the number and options of its actors."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from detaug.engine import arguments
from detaug.engine.executor import DEFAULT_MAX_RESTARTS, Engine, EngineContext
from detaug.system.interpreters import THREAD_VARIABLES, worker_environment

#: Environment variables of a worker of this machine that actors get as well.
_VARIABLES = (*THREAD_VARIABLES, "PYTHONHASHSEED")
_URL_ADVICE = "it needs num_actors, and may have num_cpus"


@dataclass(frozen=True)
class RayExecutor:
    """Actors of a Ray cluster make the batches, with the same bytes.

    ``num_processes`` actors run on this node and get their tasks first; `num_actors` more run
    wherever there are CPUs. The loader and the transform are sent to each node once. A batch comes
    back through Ray's object store and is mapped without a copy; it is writable, and stays valid as
    long as it is held. At most ``num_processes + num_actors + num_cached`` batches are made ahead
    of time; Ray writes batches that an object store cannot hold to its node's disk.

    Actors and nodes may die, be removed and be added at any time: batches that are lost are made
    again. Files that the loader reads must exist on every node, under the same path.

    Args:
        num_actors: number of actors in addition to those of this node.
        address: the cluster's address, as for ``ray.init``: ``"auto"``, ``"host:6379"``, or
            ``"local"`` for a new cluster on this machine. None: the cluster to which this program
            is connected, else the one that ``RAY_ADDRESS`` names or that runs on this machine, else
            a new one on this machine.
        num_cpus: CPUs that each actor reserves. One thread makes its batches.
        runtime_env: Ray's runtime environment of the actors: packages, ``working_dir`` with the
            user's modules, variables.
        max_restarts: raise `WorkerDied` after one batch has ended this many actors in a row.

    Raises:
        ImportError: Ray is not installed (when the first batch is asked for).
        ConnectionError: there is no cluster at that address.
        TypeError, ValueError: an argument is no number, or out of its range.
    """

    num_actors: int
    address: str | None = None
    num_cpus: float = 1.0
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    max_restarts: int = DEFAULT_MAX_RESTARTS

    #: The pipeline is pickled for other interpreters. Implements `Executor.requires_pickling`.
    requires_pickling = True

    def __post_init__(self) -> None:
        arguments.count("max_restarts", self.max_restarts)
        arguments.count("num_actors", self.num_actors)
        if self.address is not None and "://" in self.address:
            raise ValueError(
                f"address must be 'auto' or 'host:port' of the cluster's head, not {self.address!r}"
            )

    @classmethod
    def from_url(cls, url: str) -> RayExecutor:
        """Return the executor of a URL such as ``ray://ADDRESS?num_actors=16&num_cpus=1``.

        Args:
            url: its address is ``auto`` or ``host:port`` of the cluster's head. Without an address
                it is None.

        Raises:
            ValueError: the text is anything else, or has no number of actors.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        try:
            if parts.scheme != "ray" or parts.path not in ("", "/"):
                raise ValueError(_URL_ADVICE)
            if "num_actors" not in options or not options.keys() <= {"num_actors", "num_cpus"}:
                raise ValueError(_URL_ADVICE)
            numbers: dict[str, Any] = {}
            for name, text in options.items():
                numbers[name] = int(text) if name == "num_actors" else float(text)
            return cls(address=parts.netloc or None, **numbers)
        except ValueError as error:
            example = "ray://auto?num_actors=16 or ray://host:6379?num_actors=16&num_cpus=1"
            raise ValueError(f"{url!r} names no executor: {error}. Write it as {example}") from None

    def num_workers(self, num_processes: int) -> int:
        """Return the number of actors. Implements `Executor.num_workers`."""
        num_actors = num_processes + self.num_actors
        if not num_actors:
            raise ValueError(
                "num_processes=0 and RayExecutor(num_actors=0) leave no actor that makes batches:"
                " pass more of either"
            )
        return num_actors

    def start(self, context: EngineContext) -> Engine:
        """Return a running engine. Implements `Executor.start`."""
        connect(self.address)
        from detaug.ray.engine import RayEngine

        return RayEngine(
            context,
            num_actors=self.num_workers(context.num_processes),
            num_cpus=self.num_cpus,
            max_restarts=self.max_restarts,
            actor_options=self.options,
        )

    def options(self, node_id: str | None) -> dict[str, Any]:
        """Return Ray's options of an actor.

        Args:
            node_id: the only node on which the actor may run; None: it may run on any node.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Only these variables, because other nodes have other paths and settings.
        environment = worker_environment()
        variables = {name: environment[name] for name in _VARIABLES if name in environment}
        variables.update(self.runtime_env.get("env_vars", {}))
        strategy: Any = "SPREAD"
        if node_id is not None:
            strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
        return {
            "num_cpus": self.num_cpus,
            "runtime_env": {**self.runtime_env, "env_vars": variables},
            "scheduling_strategy": strategy,
            # The engine replaces a dead actor, because it knows which batch the actor was making.
            "max_restarts": 0,
            "max_task_retries": 0,
        }


def connect(address: str | None) -> None:
    """Connect this process to a cluster, unless it is connected to one.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: there is no cluster at that address.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("RayExecutor needs Ray: pip install 'detaug[ray]'") from error
    if ray.is_initialized():
        return
    host, _, port = (address or "").rpartition(":")
    try:
        # Ray itself would try to connect for minutes.
        if host and port.isdecimal():
            socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except Exception as error:
        where = f"at {address!r}" if address is not None else "here"
        raise ConnectionError(
            f"no connection to the Ray cluster {where}: {error}. Start one with `ray start --head`,"
            " and give its address, or None for one on this machine; Ray and Python must be of the"
            " same versions on all its nodes"
        ) from error
