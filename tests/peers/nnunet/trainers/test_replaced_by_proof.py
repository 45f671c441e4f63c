"""What decides on the contents of a batch is replaced only where it is nnU-Net's own; else it
stays, and the log says why.
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
    """So that the voxels of a batch are those of its cases."""

    @staticmethod
    def get_training_transforms(*arguments: Any, **options: Any) -> Any:
        return nnUNetTrainer.get_validation_transforms(None)


def brighter(data: Any) -> tuple[Any, ...]:
    image, *others = data
    return (image[:] + 1000, *others)


class Brighter(nnUNetDatasetBlosc2):
    def load_case(self, identifier: str) -> Any:
        return brighter(super().load_case(identifier))


class AddsAThousand(NoTransforms):
    def initialize(self) -> None:
        super().initialize()
        self.dataset_class = Brighter


def test_what_a_user_does_to_images_reaches_the_training(nnunet_environment: Path) -> None:
    made = initialized(nnunet_environment, type("Mine", (DetAugLoading, AddsAThousand), {}))
    train, _ = made.get_dataloaders()
    with train:
        assert next(train)["data"].max() > 900
    said = "detaug: train: nnU-Net's own loader is kept: Brighter.load_case is defined in "
    assert said in Path(made.log_file).read_text()
    assert not isinstance(train.generator, PatchSource)


class Renamed(nnUNetDataLoader):
    def generate_train_batch(self) -> Any:
        batch = super().generate_train_batch()
        return {**batch, "data": batch["data"] + 1000}


Renamed.__name__ = Renamed.__qualname__ = "nnUNetDataLoader"


class Cases:
    def __init__(self, cases: Any) -> None:
        self._cases = cases

    def load_case(self, name: str) -> Any:
        return brighter(self._cases.load_case(name))


class PatchedCallable:
    """In the place of a method of nnU-Net's class, and no function."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __get__(self, instance: Any, _: Any = None) -> Any:
        return lambda name: brighter(self._original(instance, name))

    __call__ = __get__


def patched_opening(original: Any = blosc2.open) -> Any:
    @functools.wraps(original)
    def opened(urlpath: str, **options: Any) -> Any:
        array = original(urlpath=urlpath, **options)
        return array if "_seg" in urlpath else array[:] + 1000

    return opened


class ShareOfForeground(nnUNetDataLoader):
    """What nnU-Net keeps in an attribute, computed."""

    @property
    def oversample_foreground_percent(self) -> float:
        return 0.33


class Curriculum(nnUNetDataLoader):
    def set_epoch(self, epoch: int) -> None:
        self.oversample_foreground_percent = min(1.0, epoch / 10)


def now_a(kind: type) -> Callable[[Any, pytest.MonkeyPatch], None]:
    return lambda loader, _: setattr(loader, "__class__", kind)


def patched(owner: Any, name: str, value: Any) -> Callable[[Any, pytest.MonkeyPatch], None]:
    return lambda _, patch: patch.setattr(owner, name, value)


#: What is changed of a loader or around it, and why the loader stays.
WAYS: dict[str, tuple[Callable[[Any, pytest.MonkeyPatch], Any], str]] = {
    "load_case wrapped": (
        lambda loader, _: setattr(loader._data, "load_case", Cases(loader._data).load_case),
        "load_case of its nnUNetDatasetBlosc2 is set on the object",
    ),
    "generate_train_batch set": (
        lambda loader, _: setattr(loader, "generate_train_batch", dict),
        "generate_train_batch of its nnUNetDataLoader is set on the object",
    ),
    "called nnUNetDataLoader": (
        now_a(Renamed),
        "nnUNetDataLoader.generate_train_batch is defined in ",
    ),
    "a property": (
        now_a(ShareOfForeground),
        "ShareOfForeground.oversample_foreground_percent is defined in ",
    ),
    "set_epoch": (now_a(Curriculum), "Curriculum.set_epoch changes it"),
    "get_do_oversample": (
        lambda loader, _: setattr(loader, "get_do_oversample", lambda _: True),
        "get_do_oversample of its nnUNetDataLoader is set on the object",
    ),
    "another data set": (
        lambda loader, _: setattr(loader, "_data", Cases(loader._data)),
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
        patched(blosc2.NDArray, "__getitem__", lambda *_: 1000),
        "nnUNetDataLoader.generate_train_batch calls crop_and_pad_nd, which calls ",
    ),
    "int_bbox patched": (
        patched(bounding_boxes, "int_bbox", lambda box: box),
        "calls crop_and_pad_nd, which calls int_bbox of ",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_can_change_a_batch_keeps_nnunets_loader(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    train, _ = initialized(
        nnunet_environment, type("Mine", (DetAugLoading, NoTransforms), {})
    ).get_dataloaders()
    assert why_loader_stays(train.generator) is None
    change, why = WAYS[way]
    change(train.generator, monkeypatch)
    assert why in (why_loader_stays(train.generator) or "")


class Weighted:
    """Only the last two cases, and of these the first never."""

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
    made = initialized(nnunet_environment, type("Mine", (*bases, NoTransforms), {}))
    train, _ = made.get_dataloaders()
    with train:
        taken = [train.replay(0, step) for step in range(2)]
    assert isinstance(train.generator, PatchSource)
    assert len(train.generator.indices) == 2
    assert {key for batch in taken for key in batch["keys"]} == {train.generator.indices[-1]}


def test_subclasses_that_change_nothing_of_a_batch_are_replaced(nnunet_environment: Path) -> None:
    class Named(nnUNetDataLoader):
        """With an attribute and a method more."""

        colour = "blue"

        def describe(self) -> str:
            return f"{self.colour}: {len(self.indices)} cases"

    train, _ = initialized(
        nnunet_environment, type("Mine", (DetAugLoading, NoTransforms), {})
    ).get_dataloaders()
    train.generator.__class__ = Named
    train.settle()
    assert isinstance(train.generator, PatchSource)


def test_a_pipeline_that_is_patched_into_nnunets_trainer_is_the_users(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type("Mine", (DetAugLoading, Short), {})
    assert kind.get_training_transforms.__module__ == "detaug.nnunet.transforms"
    with monkeypatch.context() as patched:
        patched.setattr(
            GaussianNoiseTransform, "_apply_to_image", lambda self, image, **_: image + 1000
        )
        assert kind.get_training_transforms is nnUNetTrainer.get_training_transforms
    assert kind.get_training_transforms.__module__ == "detaug.nnunet.transforms"
    monkeypatch.setattr(
        nnUNetTrainer, "get_training_transforms", staticmethod(NoTransforms.get_training_transforms)
    )
    assert kind.get_training_transforms is NoTransforms.get_training_transforms
