"""A program whose cluster ends every actor, since the node uses more memory than is allowed."""

from __future__ import annotations

import os

os.environ |= {
    "RAY_AUTH_MODE": "disabled",
    "RAY_memory_usage_threshold": "0.001",
    "RAY_memory_monitor_refresh_ms": "100",
}

import ray

from tests.peers.ray.test_losses import Slow, in_cluster


def main() -> None:
    """Request a batch."""
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=100 * 2**20,
    )
    try:
        with in_cluster(Slow(), actors=2) as augmenter:
            next(augmenter)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
