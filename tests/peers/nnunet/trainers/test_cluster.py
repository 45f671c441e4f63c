"""nnU-Net's trainers with ``DETAUG_EXECUTOR``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.nnunet.trainers.in_process import ShortDetAug, new_trainer


def test_a_wrong_executor_is_named_with_its_variable(nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETAUG_EXECUTOR", "ray://auto")
    made = new_trainer(nnunet_environment, ShortDetAug)
    made.initialize()
    with pytest.raises(ValueError, match="'ray://auto' does not say how many actors"):
        made.get_dataloaders()
