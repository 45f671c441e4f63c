"""One call of one transform in each library, on the same arrays.

The other libraries draw from global states or their own; each draw seeds them anew. batchgeneratorsv2 may write into
what it is given, so it gets a copy, made before the clock starts.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.transforms.timing import Prepare

SEED = 20261121
Arrays = Mapping[str, torch.Tensor]


def detaug(transform: Any, arrays: Arrays) -> Prepare:
    """Ours leaves its input as it is."""
    from detaug import SeedTree

    tree = SeedTree(SEED)

    def prepare(draw: int) -> Callable[[], object]:
        rng = tree.generator(0, draw)
        return lambda: _contiguous(transform(**arrays, rng=rng))

    return prepare


def batchgeneratorsv2(transform: Any, arrays: Arrays) -> Prepare:
    """Any transform of batchgeneratorsv2."""

    def prepare(draw: int) -> Callable[[], object]:
        own = {key: value.clone() for key, value in arrays.items()}
        np.random.seed(draw)
        torch.manual_seed(draw)
        return lambda: _contiguous(transform(**own))

    return prepare


def _contiguous(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Nobody gains by leaving a strided view (torch's quarter turns) to whoever reads it next; most are contiguous."""
    return {
        key: value.contiguous() if isinstance(value, torch.Tensor) else value
        for key, value in sample.items()
    }


def within_a_pipeline(transform: Any, arrays: Arrays) -> Prepare:
    """Ours within a `Compose` whose earlier transforms have made every array anew, as nnU-Net's pipelines do from the second
    transform on: it may write into them. Making them is not timed."""
    from detaug import SeedTree
    from detaug.transforms import Compose
    from detaug.transforms.building.workspace import Workspace

    tree, pipeline = SeedTree(SEED), Compose([transform])

    def prepare(draw: int) -> Callable[[], object]:
        workspace, rng = Workspace(arrays, {key: key for key in arrays}), tree.generator(0, draw)
        for key in arrays:
            workspace.writable(key)

        def run() -> object:
            pipeline.apply_in(workspace, pipeline.sample(rng, workspace.shapes()))
            return _contiguous(workspace.result())

        return run

    return prepare


def composed_batchgeneratorsv2(transform: Any, arrays: Arrays) -> Prepare:
    """Any transform of batchgeneratorsv2, within its `ComposeTransforms`."""
    compose = importlib.import_module(
        "batchgeneratorsv2.transforms.utils.compose"
    ).ComposeTransforms
    return batchgeneratorsv2(compose([transform]), arrays)


def monai(transform: Any, arrays: Arrays) -> Prepare:
    """A MONAI transform of an array, or of a dictionary where there are two arrays."""

    def prepare(draw: int) -> Callable[[], object]:
        transform.set_random_state(seed=draw)
        if "segmentation" in arrays:
            own = {"image": arrays["image"].clone(), "segmentation": arrays["segmentation"].float()}
            return lambda: transform(own)
        image = arrays["image"].clone()
        return lambda: transform(image)

    return prepare


def torchio(transform: Any, arrays: Arrays) -> Prepare:
    """A TorchIO transform of a subject; what SimpleITK does for it takes one thread, too."""
    tio = importlib.import_module("torchio")
    importlib.import_module("SimpleITK").ProcessObject.SetGlobalDefaultNumberOfThreads(1)

    def prepare(draw: int) -> Callable[[], object]:
        images = {"image": tio.ScalarImage(tensor=arrays["image"].clone())}
        if "segmentation" in arrays:
            images["segmentation"] = tio.LabelMap(tensor=arrays["segmentation"].clone())
        subject = tio.Subject(**images)
        torch.manual_seed(draw)
        return lambda: transform(subject)

    return prepare


def plain(
    transform: Callable[[torch.Tensor, np.random.Generator], torch.Tensor], arrays: Arrays
) -> Prepare:
    """A function of `benchmarks.transforms.plain_torch`."""

    def prepare(draw: int) -> Callable[[], object]:
        rng = np.random.default_rng(draw)
        return lambda: transform(arrays["image"], rng)

    return prepare


def optional(module: str) -> Any:
    """The library, or None where it is not installed: its column is then missing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError:
        return None
