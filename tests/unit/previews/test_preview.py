"""`detaug.preview` shows samples after every transform, for every kind of pipeline."""

from __future__ import annotations

import importlib.util
import io
import re
from typing import Any

import numpy as np
import pytest
from PIL import Image

import detaug
from detaug import DeterministicAugmenter, current
from detaug import transforms as t
from detaug.errors import NotInstalled
from detaug.tools.pictures.slices import planes_of, window_of
from detaug.tools.previews import Preview
from detaug.verification import UnusableError


def blob(shape: tuple[int, ...] = (1, 20, 18, 16)) -> tuple[np.ndarray, np.ndarray]:
    """Return an image (C, D, H, W) and labels (1, D, H, W) with one box of label 1."""
    image = np.random.default_rng(1).random(shape, dtype=np.float32)
    labels = np.zeros((1, *shape[1:]), np.int16)
    inside = tuple(slice(length // 4, length // 2) for length in shape[1:])
    labels[(slice(None), *inside)] = 1
    return image, labels


class Loader:
    """An endless loader of two equal samples whose brightness is drawn anew for every batch."""

    number_of_threads_in_multithreaded = 2

    def __init__(self, image: Any, labels: Any, key: str = "seg") -> None:
        self.image = image
        self.labels = labels
        self.key = key

    def __next__(self) -> dict[str, Any]:
        brightness = np.float32(np.random.random())
        data = np.stack([self.image, self.image]) + brightness
        labels = np.stack([self.labels, self.labels])
        return {"data": data, self.key: labels, "keys": ["a", "b"]}


PIPELINE = t.Compose(
    [
        t.CenterCrop((12, 12, 12)),
        t.RandomApply(t.GaussianNoise((0.1, 0.2)), 0.5),
        t.Mirror((0, 1, 2)),
        t.RemoveLabel(-1, 0),
    ]
)


def make() -> tuple[Loader, t.Transform]:
    return Loader(*blob()), PIPELINE


def names_of(preview: Preview) -> list[str]:
    return [name for _, name in preview.places]


def last_image(preview: Preview, sample: int) -> np.ndarray:
    """Return the axial plane of a sample's delivered image."""
    return preview.samples[sample].last.planes[0].image


def test_samples_are_those_of_a_training_with_this_seed() -> None:
    preview = detaug.preview(make, samples=3, seed=5)
    with DeterministicAugmenter(*make(), num_processes=0, seed=5) as augmenter:
        first = next(augmenter)["data"]
        second = next(augmenter)["data"]
    for number, image in enumerate([first[0], first[1], second[0]]):
        np.testing.assert_array_equal(last_image(preview, number), image[0, 6])
    assert [sample.title for sample in preview.samples] == [
        "epoch 0, step 0, sample 0: a",
        "epoch 0, step 0, sample 1: b",
        "epoch 0, step 1, sample 0: a",
    ]


def test_every_stage_is_seen_with_its_params_and_those_that_changed_nothing_are_named() -> None:
    preview = detaug.preview(make, samples=8, seed=5)
    assert names_of(preview) == ["CenterCrop", "GaussianNoise", "Mirror"]
    assert preview.unchanging == ["RemoveLabel"]
    num_noisy = 0
    for sample in preview.samples:
        assert sample.before.shape == (1, 20, 18, 16)
        assert sample.steps[0].view.shape == (1, 12, 12, 12)
        for step in sample.steps:
            if step.name == "GaussianNoise":
                num_noisy += 1
                assert step.caption[0].startswith("sigmas=[0.")
                assert "key" not in "".join(step.caption)
    assert 0 < num_noisy < 8, "it is applied to half of the samples"


class Within(Loader):
    """A loader that applies the transforms itself."""

    def __next__(self) -> dict[str, Any]:
        images = []
        labels = []
        for _ in range(2):
            generator = current().next_sample_generator()
            sample = PIPELINE(image=self.image, segmentation=self.labels, rng=generator)
            images.append(sample["image"])
            labels.append(sample["segmentation"])
        return {"data": np.stack(images), "target": np.stack(labels)}


def make_within() -> tuple[Loader, None]:
    return Within(*blob()), None


def test_transforms_in_a_loader_are_seen_as_well() -> None:
    preview = detaug.preview(make_within, samples=2)
    sample = preview.samples[0]
    assert sample.steps[0].name == "CenterCrop"
    assert sample.before.shape == (1, 20, 18, 16)
    assert sample.steps[-1].name == "RemoveLabel", "the last stage is what is delivered"


def test_a_single_transform_is_drawn_on_one_image_at_three_strengths() -> None:
    pytest.importorskip("nilearn")
    preview = detaug.preview(t.GaussianNoise((0.0, 0.5)), seed=5)
    assert names_of(preview) == ["weakest", "median", "strongest"]
    (sample,) = preview.samples
    before = sample.before.planes[0].image
    strengths = []
    for step in sample.steps:
        change = np.abs(step.view.planes[0].image - before)
        strengths.append(change.mean())
        assert step.caption[0].startswith("sigmas=[")
    weakest, median, strongest = strengths
    assert 0 < weakest < median < strongest
    assert preview.summary == "1 sample, 3 strengths"
    with pytest.raises(UnusableError, match="none of 16 draws of RemoveLabel changes"):
        detaug.preview(t.RemoveLabel(7, 0))


def test_a_brighter_image_is_not_all_white() -> None:
    image = np.linspace(0, 1, 400, dtype=np.float32).reshape(1, 20, 20)
    low, high = window_of(planes_of(image))
    assert low < 0
    assert high > 1.2


class Doubled:
    """A transform of the user's, which does not say what it draws."""

    def __call__(self, data: Any, **rest: Any) -> dict[str, Any]:
        return {"data": 2 * data, **rest}


def make_doubled() -> tuple[Loader, Doubled]:
    return Loader(*blob()), Doubled()


def test_transform_of_whom_nothing_is_known_has_before_and_after() -> None:
    preview = detaug.preview(make_doubled, samples=2)
    assert names_of(preview) == ["Doubled"]
    for number, sample in enumerate(preview.samples):
        before = sample.before.planes[0].image
        np.testing.assert_array_equal(last_image(preview, number), 2 * before)


def test_four_channels_regions_label_minus_one_and_nan() -> None:
    from detaug.nnunet import training_transforms

    image, labels = blob((4, 24, 24, 24))
    labels[:, :3] = -1
    image[:, 10:14, 10:14] = np.nan
    pipeline = training_transforms(
        patch_size=(16, 16, 16),
        rotation=(-0.3, 0.3),
        ds_scales=[[1, 1, 1], [0.5, 0.5, 0.5]],
        mirror_axes=(0, 1, 2),
        do_dummy_2d=False,
        regions=[(1, 2), (2,)],
    )

    def make_of_nnunet() -> Any:
        return Loader(image, labels), pipeline

    preview = detaug.preview(make_of_nnunet, samples=2, channel=3)
    assert -1 in preview.samples[0].before.planes[2].masks
    assert "ConvertSegmentationToRegions" in names_of(preview)
    assert preview.legend.keys() >= {"label 1", "label -1 (outside)", "NaN or infinite"}
    assert Image.open(io.BytesIO(preview.png)).format == "PNG"
    with pytest.raises(ValueError, match="there is no channel 4: the image has 4, from 0 to 3"):
        detaug.preview(make_of_nnunet, channel=4)


def test_sheet_is_the_same_bytes_each_time_and_notebooks_show_it() -> None:
    first = detaug.preview(make, samples=2, seed=5)
    second = detaug.preview(make, samples=2, seed=5)
    assert first.png == second.png == first._repr_png_()
    assert "CenterCrop" in repr(first)
    width, height = Image.open(io.BytesIO(first.png)).size
    assert width > 4 * 200
    assert height > 2 * 3 * 200


class Numbers:
    """A loader whose batches have no image."""

    def __next__(self) -> dict[str, Any]:
        return {"data": np.zeros(3), "name": "x"}


def make_without_image() -> tuple[Numbers, None]:
    return Numbers(), None


def test_batch_without_an_image_is_described() -> None:
    with pytest.raises(
        UnusableError, match=r"there is no image in a batch.*\{'data': \(3,\), 'name': 'str'\}"
    ):
        detaug.preview(make_without_image)


def test_wrong_arguments_are_refused() -> None:
    for wrong in (DeterministicAugmenter(*make(), num_processes=0, seed=1), PIPELINE, 5):
        with pytest.raises(TypeError, match="pass a function that makes the pipeline"):
            detaug.preview(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="samples"):
        detaug.preview(make, samples=0)


def test_missing_matplotlib_is_said_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec

    def find_all_but_matplotlib(name: str) -> Any:
        if name == "matplotlib":
            return None
        return find_spec(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_all_but_matplotlib)
    with pytest.raises(NotInstalled, match=r"pip install 'detaug\[plots\]'"):
        detaug.preview(make)


def test_only_applied_finds_samples_in_which_every_transform_acts() -> None:
    image, labels = blob()
    noise = t.RandomApply(t.GaussianNoise((0.1, 0.1)), 0.3)
    pipeline = t.Compose([noise, t.RandomApply(t.RemoveLabel(1, 0), 0.3)])

    def make() -> Any:
        return Loader(image, labels), pipeline

    preview = detaug.preview(make, samples=1, seed=5, only_applied=True)
    assert names_of(preview) == ["GaussianNoise", "RemoveLabel"]
    assert [step.changed for step in preview.samples[0].steps] == [True, True]


def test_a_compact_sheet_has_short_captions_and_only_transforms_that_act() -> None:
    image, labels = blob()
    pipeline = t.Compose([t.RandomApply(t.RemoveLabel(1, 0), 0), t.GaussianNoise((0.1, 0.2))])

    def make() -> Any:
        return Loader(image, labels), pipeline

    picture = detaug.preview(make, samples=1, only_applied=True).picture("svg").decode()
    texts = re.findall(r"<!-- (.*?) -->", picture)
    assert "GaussianNoise" in texts
    assert not any("RemoveLabel" in text or "not applied" in text for text in texts)
    (sigma,) = [text for text in texts if text.startswith("sigmas=")]
    assert re.fullmatch(r"sigmas=0\.\d{1,3}", sigma)
