"""The registry of reseeders: looked up by type, users' before detaug's, equal in every process."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from detaug.seeding import reseeders
from detaug.seeding.reseeders import install, register_reseeder, registered, reseeder_of


class Dice:
    """An object that draws in its own way."""

    def __init__(self) -> None:
        self.state = 0


class LoadedDice(Dice):
    pass


class Sampler(random.Random):
    pass


def reseed_dice(dice: Dice, sequence: np.random.SeedSequence) -> None:
    dice.state = int(sequence.generate_state(1)[0])


def reseed_sampler(sampler: Sampler, sequence: np.random.SeedSequence) -> None:
    sampler.seed(0)


@pytest.fixture(autouse=True)
def _no_registrations() -> Iterator[None]:
    saved = dict(reseeders._registered)
    yield
    reseeders._registered.clear()
    reseeders._registered.update(saved)
    reseeders._cache.clear()


def test_a_registered_type_and_its_subclasses_are_found() -> None:
    assert reseeder_of(Dice) is None
    register_reseeder(Dice, reseed_dice)
    assert reseeder_of(Dice) is reseed_dice
    assert reseeder_of(LoadedDice) is reseed_dice
    assert reseeder_of(int) is None


def test_users_come_before_detaug_and_the_later_registration_before_the_earlier() -> None:
    own = reseeder_of(Sampler)
    assert own is not None
    assert own is not reseed_sampler
    register_reseeder(Sampler, reseed_sampler)
    assert reseeder_of(Sampler) is reseed_sampler
    assert reseeder_of(random.Random) is own
    register_reseeder(Sampler, reseed_dice)
    assert reseeder_of(Sampler) is reseed_dice
    register_reseeder(random.Random, reseed_sampler)
    # The registration of the most derived class counts.
    assert reseeder_of(Sampler) is reseed_dice


@pytest.mark.parametrize(
    ("kind", "function"), [("Dice", reseed_dice), (Dice(), reseed_dice), (Dice, "seed")]
)
def test_what_cannot_be_registered_is_refused(kind: Any, function: Any) -> None:
    registered_before = registered()
    with pytest.raises(TypeError, match="register_reseeder"):
        register_reseeder(kind, function)
    assert registered() == registered_before


def test_registrations_can_be_taken_to_a_new_interpreter() -> None:
    register_reseeder(Dice, reseed_dice)
    sent = pickle.dumps(registered())
    reseeders._registered.clear()
    reseeders._cache.clear()
    assert reseeder_of(LoadedDice) is None
    install(pickle.loads(sent))
    assert reseeder_of(LoadedDice) is reseed_dice


def test_a_class_of_the_script_is_known_in_processes_that_call_the_script_otherwise() -> None:
    in_script = type("Dice", (), {"__module__": "__main__", "__qualname__": "Dice"})
    in_child = type("Dice", (), {"__module__": "__mp_main__", "__qualname__": "Dice"})
    register_reseeder(in_script, reseed_dice)
    assert reseeder_of(in_child) is reseed_dice
