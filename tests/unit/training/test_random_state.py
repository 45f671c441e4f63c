"""The state of all generators is saved and restored; a state that does not fit changes nothing."""

from __future__ import annotations

import copy
import io
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detaug.errors import StateMismatch
from detaug.seeding.generators import preserved
from detaug.training import isolate_rng, rng_state, seed_everything, set_rng_state

BIT_GENERATORS = [
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.Philox,
    np.random.SFC64,
    np.random.MT19937,
]


@pytest.fixture(autouse=True)
def _isolated():
    with isolate_rng():
        yield


def through_a_file(state):
    """Return a state after it was saved in a checkpoint and loaded with ``weights_only=True``."""
    file = io.BytesIO()
    torch.save({"rng": state}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)["rng"]


def draw_globals(count=5):
    """Draw from all global generators.

    With an odd `count` of normals, the second one of a pair stays in each generator's cache.
    """
    return [
        *[random.gauss(0, 1) for _ in range(count)],
        *[random.random() for _ in range(count)],
        *[float(np.random.standard_normal()) for _ in range(count)],
        *np.random.random(3).tolist(),
        *[float(torch.randn(1)) for _ in range(count)],
        *[float(torch.randn(1, dtype=torch.float64)) for _ in range(count)],
        *torch.rand(3).tolist(),
    ]


def draw(generator, count=3):
    """Draw from one generator so that something stays in its caches."""
    if isinstance(generator, np.random.Generator):
        # 32-bit draws leave half a word in the bit generator's buffer.
        return [
            *generator.integers(0, 2**32, count, dtype=np.uint32).tolist(),
            *generator.standard_normal(count).tolist(),
        ]
    if isinstance(generator, np.random.RandomState):
        return generator.standard_normal(count).tolist()
    if isinstance(generator, random.Random):
        return [generator.gauss(0, 1) for _ in range(count)]
    return [float(torch.randn(1, generator=generator, dtype=torch.float64)) for _ in range(count)]


def draw_all(generators, count=None):
    """Draw from the global generators and from the named ones."""
    if count is None:
        return draw_globals(), [draw(generator) for generator in generators.values()]
    return draw_globals(count), [draw(generator, count) for generator in generators.values()]


def named_generators(seed=1):
    """Return one generator of every kind."""
    generators = {kind.__name__: np.random.Generator(kind(seed)) for kind in BIT_GENERATORS}
    return {
        **generators,
        "RandomState": np.random.RandomState(seed),
        "RandomState, PCG64": np.random.RandomState(np.random.PCG64(seed)),
        "torch": torch.Generator().manual_seed(seed),
        "python": random.Random(seed),
    }


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 2), count_before=st.integers(0, 9), count_after=st.integers(0, 9)
)
def test_what_is_drawn_next_is_drawn_again(seed, count_before, count_after):
    seed_everything(seed, workers=False)
    generators = named_generators(seed)
    draw_all(generators, count_before)
    state = rng_state(generators)
    expected = draw_all(generators)
    draw_all(generators, count_after)
    for saved in (state, through_a_file(state)):
        # A new process has new objects.
        new_generators = named_generators(seed + 1)
        set_rng_state(saved, new_generators)
        assert draw_all(new_generators) == expected


def test_another_kind_of_global_numpy_generator_is_kept_and_not_mistaken():
    usual = rng_state()
    original = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.Philox(3))
        np.random.standard_normal()
        state = through_a_file(rng_state())
        expected = np.random.standard_normal(3).tolist()
        set_rng_state(state)
        assert np.random.standard_normal(3).tolist() == expected
        with pytest.raises(StateMismatch, match=r"MT19937.*Philox"):
            set_rng_state(usual)
    finally:
        np.random.set_bit_generator(original)
    with pytest.raises(StateMismatch, match=r"Philox.*MT19937"):
        set_rng_state(state)


def test_a_default_device_of_tensors_is_no_matter():
    torch.set_default_device("meta")
    try:
        state = rng_state({"a": np.random.default_rng(1)})
        set_rng_state(state, {"a": np.random.default_rng(2)})
    finally:
        torch.set_default_device(None)
    assert state["cpu"].device.type == "cpu"


def two_generators(seed):
    return {"a": np.random.default_rng(seed), "p": np.random.Generator(np.random.Philox(seed))}


def damaged(change):
    """Return a function that makes a state and changes it."""

    def make():
        state = copy.deepcopy(rng_state(two_generators(1)))
        change(state)
        return state

    return make


def replaced(*path, value):
    """Return a function that makes a state with another value at a path of keys."""

    def change(state):
        for name in path[:-1]:
            state = state[name]
        state[path[-1]] = value

    return damaged(change)


def without(name):
    """Return a function that makes a state without a key."""

    def change(state):
        del state[name]

    return damaged(change)


def without_generator(name):
    """Return a function that makes a state without a named generator."""

    def change(state):
        del state["generators"][name]

    return damaged(change)


def nothing():
    return None


#: Two fields in the 5056 bytes of torch's CPU state: number of words left, and the next word.
TORCH_LEFT = slice(8, 12)
TORCH_NEXT = slice(16, 24)
PCG = ("generators", "a", "state")
PHILOX = ("generators", "p", "state")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            replaced("torch", value="1.13.1"),
            StateMismatch,
            "1.13.1.*this is torch.*Resume with torch 1.x",
        ),
        (replaced("torch", value="new"), ValueError, "version"),
        (replaced("format", value=2), StateMismatch, "format 2"),
        (without("python"), ValueError, r"missing \['python'\]"),
        (replaced("extra", value=1), ValueError, r"unknown \['extra'\]"),
        (nothing, TypeError, "rng_state"),
        (replaced("python", 1, 624, value=625), ValueError, "python is damaged"),
        (replaced("python", 2, value="0.5"), ValueError, "python is damaged: its cached normal"),
        (replaced("numpy", "state", "pos", value=625), ValueError, "numpy is damaged: pos.*624"),
        (replaced("numpy", "state", "pos", value=-1), ValueError, "numpy is damaged: pos.*624"),
        (replaced("numpy", "has_gauss", value=2), ValueError, "numpy is damaged: has_gauss"),
        (replaced(*PHILOX, "buffer_pos", value=5), ValueError, r"'p'\] is damaged: buffer_pos.*4"),
        (replaced(*PCG, "has_uint32", value=-1), ValueError, r"'a'\] is damaged: has_uint32"),
        (replaced("cpu", TORCH_LEFT, value=127), ValueError, "cpu is damaged"),
        (replaced("cpu", TORCH_NEXT, value=127), ValueError, "cpu is damaged"),
        (replaced("cpu", value=torch.zeros(9, dtype=torch.uint8)), ValueError, "cpu is damaged"),
        (replaced("numpy", "bit_generator", value="PCG64"), StateMismatch, "PCG64.*MT19937"),
        (replaced("numpy", "state", "key", value=[2**32] * 624), ValueError, "numpy is damaged"),
        (replaced("cuda", value=None), ValueError, "cuda, xpu, mps must be lists"),
        (
            replaced("cuda", value=[torch.zeros(16, dtype=torch.uint8)] * 99),
            StateMismatch,
            "99 CUDA devices",
        ),
        (replaced("generators", value=None), ValueError, "generators is damaged"),
        (
            without_generator("a"),
            StateMismatch,
            r"\{'p': .*'a': 'numpy",
        ),
        (
            replaced("generators", "a", "kind", value="torch.Generator"),
            StateMismatch,
            "torch.Generator",
        ),
        (
            replaced("generators", "a", "state", "bit_generator", value="SFC64"),
            StateMismatch,
            "SFC64.*PCG64",
        ),
        (
            replaced("generators", "a", "state", "state", "inc", value=2**128),
            ValueError,
            r"'a'\] is damaged",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_nothing_has_changed(make, error, message):
    state = make()
    generators = two_generators(5)
    state_before = rng_state(generators)
    with pytest.raises(error, match=message):
        set_rng_state(state, generators)
    drawn = draw_all(generators)
    set_rng_state(state_before, generators)
    assert draw_all(generators) == drawn


@pytest.mark.parametrize(
    "generators",
    [
        [np.random.default_rng(1)],
        {1: np.random.default_rng(1)},
        {"a": 5},
        {"a": random.SystemRandom()},
    ],
)
def test_what_is_no_generator_is_refused(generators):
    state = rng_state()
    with pytest.raises(TypeError, match="generator"):
        rng_state(generators)
    with pytest.raises(TypeError, match="generator"):
        set_rng_state(state, generators)


def test_the_outside_does_not_notice_what_happens_inside():
    seed_everything(4, workers=False)
    draw_globals(3)
    with isolate_rng():
        expected = draw_globals()
    with isolate_rng():
        with isolate_rng(include_cuda=False):
            seed_everything(99, workers=False)
        assert draw_globals() == expected
    with pytest.raises(ZeroDivisionError), isolate_rng():
        draw_globals()[0] / 0
    assert draw_globals() == expected


@pytest.mark.parametrize(
    "decorate",
    [isolate_rng, isolate_rng(), isolate_rng(include_cuda=False), isolate_rng(False)],
    ids=["without brackets", "with brackets", "with an option", "with a position"],
)
def test_it_decorates_with_and_without_brackets_as_torch_no_grad(decorate) -> None:
    @decorate
    def evaluate(scale, *, offset=0.0):
        """Evaluate."""
        return scale * draw_globals()[0] + offset

    with isolate_rng():
        expected = draw_globals()
    assert evaluate(2.0, offset=1.0) == 2.0 * expected[0] + 1.0
    assert evaluate(1.0) == expected[0], "it may be called again"
    assert draw_globals() == expected
    assert evaluate.__name__ == "evaluate"
    assert evaluate.__doc__ == "Evaluate."


def test_it_decorates_methods_without_brackets() -> None:
    class Evaluation:
        scale = 2.0

        @isolate_rng
        def run(self):
            return self.scale * draw_globals()[0]

    with isolate_rng():
        expected = draw_globals()
    assert Evaluation().run() == 2.0 * expected[0]
    assert draw_globals() == expected


def test_isolation_outlives_another_kind_of_numpy_generator() -> None:
    bits = np.random.get_bit_generator()
    with isolate_rng():
        expected = draw_globals()
    with isolate_rng():
        np.random.set_bit_generator(np.random.PCG64(1))
        np.random.random()
    assert np.random.get_bit_generator() is bits
    assert draw_globals() == expected


class Stubborn(random.Random):
    """A generator whose state cannot be restored."""

    def setstate(self, state):
        raise OSError("cannot be put back")


def test_isolation_shows_the_users_exception_and_not_its_own(caplog) -> None:
    with pytest.raises(KeyError, match="the user's"), preserved([Stubborn(1)]):
        raise KeyError("the user's")
    assert "could not be put back" in caplog.text
    with pytest.raises(OSError, match="cannot be put back"), preserved([Stubborn(1)]):
        pass


def yes():
    return True


def no():
    return False


def one():
    return 1


def two():
    return 2


def test_a_forked_child_leaves_the_devices_out(monkeypatch):
    # CUDA cannot be used in a forked child, such as a DataLoader's worker.
    monkeypatch.setattr(torch.cuda, "is_available", yes)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", yes)
    assert rng_state()["cuda"] == []
    with isolate_rng():
        pass


class TestTwoDevices:
    """Tests of a machine with two CUDA devices, whose generators are replaced by CPU generators."""

    @pytest.fixture
    def devices(self, monkeypatch):
        """Make torch find two CUDA devices; return the generators that replace theirs."""
        generators = (torch.Generator().manual_seed(1), torch.Generator().manual_seed(2))

        def states():
            return [generator.get_state() for generator in generators]

        monkeypatch.setattr(torch.cuda, "is_available", yes)
        monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", no)
        monkeypatch.setattr(torch.cuda, "device_count", two)
        monkeypatch.setattr(torch.cuda, "init", nothing)
        monkeypatch.setattr(torch.cuda, "default_generators", generators)
        monkeypatch.setattr(torch.cuda, "get_rng_state_all", states)
        return generators

    def test_each_goes_on_exactly(self, devices):
        state = through_a_file(rng_state())
        expected = [draw(generator) for generator in devices]
        set_rng_state(state)
        assert [draw(generator) for generator in devices] == expected
        with isolate_rng():
            draw(devices[0])
        set_rng_state(state)
        assert [draw(generator) for generator in devices] == expected

    def test_another_number_of_devices_is_refused_unless_they_are_left_out(
        self, devices, monkeypatch
    ):
        state = rng_state()
        expected = draw_globals()
        monkeypatch.setattr(torch.cuda, "device_count", one)
        with pytest.raises(StateMismatch, match="2 CUDA devices, and here there are 1"):
            set_rng_state(state)
        state_before = devices[0].get_state()
        set_rng_state(state, include_cuda=False)
        assert draw_globals() == expected
        assert torch.equal(devices[0].get_state(), state_before)

    def test_a_state_without_devices_leaves_them_as_they_are(self, devices):
        state = rng_state(include_cuda=False)
        assert state["cuda"] == []
        state_before = devices[0].get_state()
        set_rng_state(state)
        assert torch.equal(devices[0].get_state(), state_before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: it draws there")
def test_a_real_device_goes_on_exactly():
    generator = torch.Generator("cuda").manual_seed(3)
    torch.randn(7, device="cuda")
    state = through_a_file(rng_state({"gpu": generator}))
    expected_global = torch.randn(7, device="cuda")
    expected_named = torch.rand(5, device="cuda", generator=generator)
    set_rng_state(state, {"gpu": generator})
    assert torch.equal(torch.randn(7, device="cuda"), expected_global)
    assert torch.equal(torch.rand(5, device="cuda", generator=generator), expected_named)
