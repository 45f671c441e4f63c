"""Settings of OmegaConf, as Hydra gives them to a program, are compared like the user's own."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

pytest.importorskip("omegaconf", reason="OmegaConf is not installed (the extra `peers`)")

from tests.processes.purity.ways import listening
from tests.unit.purity.users_modules import Program

IN_A_MODULE = """
from omegaconf import OmegaConf
CONFIG = OmegaConf.create({"noise": {"sigma": 0.5}, "epochs": 100, "resume": None})
def transform(x):
    return {"x": x * CONFIG.noise.sigma}
"""
IN_AN_OBJECT = """
from omegaconf import OmegaConf
CONFIG = OmegaConf.create({"noise": {"sigma": [0.5, 1.0]}, "epochs": 100, "resume": None})
class Noise:
    def __init__(self, config):
        self.config = config
    def __call__(self, x):
        return {"x": x * self.config["noise"].sigma[0]}
transform = Noise(CONFIG)
"""


def warnings_of(name: str, source: str, change: str) -> list[str]:
    """Return the warnings of a second program, which changes settings and loads a state."""
    with listening() as heard, ExitStack() as stack:
        first = Program(source, 1, stack, name)
        next(first.augmenter)
        state = json.loads(json.dumps(first.augmenter.state_dict()))
        second = Program(source, 2, stack, name)
        exec(change, vars(second.module))
        second.augmenter.load_state_dict(state)
        next(second.augmenter)
    return heard


@pytest.mark.parametrize(
    ("source", "change", "path"),
    [
        (IN_A_MODULE, "CONFIG.noise.sigma = 1.5", "settings_of_omegaconf.CONFIG.noise['sigma']"),
        (IN_AN_OBJECT, "CONFIG.noise.sigma[0] = 1.5", "transform.config.noise['sigma'][0]"),
    ],
)
def test_a_setting_that_differs_is_named(source: str, change: str, path: str) -> None:
    [text] = warnings_of("settings_of_omegaconf", source, change)
    assert f"{path}: here 1.5, in the state 0.5" in text


@pytest.mark.parametrize("source", [IN_A_MODULE, IN_AN_OBJECT])
def test_settings_that_no_batch_reads_are_not(source: str) -> None:
    change = "CONFIG.epochs = 7; CONFIG.resume = 'runs/last.pt'"
    assert warnings_of("settings_of_omegaconf", source, change) == []
