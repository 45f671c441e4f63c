"""detaug replaces a loader and its transforms only if all that decides on a batch is nnU-Net's.

Otherwise they stay, and the log says why.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blosc2
import pytest
from acvl_utils.cropping_and_padding import bounding_boxes
from batchgeneratorsv2.transforms.intensity.gaussian_noise import GaussianNoiseTransform
from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from detaug.nnunet import DetAugLoading, PatchSource
from detaug.nnunet.proof import why_loader_stays
from tests.peers.nnunet.trainers.in_process import Short, initialized


class NoTransforms(Short):
    """A trainer whose batches have the voxels of its cases."""

    @staticmethod
    def get_training_transforms(*arguments: Any, **options: Any) -> Any:
        return nnUNetTrainer.get_validation_transforms(None)


def trainer_of(root: Path, *bases: type) -> Any:
    """Return a trainer of a user's class "Mine" with these bases, with its network."""
    return initialized(root, type("Mine", bases, {}))


def train_loader_of(root: Path, *bases: type) -> Any:
    """Return the loader for training of a user's trainer with these bases."""
    train, _ = trainer_of(root, *bases).get_dataloaders()
    return train


def brighter(data: Any) -> tuple[Any, ...]:
    """Return what `load_case` returned, with a brighter image."""
    image, *others = data
    return (image[:] + 1000, *others)


class Brighter(nnUNetDatasetBlosc2):
    """A user's data set with brighter images."""

    def load_case(self, identifier: str) -> Any:
        return brighter(super().load_case(identifier))


class AddsAThousand(NoTransforms):
    """A user's trainer with a data set of the user's."""

    def initialize(self) -> None:
        super().initialize()
        self.dataset_class = Brighter


def test_what_a_user_does_to_images_reaches_the_training(nnunet_environment: Path) -> None:
    trainer = trainer_of(nnunet_environment, DetAugLoading, AddsAThousand)
    train, _ = trainer.get_dataloaders()
    with train:
        assert next(train)["data"].max() > 900
    message = "detaug: train: nnU-Net's own loader is kept: Brighter.load_case is defined in "
    assert message in Path(trainer.log_file).read_text()
    assert not isinstance(train.generator, PatchSource)


class Renamed(nnUNetDataLoader):
    """A user's loader that has the name of nnU-Net's."""

    def generate_train_batch(self) -> Any:
        batch = super().generate_train_batch()
        return {**batch, "data": batch["data"] + 1000}


Renamed.__name__ = Renamed.__qualname__ = "nnUNetDataLoader"


class Cases:
    """A user's data set around nnU-Net's, with brighter images."""

    def __init__(self, cases: Any) -> None:
        self._cases = cases

    def load_case(self, name: str) -> Any:
        return brighter(self._cases.load_case(name))


class PatchedCallable:
    """An object that replaces a method of nnU-Net's class, and is not a function."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __get__(self, instance: Any, _: Any = None) -> Any:
        def load_case(name: str) -> Any:
            return brighter(self._original(instance, name))

        return load_case

    __call__ = __get__


def patched_opening(original: Any = blosc2.open) -> Any:
    """Return a replacement of `blosc2.open` that makes images brighter."""

    @functools.wraps(original)
    def opened(urlpath: str, **options: Any) -> Any:
        array = original(urlpath=urlpath, **options)
        if "_seg" in urlpath:
            return array
        return array[:] + 1000

    return opened


class ShareOfForeground(nnUNetDataLoader):
    """A user's loader that computes what nnU-Net keeps in an attribute."""

    @property
    def oversample_foreground_percent(self) -> float:
        return 0.33


class Curriculum(nnUNetDataLoader):
    """A user's loader that changes with the epoch."""

    def set_epoch(self, epoch: int) -> None:
        self.oversample_foreground_percent = min(1.0, epoch / 10)


#: A change of a loader, or of what it calls.
Change = Callable[[Any, pytest.MonkeyPatch], None]


def of_class(kind: type) -> Change:
    """Return the change that gives a loader another class."""

    def change(loader: Any, _: pytest.MonkeyPatch) -> None:
        loader.__class__ = kind

    return change


def with_attribute(name: str, value: Any) -> Change:
    """Return the change that sets an attribute of a loader."""

    def change(loader: Any, _: pytest.MonkeyPatch) -> None:
        setattr(loader, name, value)

    return change


def patched(owner: Any, name: str, value: Any) -> Change:
    """Return the change that replaces an attribute of a class or module."""

    def change(_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(owner, name, value)

    return change


def wrap_load_case(loader: Any, _: pytest.MonkeyPatch) -> None:
    """Set `load_case` of a loader's data set."""
    loader._data.load_case = Cases(loader._data).load_case


def wrap_dataset(loader: Any, _: pytest.MonkeyPatch) -> None:
    """Give a loader another data set."""
    loader._data = Cases(loader._data)


def always_true(_: Any) -> bool:
    """Return True, in place of `get_do_oversample`."""
    return True


def thousand(*_: Any) -> int:
    """Return 1000, in place of an array's voxels."""
    return 1000


def unchanged(box: Any) -> Any:
    """Return the box itself, in place of `int_bbox`."""
    return box


#: The changes, by name, and why nnU-Net's loader stays.
WAYS: dict[str, tuple[Change, str]] = {
    "load_case wrapped": (
        wrap_load_case,
        "load_case of its nnUNetDatasetBlosc2 is set on the object",
    ),
    "generate_train_batch set": (
        with_attribute("generate_train_batch", dict),
        "generate_train_batch of its nnUNetDataLoader is set on the object",
    ),
    "called nnUNetDataLoader": (
        of_class(Renamed),
        "nnUNetDataLoader.generate_train_batch is defined in ",
    ),
    "a property": (
        of_class(ShareOfForeground),
        "ShareOfForeground.oversample_foreground_percent is defined in ",
    ),
    "set_epoch": (
        of_class(Curriculum),
        "Curriculum.set_epoch changes it",
    ),
    "get_do_oversample": (
        with_attribute("get_do_oversample", always_true),
        "get_do_oversample of its nnUNetDataLoader is set on the object",
    ),
    "another data set": (
        wrap_dataset,
        f"{__name__}.Cases is not nnU-Net's nnUNetDatasetBlosc2",
    ),
    "load_case replaced by an object": (
        patched(nnUNetDatasetBlosc2, "load_case", PatchedCallable(nnUNetDatasetBlosc2.load_case)),
        "nnUNetDatasetBlosc2.load_case is another than nnUNet",
    ),
    "blosc2.open patched": (
        patched(blosc2, "open", patched_opening()),
        "nnUNetDatasetBlosc2.load_case calls blosc2.open, which is defined in ",
    ),
    "__getitem__ of arrays patched": (
        patched(blosc2.NDArray, "__getitem__", thousand),
        "nnUNetDataLoader.generate_train_batch calls crop_and_pad_nd, which calls ",
    ),
    "int_bbox patched": (
        patched(bounding_boxes, "int_bbox", unchanged),
        "calls crop_and_pad_nd, which calls int_bbox of ",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_can_change_a_batch_keeps_nnunets_loader(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    loader = train_loader_of(nnunet_environment, DetAugLoading, NoTransforms).generator
    assert why_loader_stays(loader) is None
    change, expected = WAYS[way]
    change(loader, monkeypatch)
    reason = why_loader_stays(loader)
    assert reason is not None
    assert expected in reason


class Weighted:
    """A mixin of the user's: only the last two cases, and of these the first never."""

    def get_dataloaders(self) -> Any:
        train, val = super().get_dataloaders()  # type: ignore[misc]
        train.generator.indices = train.generator.indices[-2:]
        train.generator.sampling_probabilities = [0.0, 1.0]
        return train, val


@pytest.mark.parametrize(
    "bases", [(DetAugLoading, Weighted), (Weighted, DetAugLoading)], ids=["behind", "in front"]
)
def test_attributes_that_are_set_on_the_loader_before_the_first_batch_count(
    nnunet_environment: Path, bases: tuple[type, ...]
) -> None:
    train = train_loader_of(nnunet_environment, *bases, NoTransforms)
    with train:
        batches = [train.replay(0, step) for step in range(2)]
    assert isinstance(train.generator, PatchSource)
    assert len(train.generator.indices) == 2
    for batch in batches:
        assert set(batch["keys"]) == {train.generator.indices[-1]}


def test_subclasses_that_change_nothing_of_a_batch_are_replaced(nnunet_environment: Path) -> None:
    class Named(nnUNetDataLoader):
        """A user's loader with an attribute and a method of its own."""

        colour = "blue"

        def describe(self) -> str:
            return f"{self.colour}: {len(self.indices)} cases"

    train = train_loader_of(nnunet_environment, DetAugLoading, NoTransforms)
    train.generator.__class__ = Named
    train.settle()
    assert isinstance(train.generator, PatchSource)


def make_brighter(self: Any, image: Any, **_: Any) -> Any:
    """Return a brighter image, in place of `_apply_to_image` of a transform."""
    return image + 1000


def test_a_pipeline_that_is_patched_into_nnunets_trainer_is_the_users(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type("Mine", (DetAugLoading, Short), {})
    assert kind.get_training_transforms.__module__ == "detaug.nnunet.transforms"
    with monkeypatch.context() as patching:
        patching.setattr(GaussianNoiseTransform, "_apply_to_image", make_brighter)
        assert kind.get_training_transforms is nnUNetTrainer.get_training_transforms
    assert kind.get_training_transforms.__module__ == "detaug.nnunet.transforms"
    users = NoTransforms.get_training_transforms
    monkeypatch.setattr(nnUNetTrainer, "get_training_transforms", staticmethod(users))
    assert kind.get_training_transforms is users
