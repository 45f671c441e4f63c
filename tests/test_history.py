"""What one batch does to a pipeline's objects does not reach the next."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import torch
from batchgeneratorsv2.transforms.nnunet.random_binary_operator import ApplyRandomBinaryOperatorTransform
from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms

from detaug.history import History, settle_known_quirks


def test_lists_counters_dictionaries_sets_and_small_arrays_are_put_back():
    inner = SimpleNamespace(order=[1, 2, 3], count=0, table={"a": 1, "b": [5]}, names={"x"}, small=np.arange(4))
    outer = SimpleNamespace(transforms=[inner], last="nothing")
    history = History([outer])
    inner.order.reverse()
    inner.count += 1
    inner.table["a"] = 2
    inner.table["b"].append(6)
    inner.names.add("y")
    inner.small += 1
    outer.last = "something"
    outer.transforms.append("another")
    history.restore()
    assert (inner.order, inner.count, inner.table, inner.names) == ([1, 2, 3], 0, {"a": 1, "b": [5]}, {"x"})
    assert inner.small.tolist() == [0, 1, 2, 3]
    assert outer.last == "nothing"
    assert outer.transforms == [inner]


def test_caches_are_left_alone():
    thing = SimpleNamespace(kernel=None, kernels={})
    history = History([thing])
    thing.kernel, thing.later = "expensive", 1
    thing.kernels[3] = "expensive"
    history.restore()
    assert (thing.kernel, thing.kernels, thing.later) == ("expensive", {3: "expensive"}, 1)


def test_batchgeneratorsv2s_in_place_shuffle_is_undone():
    transform = ApplyRandomBinaryOperatorTransform(channel_idx=[0, 1, 2, 3, 4], p_per_label=0.5)
    pipeline = ComposeTransforms([transform])
    history = History([pipeline])
    image = torch.zeros(5, 8, 8, 8)

    def params():
        np.random.seed(3)
        torch.manual_seed(3)
        return [list(map(str, value)) for value in transform.get_parameters(image=image).values()]

    history.restore()
    first = params()
    assert params() != first, "the original no longer shuffles in place; this test shows nothing"
    history.restore()
    assert params() == first


def test_generators_that_objects_own_are_reseeded_from_the_batch():
    thing = SimpleNamespace(
        a=np.random.default_rng(0), b=np.random.RandomState(0), c=random.Random(0), d=torch.Generator(), e=[{}]
    )
    thing.e[0]["deep"] = np.random.Generator(np.random.MT19937(0))
    history = History([thing])

    def draws(seed):
        history.reseed(np.random.SeedSequence(seed))
        numbers = [thing.a.random(), thing.b.rand(), thing.c.random(), thing.e[0]["deep"].random()]
        return [*numbers, float(torch.rand(1, generator=thing.d))]

    first = draws(1)
    assert draws(1) == first
    other = draws(2)
    assert all(a != b for a, b in zip(first, other, strict=True))
    assert len(set(first)) == 5


def test_cycles_large_containers_and_strange_objects_do_no_harm():
    class Strange:
        __slots__ = ("x",)

    knot = SimpleNamespace(many=list(range(100_000)), lock=Strange(), module=np, function=len)
    knot.self = knot
    history = History([knot, None, 3])
    knot.many.append(1)
    history.restore()
    assert len(knot.many) == 100_001


def test_the_blur_that_decides_by_the_clock_is_switched_off():
    blur = GaussianBlurTransform(benchmark=True)
    said = []
    settle_known_quirks({"transform": ComposeTransforms([ComposeTransforms([blur])])}, said.append)
    assert blur.benchmark is False
    assert len(said) == 1
    settle_known_quirks(blur, said.append)
    assert len(said) == 1
