"""A pipeline is described, and a batch fingerprinted, alike in every process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import detaug
from tests.support.preloaded import run_code
from tests.support.waiting import run_program

RICH = """
import dataclasses, datetime, enum, functools, pathlib, random, re, operator
import numpy as np, torch
from detaug.objects.description import describe

class Key:
    pass
@dataclasses.dataclass
class Settings:
    names: frozenset
    folder: pathlib.Path
class Transform:
    def __init__(self, keys, settings, function, **options):
        self.keys, self.settings, self.function, self.options = keys, settings, function, options
    def method(self):
        pass
class Loader:
    def __init__(self, data, classes, lookup, generators, weights):
        self._data, self.classes, self.lookup, self.generators, self.weights = data, classes, lookup, generators, weights
words = [f"word_{i}" for i in range(200)]
inner = Transform({"image", "label"}, Settings(frozenset(words), pathlib.Path("/data")), lambda x: x)
loader = Loader(
    [{"image": word, "tags": set(words[:9])} for word in words], {"a", ("b", 2), None, 3.5},
    {Key(): {Key()}, frozenset(words[:5]): 1, inner: inner, "x": {word: i for i, word in enumerate(words)}},
    [np.random.default_rng(), random.Random(), torch.Generator(), np.random.RandomState()],
    {"array": np.arange(1e5), "tensor": torch.arange(100), "objects": np.array([Key(), {"p", "q"}], dtype=object)})
outer = Transform(["a"], Settings(frozenset(words[:70]), pathlib.Path(".")), functools.partial(inner.method, {"z", "y"}),
                  pattern=re.compile("a+"), when=datetime.datetime(2020, 1, 1), pick=operator.itemgetter("a", "b"))
print("\\n".join([*describe(loader, "loader"), *describe(outer, "transform")]))
"""


STRANGE = """
import collections, numpy, torch
from detaug import fingerprint
print("strange:")
strange = {
    "an object": object(),
    "a lambda": lambda: 0,
    "a set of texts": set("abcdefgh"),
    "an object array": numpy.array([object(), "a", None], dtype=object),
    "an object array of texts": numpy.array(["a", "bb", None], dtype=object),
    "an instance": type("C", (), {})(),
    "an ordered dict": collections.OrderedDict(a=1),
    "a sparse tensor": torch.eye(3).to_sparse(),
}
for name, each in strange.items():
    try:
        print(name, fingerprint([each]))
    except TypeError:
        print(name, "refused")
"""


def test_the_same_is_described_and_hashed_alike_in_processes_with_other_hash_seeds() -> None:
    """What cannot be is refused rather than hashed by its address."""
    packages = str(Path(detaug.__file__).parent.parent)
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": packages}
    first = run_program([sys.executable, "-c", RICH + STRANGE], env=environment)
    # Of a hash seed that was drawn.
    other = run_code(RICH + STRANGE, folder=Path(packages), environment=os.environ)
    assert (first.returncode, other.returncode) == (0, 0), first.stderr + other.stderr
    text = first.stdout
    assert other.stdout == text
    described, strange = text.split("strange:\n")
    assert len(described.splitlines()) >= 30
    assert len(strange.splitlines()) == 8
    assert "0x" not in text
