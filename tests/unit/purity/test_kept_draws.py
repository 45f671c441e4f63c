"""With 0 processes, a number that is drawn once and kept for all later batches is told of.

One process makes all batches, so it makes a batch again with the number that it has kept, and
nothing differs. A restart, a resumed run and every worker would draw another one.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from detaug import DataLoader, DeterministicAugmenter
from tests.unit.purity.users_modules import COMMON

LOADER = """
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase


class Loader(SlimDataLoaderBase):
    def __init__(self):
        super().__init__(None, 1)
        self.rng = np.random.default_rng(0)

    def generate_train_batch(self):
        return {"data": np.ones((1, 1, 4, 4), np.float32), "draw": self.rng.random()}


class Cases(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index * strength_of(index)
"""

#: Where the number is kept -> the code, and the name in the warning.
KEPT = {
    "a global": (
        """
STRENGTH = None

def transform(data, draw):
    global STRENGTH
    if STRENGTH is None:
        STRENGTH = np.random.rand()
    return {"data": data * STRENGTH}
""",
        "STRENGTH",
    ),
    "a dict": (
        """
STRENGTHS = {}

def transform(data, draw):
    if data.shape not in STRENGTHS:
        STRENGTHS[data.shape] = random.random()
    return {"data": data * STRENGTHS[data.shape]}
""",
        "STRENGTHS",
    ),
    "a class": (
        """
class Scale:
    strength = None

    def __call__(self, data, draw):
        if Scale.strength is None:
            Scale.strength = torch.rand(1).numpy()
        return {"data": data * Scale.strength}

transform = Scale()
""",
        "Scale.strength",
    ),
    "a cached function": (
        """
@functools.cache
def strength():
    return np.random.rand()

def transform(data, draw):
    return {"data": data * strength()}
""",
        "strength",
    ),
    "a function's attribute": (
        """
def transform(data, draw):
    if not hasattr(transform, "strength"):
        transform.strength = np.random.rand()
    return {"data": data * transform.strength}
""",
        "transform.strength",
    ),
    "a default": (
        """
def strength(kept=[]):
    if not kept:
        kept.append(np.random.rand())
    return kept[0]

def transform(data, draw):
    return {"data": data * strength()}
""",
        "strength.__defaults__",
    ),
    "a closure": (
        """
def make():
    strength = None

    def scaled(x):
        nonlocal strength
        if strength is None:
            strength = np.random.rand()
        return x * strength

    return scaled

SCALED = make()

def transform(data, draw):
    return {"data": SCALED(data)}
""",
        "make.<locals>.scaled.<strength>",
    ),
    "a generator of the module's": (
        """
RNG = np.random.default_rng(1)
STRENGTHS = []

def transform(data, draw):
    if not STRENGTHS:
        STRENGTHS.append(RNG.random())
    return {"data": data * STRENGTHS[0]}
""",
        "STRENGTHS",
    ),
}

#: What batches change and does not depend on the first of them -> the code.
HARMLESS = {
    "a cache": """
CACHE = {}

def transform(data, draw):
    if "mask" not in CACHE:
        CACHE["mask"] = np.ones(data.shape)
    return {"data": data * CACHE["mask"] * np.random.rand()}
""",
    "a cached function": """
@functools.lru_cache(maxsize=4)
def table(size):
    return np.arange(size)

def transform(data, draw):
    return {"data": data * table(4) * np.random.rand()}
""",
    "what every batch draws anew": """
STRENGTH = None

def transform(data, draw):
    global STRENGTH
    STRENGTH = np.random.rand()
    return {"data": data * STRENGTH}
""",
    "a counter": """
COUNTS = collections.Counter()

def transform(data, draw):
    COUNTS["batches"] += 1
    return {"data": data * np.random.rand()}
""",
    "a network whose weights are replaced": """
NETWORKS = {}

def transform(data, draw):
    if not NETWORKS:
        network = torch.nn.Linear(4, 4)
        torch.nn.init.ones_(network.weight)
        torch.nn.init.zeros_(network.bias)
        NETWORKS["segment"] = network
    with torch.no_grad():
        return {"data": NETWORKS["segment"](torch.from_numpy(data)).numpy()}
""",
    "a generator that is made for every batch": """
def transform(data, draw):
    rng = np.random.default_rng(np.random.randint(2**31))
    return {"data": data * rng.random()}
""",
}


@pytest.fixture
def module(name: str) -> types.ModuleType:
    """Return a user's module with a loader and a data set."""
    module = sys.modules[name]
    exec(COMMON + LOADER, vars(module))
    return module


def warnings_about_draws(batches: Any, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about kept numbers while ten batches are made."""
    for _, _batch in zip(range(10), batches, strict=False):
        pass
    return [message for message in caplog.messages if "draws random numbers" in message]


def augmented(module: types.ModuleType, code: str, **options: Any) -> DeterministicAugmenter:
    exec(code, vars(module))
    return DeterministicAugmenter(module.Loader(), module.transform, 0, seed=1, **options)


@pytest.mark.parametrize("where", KEPT)
def test_a_number_that_is_drawn_once_and_kept_is_told_of(
    where: str, module: types.ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    code, variable = KEPT[where]
    with augmented(module, code) as augmenter:
        [message] = warnings_about_draws(augmenter, caplog)
    assert f"it has changed {module.__name__}.{variable}" in message


@pytest.mark.parametrize("what", HARMLESS)
def test_what_does_not_depend_on_the_first_batch_is_not_told_of(
    what: str, module: types.ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    with augmented(module, HARMLESS[what]) as augmenter:
        assert not warnings_about_draws(augmenter, caplog)


def test_nothing_is_told_without_the_check(
    module: types.ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    code, _ = KEPT["a dict"]
    with augmented(module, code, check=False) as augmenter:
        assert not warnings_about_draws(augmenter, caplog)


@pytest.mark.parametrize(("kept", "num_warnings"), [("1.5", 0), ("np.random.rand()", 1)])
def test_the_draws_of_every_sample_count(
    kept: str, num_warnings: int, module: types.ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    code = f"""
STRENGTHS = {{}}

def strength_of(index):
    if not STRENGTHS:
        STRENGTHS[0] = {kept}
    return STRENGTHS[0]
"""
    exec(code, vars(module))
    batches = DataLoader(module.Cases(), batch_size=4, num_workers=0, seed=1)
    # The first sample of four keeps the number, and the others draw none.
    assert len(warnings_about_draws(batches, caplog)) == num_warnings
