"""TorchIO."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torchio", reason="TorchIO is not installed (the extra `peers`)")

from tests.peers.conformance import Conformance, alone, running
from tests.peers.torchio_pipelines import EXAMPLES, QUEUE

__all__ = ["EXAMPLES"]


class TestTorchIO(Conformance):
    """Every example of `torchio_pipelines`."""


@pytest.mark.parametrize("num_processes", [0, 3])
def test_a_queue_of_patches_is_refused_or_right(
    num_processes: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = None
    try:
        made = running(QUEUE, tmp_path, num_processes=num_processes)
        expected = alone(QUEUE, tmp_path)
    except Exception as error:
        refusal = error
    if refusal is not None:
        named = "Queue" in str(refusal)
        assert named, f"the refusal must name what it is about: {refusal}"
        return
    warned = any(record.name == "detaug" and "Queue" in record.getMessage() for record in caplog.records)
    assert warned or made == expected, "batches differ from those made alone, and nobody was told"
