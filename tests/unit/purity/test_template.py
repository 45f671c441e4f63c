"""A copy within one process owns everything that can change; everything else is shared."""

from __future__ import annotations

import functools
import random
import threading
import types
from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from detaug.objects.references import shared_generators
from detaug.objects.walking import paths_of
from detaug.pipeline.copying import large_arrays as bulk
from detaug.pipeline.copying.snapshot import Snapshot, SnapshotCopy


class Slotted:
    __slots__ = ("later", "values")

    def __init__(self):
        self.values = [1, 2]


@dataclass(frozen=True)
class Frozen:
    values: list[int] = field(default_factory=list)


class Pipeline:
    """An object with one of almost everything that needs care in a copy."""

    kind = {"shared": 1}  # noqa: RUF012

    def __init__(self):
        self.me = self
        self.rng = np.random.default_rng(3)
        self.draw = self.rng.normal
        self.lock = threading.RLock()
        self.inner_lock = threading.Lock()
        self.local = threading.local()
        self.local.count = [0]
        self.nested = {"a": [Slotted(), deque([1], 4), Counter("ab")], "b": Frozen([1])}
        self.partial = functools.partial(max, [3])
        self.closure = lambda: self.rng

    def method(self):
        return self


def counting():
    """Return two functions that share their variables: one counts, one shows the counts."""
    count = [0]
    number = 0

    def add():
        nonlocal number
        number += 1
        count[0] += 1
        return number, count[0]

    def see():
        return number, count[0]

    return add, see


def test_a_copy_leads_to_itself_and_never_to_the_original():
    original = Pipeline()
    copy = Snapshot(original).copy()[0]
    assert type(copy) is Pipeline
    assert copy.me is copy
    assert copy.closure() is copy.rng
    assert copy.rng is not original.rng
    assert copy.draw.__self__ is copy.rng
    assert type(copy.kind) is dict
    assert copy.kind is original.kind
    copy.nested["a"][0].values.append(3)
    copy.nested["a"][1].append(2)
    copy.nested["b"].values.append(2)
    copy.partial.args[0].append(9)
    assert original.nested["a"][0].values == [1, 2]
    assert list(original.nested["a"][1]) == [1]
    assert copy.nested["a"][1].maxlen == 4
    assert original.nested["b"].values == [1]
    assert original.partial() == 3
    with copy.lock, copy.inner_lock:
        copy.local.count.append(1)
    assert original.local.count == [0]
    other = Snapshot(original).copy()[0]
    assert copy.rng.normal() == other.rng.normal()
    shared = {"f": counting, "k": Pipeline, "m": types, "b": len, "u": np.add}
    assert Snapshot(shared).copy()[0] == shared


def test_functions_that_share_a_variable_go_on_sharing_it():
    add, see = counting()
    add()
    copied_add, copied_see = Snapshot((add, see)).copy()[0]
    assert copied_add() == (2, 2)
    assert copied_see() == (2, 2)
    assert see() == (1, 1)

    def remember(value, cache={}):  # noqa: B006
        cache[value] = remember.calls
        return cache

    remember.calls = 5
    copy = Snapshot(remember).copy()[0]
    assert copy(1) == {1: 5}
    assert remember(2) == {2: 5}


def test_a_function_that_calls_itself_is_copied():
    def outer():
        visited = []

        def walk(n):
            visited.append(n)
            if n == 0:
                return visited
            return walk(n - 1)

        return walk

    walk = outer()
    copy = Snapshot(walk).copy()[0]
    assert copy(2) == [2, 1, 0]
    assert walk(0) == [0]


def test_iterators_are_copied_with_their_position():
    original = iter(list(range(4)))
    next(original)
    copy = Snapshot({"items": original}).copy()[0]["items"]
    assert list(copy) == [1, 2, 3]
    assert next(original) == 1


def test_views_of_one_memory_stay_views_of_one_memory():
    small = np.arange(10)
    large = np.arange(50_000.0)
    original = {
        "small": small,
        "part": small[2:4],
        "large": large,
        "rows": large.reshape(100, -1)[3:5],
        "f": large[::-2],
    }
    copy = Snapshot(original).copy()[0]
    copy["small"][2] = -1
    copy["large"][1500] = -2
    assert copy["part"][0] == -1
    assert copy["rows"][0, 0] == -2
    assert np.array_equal(copy["f"], copy["large"][::-2])
    assert small[2] == 2
    assert large[1500] == 1500


def test_tensors_of_one_memory_stay_tensors_of_one_memory():
    for size in (10, 50_000):
        memory = torch.arange(size, dtype=torch.float32)
        original = {"all": memory, "part": memory[5:], "turned": memory.view(2, -1).t()}
        copy = Snapshot(original).copy()[0]
        copy["all"][5] = -1
        assert copy["part"][0] == -1
        assert memory[5] == 5
        assert copy["turned"].stride() == original["turned"].stride()
        assert torch.equal(copy["turned"], copy["all"].view(2, -1).t())


def test_tensors_are_copied_whatever_the_default_device():
    original = torch.arange(10.0)
    with torch.device("meta"):
        copy = Snapshot(original).copy()[0]
    assert torch.equal(copy, original)


def test_modules_keep_tied_weights_and_what_needs_no_gradient():
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)
    )
    module[1].weight = module[0].weight
    copy = Snapshot(module).copy()[0]
    assert copy[0].weight is copy[1].weight
    assert copy[0].weight is not module[0].weight
    assert copy[0].weight.requires_grad
    copy(torch.ones(4, 3))
    assert int(module[2].num_batches_tracked) == 0
    assert int(copy[2].num_batches_tracked) == 1


class Kind(np.ndarray):
    """A user's array class; of a view into such an array, only the view's part is copied."""


def test_of_a_large_view_its_owner_is_stored_once():
    owner = np.arange(50_000.0)
    template = Snapshot({"low": owner[:30_000], "high": owner[20_000:]})
    assert len(template._pickled) < 2_000
    assert [array.nbytes for array in template._bulk.arrays] == [owner.nbytes]
    copy = template.copy()[0]
    copy["low"][25_000] = -1
    assert copy["high"][5_000] == -1
    assert owner[25_000] == 25_000


@pytest.mark.parametrize("writeable", [True, False])
def test_of_a_large_view_of_another_class_the_part_alone_is_stored(writeable):
    owner = Kind((50_000,))
    owner[...] = np.arange(50_000)
    part = np.ndarray((20_000,), owner.dtype, owner, 80_000)
    part.flags.writeable = writeable
    assert type(part.base) is Kind
    template = Snapshot({"part": part})
    assert len(template._pickled) < 2_000
    assert [array.nbytes for array in template._bulk.arrays] == [part.nbytes]
    copy = template.copy()[0]["part"]
    owner[10_000] = -1
    assert copy[0] == 10_000, "what its owner's user writes does not reach the copy"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, [("a", "u1"), ("b", "f8")]])
def test_large_arrays_are_each_copys_own(dtype, order):
    array = np.zeros((300, 400), dtype=dtype, order=order)
    template = Snapshot({"array": array})
    assert len(template._pickled) < 2_000
    one = template.copy()[0]["array"]
    other = template.copy()[0]["array"]
    assert one.dtype == array.dtype
    assert one.strides == array.strides
    one[...] = 1
    assert other.tobytes() == bytes(array.nbytes)
    assert array.tobytes() == bytes(array.nbytes)


def test_more_than_can_be_kept_twice_is_shared_read_only(monkeypatch):
    monkeypatch.setattr(bulk, "MOST_BYTES", 100_000)
    array = np.zeros(50_000)
    template = Snapshot({"array": array})
    with pytest.raises(ValueError, match="read-only"):
        template.copy()[0]["array"][0] = 1
    assert template.copy(is_sole_copy=True)[0]["array"].flags.writeable


def test_read_only_arrays_and_memory_maps_are_shared(tmp_path):
    fixed = np.zeros(50_000)
    fixed.flags.writeable = False
    np.save(tmp_path / "a.npy", np.ones(50_000))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    copy = Snapshot({"fixed": fixed, "mapped": mapped}).copy()[0]
    assert copy["fixed"] is fixed
    assert copy["mapped"] is mapped


def test_generators_are_parts_and_have_paths():
    original = Pipeline()
    original.deep = [{"python": random.Random(1)}, {"torch": torch.Generator()}]
    template = Snapshot(original)
    paths = set(paths_of(template.originals, {"transform": original}).values())
    assert {"transform.rng", "transform.deep[0]['python']", "transform.deep[1]['torch']"} <= paths
    copy, parts = template.copy()
    assert copy.rng in parts
    assert copy.deep[0]["python"] in parts


CHILD = np.random.SeedSequence((1, 2, 3, 4), spawn_key=(5,))


def copy_with(**attributes):
    """Return a copy of an object with these attributes, and its generators."""
    original = types.SimpleNamespace(**attributes)
    snapshot = Snapshot(original, roots={"transform": original})
    return SnapshotCopy(snapshot, snapshot.copy())


def reseeded(**attributes):
    """Return a copy of an object with these attributes whose generators have just been seeded."""
    copy = copy_with(**attributes)
    copy.reseed(CHILD)
    return copy.value


def test_a_generator_elsewhere_moves_no_other_one():
    alone = reseeded(mine=np.random.default_rng(1))
    beside = reseeded(
        first=np.random.default_rng(2),
        mine=np.random.default_rng(),
        other=[random.Random()],
    )
    assert alone.mine.random() == beside.mine.random()


@pytest.mark.parametrize("kind", [np.random.Generator, np.random.RandomState])
def test_a_bit_generator_is_seeded_with_the_generator_around_it_alone(kind):
    expected = reseeded(generator=kind(np.random.PCG64(1))).generator.bytes(8)
    bits = np.random.PCG64(1)
    bits_last = reseeded(generator=kind(bits), its_bits=bits)
    assert bits_last.generator._bit_generator is bits_last.its_bits
    assert bits_last.generator.bytes(8) == expected
    bits_first = reseeded(its_bits=bits, generator=kind(bits))
    assert bits_first.generator.bytes(8) == expected


def test_a_bit_generator_of_its_own_is_seeded():
    one = reseeded(bits=np.random.PCG64(1))
    other = reseeded(bits=np.random.PCG64(2))
    assert one.bits.random_raw() == other.bits.random_raw()


def test_a_generator_in_the_place_of_another_is_seeded_as_that_one():
    expected = reseeded(gone=np.random.default_rng(1), mine=np.random.default_rng(1)).mine.random()
    copy = copy_with(gone=np.random.default_rng(1), mine=np.random.default_rng(1))
    del copy.value.gone
    copy.value.mine = np.random.default_rng(2)
    copy.find_generators_again("transform", copy.value)
    copy.reseed(CHILD)
    assert copy.value.mine.random() == expected


def test_a_generator_of_another_kind_in_the_place_of_one_is_left_alone():
    copy = copy_with(mine=np.random.default_rng(1))
    copy.value.mine = random.Random(3)
    copy.find_generators_again("transform", copy.value)
    copy.reseed(CHILD)
    assert copy.value.mine.random() == random.Random(3).random()


TWO = ONE = NINE = np.random.default_rng(1)


def draws():
    return TWO, ONE, NINE


def is_numpy_generator(kind):
    return kind is np.random.Generator


def test_a_generator_with_several_names_is_keyed_by_the_first_whatever_the_hash_seed():
    generators = shared_generators([draws], is_numpy_generator)
    assert list(generators) == [f"{__name__}.NINE"]
