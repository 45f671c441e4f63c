"""No warning names what transforms of other libraries keep.

That holds when a state is loaded, in each epoch and at a replay.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import DataLoader
from batchgenerators.transforms.abstract_transforms import Compose
from batchgenerators.transforms.noise_transforms import GaussianNoiseTransform
from batchgenerators.transforms.spatial_transforms import MirrorTransform

from detaug import DeterministicAugmenter
from tests.processes.purity.ways import CARRIED, listening


class Volumes(DataLoader):
    """A loader of random volumes."""

    def __init__(self) -> None:
        super().__init__(list(range(8)), 2, infinite=True)
        self.indices = list(range(8))

    def generate_train_batch(self) -> dict[str, Any]:
        return {"data": np.random.random((2, 1, 12, 12, 12)).astype(np.float32)}


class OfVolumes:
    """A user's transform that calls a library's with each volume of a batch.

    Args:
        transform: of the library.
        call: (transform, volume) -> volume.
    """

    def __init__(self, transform: Callable[[Any], Any], call: Callable[[Any, Any], Any]) -> None:
        self.transform = transform
        self.call = call

    def __call__(self, data: Any) -> dict[str, Any]:
        return {"data": np.stack([self.call(self.transform, volume) for volume in data])}


def called(transform: Any, volume: Any) -> Any:
    """Call a transform of arrays."""
    return np.asarray(transform(volume))


def called_with_tensor(transform: Any, volume: Any) -> Any:
    """Call a transform of tensors."""
    return transform(torch.from_numpy(volume)).numpy()


def called_as_albumentations(transform: Any, volume: Any) -> Any:
    """Call a transform as Albumentations' are called."""
    return transform(image=volume[0])["image"][None]


def of_batchgenerators() -> Any:
    """Return a transform of batches made of batchgenerators's."""
    return Compose([MirrorTransform((0, 1, 2)), GaussianNoiseTransform()])


def of_monai() -> Any:
    """Return a transform of batches made of MONAI's."""
    transforms = pytest.importorskip("monai.transforms")
    steps = [
        transforms.RandFlip(0.5, 0),
        transforms.RandGaussianNoise(0.5),
        transforms.RandAffine(prob=0.5, rotate_range=(0.1, 0.1, 0.1), cache_grid=False),
        transforms.RandScaleIntensity(0.2, prob=0.5),
    ]
    return OfVolumes(transforms.Compose(steps), called)


def of_torchio() -> Any:
    """Return a transform of batches made of TorchIO's."""
    torchio = pytest.importorskip("torchio")
    steps = [torchio.RandomFlip((0, 1, 2)), torchio.RandomNoise(), torchio.RandomGamma()]
    return OfVolumes(torchio.Compose(steps), called_with_tensor)


def of_albumentations() -> Any:
    """Return a transform of batches made of Albumentations's."""
    albumentations = pytest.importorskip("albumentations")
    steps = [albumentations.HorizontalFlip(p=0.5), albumentations.GaussNoise(p=0.5)]
    return OfVolumes(albumentations.Compose(steps), called_as_albumentations)


def of_torchvision() -> Any:
    """Return a transform of batches made of torchvision's."""
    transforms = pytest.importorskip("torchvision.transforms.v2")
    steps = [transforms.RandomHorizontalFlip(), transforms.RandomVerticalFlip(0.2)]
    return OfVolumes(transforms.Compose(steps), called_with_tensor)


@pytest.mark.parametrize(
    "make", [of_batchgenerators, of_monai, of_torchio, of_albumentations, of_torchvision]
)
def test_nothing_is_said_of_what_libraries_keep(make: Callable[[], Any]) -> None:
    with listening() as heard:
        with volumes_augmenter(make()) as augmenter:
            read_three_epochs(augmenter)
            state = json.loads(json.dumps(augmenter.state_dict()))
        with volumes_augmenter(make()) as augmenter:
            augmenter.load_state_dict(state)
            read_three_epochs(augmenter)
            augmenter.state_dict()
    assert [text for text in heard if CARRIED not in text] == []


def volumes_augmenter(transform: Any) -> DeterministicAugmenter:
    """Return an augmenter of `Volumes` with four batches in an epoch."""
    return DeterministicAugmenter(Volumes(), transform, 0, seed=5, batches_per_epoch=4, check=False)


def read_three_epochs(augmenter: DeterministicAugmenter) -> None:
    """Read three epochs with a replay in each, and a batch of the next one."""
    for epoch in range(augmenter.epoch, augmenter.epoch + 3):
        augmenter.set_epoch(epoch)
        list(augmenter)
        augmenter.replay(epoch, 1)
    next(augmenter)
