"""A program whose cluster loses its head: writes what it got, what it was told, and the state that it saved, as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["RAY_AUTH_MODE"] = "disabled"

from ray.cluster_utils import Cluster  # reads the variable

from detaug import fingerprint
from tests.peers.ray.test_losses import EPOCH, Slow, in_cluster


def main(place: Path) -> None:
    """Write to that file."""
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 200 * 2**20})
    nodes.connect()
    augmenter = in_cluster(Slow(), num_processes=1, actors=0, patience=4.0)
    told: dict[str, Any] = {"found": [fingerprint(next(augmenter)) for _ in range(8)], "error": ""}
    nodes.head_node.kill_gcs_server()
    try:
        for _ in range(EPOCH):
            told["found"].append(fingerprint(next(augmenter)))
            time.sleep(0.3)
    except RuntimeError as error:
        told["error"] = str(error)
    told["state"] = augmenter.state_dict()
    place.write_text(json.dumps(told))
    augmenter.close()
    os._exit(0)  # Ray itself waits for the head for a minute


if __name__ == "__main__":
    main(Path(sys.argv[1]))
