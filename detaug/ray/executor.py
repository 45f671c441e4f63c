"""`RayExecutor`: connects to a cluster, and says how many actors make batches there and what each
of them is given.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from detaug.engine import arguments
from detaug.engine.executor import DEFAULT_MAX_RESTARTS, Engine, EngineContext
from detaug.system.interpreters import THREAD_VARIABLES, worker_environment

#: What travels to the actors of the environment of a worker of this machine.
_VARIABLES = (*THREAD_VARIABLES, "PYTHONHASHSEED")


@dataclass(frozen=True)
class RayExecutor:
    """Actors of a Ray cluster make the batches; nothing about them changes but the speed.

    ``num_processes`` of the augmenter are actors on this node, which are asked first; `num_actors`
    more run wherever there are CPUs. The loader and the transform are sent to each node once. A
    batch comes back through Ray's object store, and is mapped without a copy; it is writable, and
    stays valid as long as it is held. At most ``num_processes + num_actors + num_cached`` batches
    are made ahead; Ray writes those that an object store cannot hold to its node's disk.

    Actors and nodes may die, be removed and be added at any time: what was lost is made again.
    Files that the loader reads must be there on every node, under the same path.

    Args:
        num_actors: actors beside those of this node.
        address: of the cluster, as for ``ray.init``: ``"auto"``, ``"host:6379"``, ``"local"`` for a
            new one on this machine; None: the one that this program is connected to, else the one
            that ``RAY_ADDRESS`` names or that runs on this machine, else a new one on this machine.
        num_cpus: of an actor. Batches are made by one thread.
        runtime_env: Ray's, for the actors: packages, ``working_dir`` with the user's modules,
            variables.
        max_restarts: raise `WorkerDied` after one batch has ended this many actors in a row.

    Raises:
        ImportError: Ray is not installed (when the first batch is asked for).
        ConnectionError: there is no cluster at that address.
        TypeError, ValueError: a number is none, or out of its range.
    """

    num_actors: int
    address: str | None = None
    num_cpus: float = 1.0
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    max_restarts: int = DEFAULT_MAX_RESTARTS

    #: The pipeline is sent to other interpreters.
    travels = True

    def __post_init__(self) -> None:
        arguments.count("max_restarts", self.max_restarts)
        arguments.count("num_actors", self.num_actors)
        if self.address is not None and "://" in self.address:
            raise ValueError(
                f"address must be 'auto' or 'host:port' of the cluster's head, not {self.address!r}"
            )

    @classmethod
    def from_url(cls, url: str) -> RayExecutor:
        """``ray://ADDRESS?num_actors=16&num_cpus=1``; the address is ``auto`` or ``host:port`` of
        the cluster's head, or nothing: as None.

        Raises:
            ValueError: the text says anything else, or no number of actors.
        """
        parts = urlsplit(url)
        given, known = dict(parse_qsl(parts.query)), {"num_actors": int, "num_cpus": float}
        try:
            if (
                parts.scheme != "ray"
                or parts.path not in ("", "/")
                or not {"num_actors"} <= set(given) <= set(known)
            ):
                raise ValueError("it needs num_actors, and may have num_cpus")
            return cls(
                address=parts.netloc or None,
                **{name: known[name](text) for name, text in given.items()},
            )
        except ValueError as error:
            example = "ray://auto?num_actors=16 or ray://host:6379?num_actors=16&num_cpus=1"
            raise ValueError(f"{url!r} names no executor: {error}. Write it as {example}") from None

    def num_workers(self, num_processes: int) -> int:
        """See `detaug.engine.executor.Executor`."""
        number = num_processes + self.num_actors
        if not number:
            raise ValueError(
                "num_processes=0 and RayExecutor(num_actors=0) leave no actor that makes batches: "
                "pass more of either"
            )
        return number

    def start(self, work: EngineContext) -> Engine:
        """See `detaug.engine.executor.Executor`."""
        connect(self.address)
        from detaug.ray.engine import RayEngine

        return RayEngine(
            work,
            num_actors=self.num_workers(work.num_processes),
            num_cpus=self.num_cpus,
            max_restarts=self.max_restarts,
            actor_options=self.options,
        )

    def options(self, node_id: str | None) -> dict[str, Any]:
        """Of an actor, for Ray; `node_id`: it is to run there and nowhere else."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        environment = worker_environment()
        variables = {name: environment[name] for name in _VARIABLES if name in environment}
        return {
            "num_cpus": self.num_cpus,
            "runtime_env": {
                **self.runtime_env,
                "env_vars": {**variables, **self.runtime_env.get("env_vars", {})},
            },
            "scheduling_strategy": "SPREAD"
            if node_id is None
            else NodeAffinitySchedulingStrategy(node_id, soft=False),
            # A dead one is replaced here, where it is known which batch it was making.
            "max_restarts": 0,
            "max_task_retries": 0,
        }


def connect(address: str | None) -> None:
    """Have this process connected to a cluster."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("RayExecutor needs Ray: pip install 'detaug[ray]'") from error
    if ray.is_initialized():
        return
    host, _, port = (address or "").rpartition(":")
    try:
        if host and port.isdecimal():  # Ray itself tries for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except Exception as error:
        where = f"at {address!r}" if address is not None else "here"
        raise ConnectionError(
            f"no connection to the Ray cluster {where}: {error}. Start one with `ray start "
            "--head`, and give its address, or "
            "None for one on this machine; Ray and Python must be of the same versions on all its "
            "nodes"
        ) from error
