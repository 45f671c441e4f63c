"""Generators inside other libraries are seeded with all bits that they take, and restored.

Only libraries that are imported are seeded.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from detaug.seeding.generators import preserved_libraries, random_bytes, reseed_global_rngs
from detaug.seeding.reseeders import reseeder_of
from tests.support.waiting import exit_code, result_of


def sequence(*key: int) -> np.random.SeedSequence:
    """Return the seed sequence with a spawn key."""
    return np.random.SeedSequence([1, 2, 3, 4], spawn_key=key)


@pytest.fixture(scope="module")
def numba_draws() -> Any:
    """Return a function that draws from both of Numba's generators."""
    numba = pytest.importorskip("numba")

    @numba.njit
    def fill(out: Any) -> None:
        for row in out:
            row[0] = np.random.random()
            row[1] = random.random()
            row[2] = np.random.normal()

    def draw() -> Any:
        # An even number of rows: normals are drawn in pairs, and the second of a pair is not
        # restored.
        out = np.empty((4, 3))
        fill(out)
        return out.tolist()

    return draw


@pytest.fixture
def opencv_draws() -> Any:
    """Return a function that draws from OpenCV's generator."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed (the extra `peers`)")

    def draw() -> Any:
        return cv2.randu(np.zeros((2, 8)), 0, 1).tolist()

    return draw


@pytest.fixture
def monai_draws() -> Any:
    """Return a function that draws from the generator of MONAI's class."""
    transforms = pytest.importorskip(
        "monai.transforms", reason="MONAI is not installed (the extra `peers`)"
    )

    def draw() -> Any:
        return transforms.Randomizable.R.rand(4).tolist()

    return draw


@pytest.fixture(params=["numba_draws", "opencv_draws", "monai_draws"])
def draw(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return each library's function; its generators are restored after the test."""
    with preserved_libraries():
        yield request.getfixturevalue(request.param)


def test_the_same_sequence_gives_the_same_draws_and_others_give_others(draw: Any) -> None:
    drawn = []
    for turn in range(20):
        reseed_global_rngs(sequence(0, turn))
        drawn.append(draw())
        draw()
    assert len({str(numbers) for numbers in drawn}) == 20
    for turn in (7, 7, 3):
        reseed_global_rngs(sequence(0, turn))
        assert draw() == drawn[turn]


def test_a_forked_child_draws_what_its_parent_would(draw: Any) -> None:
    """In a forked child Numba asks the system for new states, unless detaug has written them."""
    reseed_global_rngs(sequence(1))
    expected = str(draw())
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            reseed_global_rngs(sequence(1))
            os.write(writing, str(draw()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        assert result_of(answer.read, "the child has drawn") == expected
    assert exit_code(pid, "the child has ended") == 0


@pytest.mark.parametrize("name", ["numba_draws", "monai_draws"])
def test_the_callers_state_is_put_back(name: str, request: pytest.FixtureRequest) -> None:
    draw = request.getfixturevalue(name)
    with preserved_libraries():
        reseed_global_rngs(sequence(1))
        first = draw()
        second = draw()
        reseed_global_rngs(sequence(1))
        assert draw() == first
        with preserved_libraries():
            reseed_global_rngs(sequence(2))
            draw()
        assert draw() == second


def test_opencv_goes_on_as_its_own_state_says(opencv_draws: Any) -> None:
    """OpenCV's state cannot be read.

    Still, what the caller draws after a batch follows from the caller's state, and not from the
    batch.
    """

    def draws_after(own_key: int, batch_key: int) -> Any:
        reseed_global_rngs(sequence(own_key))
        with preserved_libraries():
            reseed_global_rngs(sequence(batch_key))
            opencv_draws()
        return opencv_draws()

    expected = draws_after(own_key=1, batch_key=2)
    assert draws_after(own_key=1, batch_key=3) == expected
    assert draws_after(own_key=4, batch_key=3) != expected


def test_numba_states_hold_more_than_32_bits() -> None:
    pytest.importorskip("numba")
    from numba import _helperlib

    with preserved_libraries():
        reseed_global_rngs(sequence(1))
        for pointer in (_helperlib.rnd_get_np_state_ptr(), _helperlib.rnd_get_py_state_ptr()):
            index, words = _helperlib.rnd_get_state(pointer)
            assert index == 624
            assert np.array(words, np.uint32).tobytes() in random_bytes(sequence(1), 20_000)


def test_transforms_of_a_monai_composition_get_different_words() -> None:
    transforms = pytest.importorskip(
        "monai.transforms", reason="MONAI is not installed (the extra `peers`)"
    )
    noises = [transforms.RandGaussianNoise(prob=1.0) for _ in range(3)]
    composition = transforms.Compose(noises)
    reseed = reseeder_of(type(composition))
    assert reseed is not None
    reseed(composition, sequence(1))
    assert len({str(part.R.rand(3)) for part in [*noises, composition]}) == 4
