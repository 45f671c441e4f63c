"""When epochs began and ended. nnU-Net keeps these times in its checkpoints, where they make equal trainings differ; here
they are in a file beside them, from which its plot of epoch durations continues after a resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detaug.nnunet.compatibility import EPOCH_TIMES
from detaug.reports.atomic_files import write_text

FILE = "epoch_times.json"


def without(logged: Mapping[str, Any]) -> dict[str, Any]:
    """What nnU-Net's logger holds, with zeros for times."""
    return {name: [0.0] * len(values) if name in EPOCH_TIMES else values for name, values in logged.items()}


def keep(logged: Mapping[str, Any], folder: str | Path) -> None:
    """Write the times, in seconds since 1970, to the file in a training's output folder."""
    times = {name: [float(time) for time in logged.get(name, [])] for name in EPOCH_TIMES}
    write_text(Path(folder) / FILE, json.dumps(times))


def restore(logged: dict[str, Any], folder: str | Path) -> None:
    """Put the times back in place of the zeros, as far as the file has them."""
    try:
        known = json.loads((Path(folder) / FILE).read_text())
    except (OSError, ValueError):
        return
    for name in EPOCH_TIMES:
        times = known.get(name) if isinstance(known, dict) else None
        if name in logged and isinstance(times, list) and len(times) >= len(logged[name]):
            logged[name] = [float(time) for time in times[: len(logged[name])]]
