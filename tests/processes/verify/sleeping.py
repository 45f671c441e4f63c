"""A pipeline that takes long, to be interrupted."""

from __future__ import annotations

import time
from typing import Any


class Sleeping:
    def __next__(self) -> dict[str, Any]:
        time.sleep(1000)
        return {}


def make() -> tuple[Sleeping, None]:
    return Sleeping(), None
