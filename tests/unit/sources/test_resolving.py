"""The source that a loader resolves to: whether it is stateless, its streams and its length."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from batchgenerators.dataloading.data_loader import DataLoader, SlimDataLoaderBase

from detaug.pipeline.sources import resolve_source
from detaug.pipeline.sources.base import DEFAULT_NUM_STREAMS


class Infinite(DataLoader):
    """batchgenerators' DataLoader, infinite by default."""

    def __init__(self, threads=1, infinite=True, incomplete=False, items=10):
        super().__init__(None, 3, threads, infinite=infinite, return_incomplete=incomplete)
        self.indices = list(range(items))

    def generate_train_batch(self):
        return self.get_indices()


class Cropping(Infinite):
    """A loader with a method of its own that assigns a cache, as nnU-Net's does."""

    def generate_train_batch(self):
        return self.crop(self.get_indices())

    def crop(self, indices):
        self.last_size = len(indices)
        return indices


class Walking(Infinite):
    """A loader that walks through the cases instead of drawing them."""

    count = 0

    def __next__(self):
        self.count += 1
        return [self.count % len(self.indices)]


class Balanced(Infinite):
    """A loader that overrides how cases are drawn."""

    def get_indices(self):
        return list(np.random.choice(self.indices, 2))


class Endless(SlimDataLoaderBase):
    """A loader that never ends."""

    def generate_train_batch(self):
        return np.random.rand()


class Ending(SlimDataLoaderBase):
    """A loader that ends, as its code shows."""

    def generate_train_batch(self):
        raise StopIteration


class Pass:
    """An iterable of three items."""

    def __iter__(self):
        yield from range(3)


def three():
    yield from range(3)


def make_infinite():
    return Infinite(threads=5)


@pytest.mark.parametrize(
    ("loader", "stateless", "streams", "steps"),
    [
        (Infinite(), True, DEFAULT_NUM_STREAMS, None),
        (Infinite(threads=5), True, 5, None),
        (Cropping(), True, DEFAULT_NUM_STREAMS, None),
        (Balanced(), True, DEFAULT_NUM_STREAMS, None),
        (Walking(), False, 1, None),
        (Walking(threads=5), False, 5, None),
        (Infinite(infinite=False), False, 1, 3),
        (Infinite(infinite=False, incomplete=True, threads=4), False, 4, 4),
        (Infinite(infinite=False, items=0), False, 1, 0),
        (Endless(None, 1), False, DEFAULT_NUM_STREAMS, None),
        (Endless(None, 1, 7), False, 7, None),
        (Ending(None, 1, 7), False, 7, None),
        ([1, 2, 3], False, 1, 3),
        (iter([1, 2, 3]), False, 1, None),
        (Pass(), False, 1, None),
        (three, False, 1, None),
        (make_infinite, True, 5, None),
        (Pass, False, 1, None),
        (itertools.count(), False, 1, None),
    ],
)
def test_the_safe_reading_is_taken(loader, stateless, streams, steps):
    source = resolve_source(loader)
    assert source.stateless is stateless
    assert source.default_num_streams == streams
    assert source.num_steps == steps


def test_the_users_word_on_statelessness_counts():
    assert resolve_source(Walking(), stateless=True).stateless
    assert not resolve_source(Infinite(), stateless=False).stateless
    assert resolve_source(Endless(None, 1), stateless=True).stateless
    for loader in (Infinite(infinite=False), [1, 2], three):
        with pytest.raises(ValueError, match="stateless"):
            resolve_source(loader, stateless=True)
