"""The gates of a pipeline, and how many samples show them."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.nnunet import training_transforms
from detaug.nnunet.verification.gates import (
    Gate,
    forced_open,
    gates_of,
    iterations_for,
    rare_ones,
    samples_for,
    seen_in,
)
from detaug.nnunet.verification.seen import Seen
from detaug.transforms import Compose, GaussianNoise, OneOf, RandomApply


def noise(probability: float) -> RandomApply:
    return RandomApply(GaussianNoise(noise_variance=(1, 1), p_per_channel=1, synchronize_channels=True), probability)


def test_gates_are_found_with_what_is_on_the_way_to_them() -> None:
    inner = GaussianNoise(noise_variance=(1, 1), p_per_channel=0.5, synchronize_channels=True)
    pipeline = Compose([noise(0.1), OneOf([noise(0.2), RandomApply(inner, 0.4)]), noise(1), noise(0)])
    found = [(gate.name, round(gate.probability, 6)) for gate in gates_of(pipeline)]
    assert found == [
        ("GaussianNoise", 0.1),
        ("GaussianNoise", 0.1),
        ("GaussianNoise", 0.2),
        ("GaussianNoise.p_per_channel", 0.1),
    ]


def test_a_gate_is_forced_open_with_those_on_the_way_to_it_and_no_other() -> None:
    pipeline = Compose([noise(1e-9), OneOf([noise(0), noise(1e-9)])])
    image = np.zeros((1, 4, 4, 4), np.float32)

    def changes(made: Compose) -> bool:
        return bool(np.any(made(image=image, rng=np.random.default_rng(0))["image"]))

    gates = [gate for gate in gates_of(pipeline) if gate.name == "GaussianNoise"]
    assert len(gates) == 2
    assert [changes(forced_open(pipeline, gate)) for gate in gates] == [True, True]
    assert not changes(pipeline)


def test_the_default_pipeline_has_the_gates_that_nnunet_gives_it() -> None:
    pipeline = training_transforms((16, 16, 16), (-0.5, 0.5), None, (0, 1, 2), False)
    found = {gate.name: gate.probability for gate in gates_of(pipeline)}
    assert found["GaussianNoise"] == 0.1
    assert found["SpatialTransform.p_rotation"] == 0.2
    assert found["GaussianBlur"] == 0.2


@pytest.mark.parametrize("probability", [0.5, 0.05, 0.02])
def test_so_many_samples_show_a_branch_with_99_percent(probability: float) -> None:
    samples = samples_for(probability)
    assert (1 - probability) ** samples <= 0.01 < (1 - probability) ** (samples - 1)
    assert seen_in(samples) <= probability < seen_in(samples - 1)


def test_iterations_follow_from_the_rarest_gate_within_limits() -> None:
    def gate(probability: float) -> Gate:
        return Gate("any", probability, (), "p")

    assert iterations_for([], 2, 2) == iterations_for([gate(0.5)], 2, 2) == 23
    assert iterations_for([gate(0.5), gate(0.03)], 1, 1) == samples_for(0.03)
    assert iterations_for([gate(1e-6)], 1, 1) == samples_for(0.02)
    assert rare_ones([gate(0.5), gate(0.05)], 100) == [gate(0.05)]


def test_the_verdict_tells_what_was_seen() -> None:
    said = str(Seen(3, 12, (("Rare", 0.05),), True))
    assert "saw 12 training samples" in said
    assert "with a probability of 0.32 or more" in said
    assert "Rarely open: Rare (expected 0.6 times); each was opened in one more batch." in said
    assert "Rarely" not in str(Seen(23, 92))
