"""Generators inside other libraries: seeded where the library is loaded, from every bit it takes,
and put back.
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
    return np.random.SeedSequence([1, 2, 3, 4], spawn_key=key)


@pytest.fixture(scope="module")
def numba_draws() -> Any:
    numba = pytest.importorskip("numba")

    @numba.njit
    def draw(count: int) -> Any:
        out = np.empty((count, 3))
        for i in range(count):
            out[i, 0] = np.random.random()
            out[i, 1] = random.random()
            out[i, 2] = np.random.normal()
        return out

    return lambda: draw(
        4
    ).tolist()  # an even number: the second of a pair of normals is not put back


@pytest.fixture
def opencv_draws() -> Any:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed (the extra `peers`)")
    return lambda: cv2.randu(np.zeros((2, 8)), 0, 1).tolist()


@pytest.fixture
def monai_draws() -> Any:
    transforms = pytest.importorskip(
        "monai.transforms", reason="MONAI is not installed (the extra `peers`)"
    )
    return lambda: transforms.Randomizable.R.rand(4).tolist()


@pytest.fixture(params=["numba_draws", "opencv_draws", "monai_draws"])
def draw(request: pytest.FixtureRequest) -> Iterator[Any]:
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
    """Numba asks the operating system for new states in a forked child, until they are written."""
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
        expected = draw(), draw()
        reseed_global_rngs(sequence(1))
        assert draw() == expected[0]
        with preserved_libraries():
            reseed_global_rngs(sequence(2))
            draw()
        assert draw() == expected[1]


def test_opencv_goes_on_as_its_own_state_says(opencv_draws: Any) -> None:
    """Its state cannot be read, but what the caller draws afterwards comes from it, and not from
    the batch.
    """
    after = []
    for own, batch in ((1, 2), (1, 3), (4, 3)):
        reseed_global_rngs(sequence(own))
        with preserved_libraries():
            reseed_global_rngs(sequence(batch))
            opencv_draws()
        after.append(opencv_draws())
    assert after[0] == after[1] != after[2]


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
