"""Settings of a RayExecutor, right and wrong ones, without a cluster."""

from __future__ import annotations

import sys

import pytest

from detaug import DeterministicAugmenter
from detaug.ray.executor import RayExecutor


def test_a_url_says_it_all() -> None:
    from_url = RayExecutor.from_url
    assert from_url("ray://?num_actors=4") == RayExecutor(4)
    assert from_url("ray://auto?num_actors=16") == RayExecutor(16, "auto")
    address = "head:6379"
    assert from_url(f"ray://{address}?num_actors=4&num_cpus=0.5") == RayExecutor(4, address, 0.5)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("dask://auto?num_actors=3", "names no executor"),
        ("auto", "names no executor"),
        ("ray://auto", "it needs num_actors"),
        ("ray://auto?num_actors=many", "invalid literal"),
        ("ray://auto?num_actors=3&cpus=2", "may have num_cpus"),
        ("ray://auto?num_actors=-3", "num_actors must not be negative, got -3"),
    ],
)
def test_a_wrong_url_is_said_to_be_wrong(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RayExecutor.from_url(url)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # With None in sys.modules an import raises ImportError, as if Ray were not installed.
    monkeypatch.setitem(sys.modules, "ray", None)
    augmenter = DeterministicAugmenter([1, 2, 3], None, 0, seed=1, executor=RayExecutor(2))
    with pytest.raises(ImportError, match=r"RayExecutor needs Ray: pip install 'detaug\[ray\]'"):
        next(augmenter)
