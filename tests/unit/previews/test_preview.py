"""`detaug.preview`: the samples of a training, looked at after every transform; and every kind of
pipeline there is.
"""

from __future__ import annotations

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
    """An image, and labels of the same spatial shape."""
    image = np.random.default_rng(1).random(shape, dtype=np.float32)
    labels = np.zeros((1, *shape[1:]), np.int16)
    labels[(slice(None), *(slice(n // 4, n // 2) for n in shape[1:]))] = 1
    return image, labels


class Loader:
    """Endless batches, whose samples are brighter from draw to draw."""

    number_of_threads_in_multithreaded = 2

    def __init__(self, image: Any, labels: Any, key: str = "seg") -> None:
        self.image, self.labels, self.key = image, labels, key

    def __next__(self) -> dict[str, Any]:
        data = np.stack([self.image, self.image]) + np.float32(np.random.random())
        return {"data": data, self.key: np.stack([self.labels] * 2), "keys": ["a", "b"]}


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


def last_image(preview: Preview, sample: int) -> np.ndarray:
    """The axial plane of what is delivered."""
    return preview.samples[sample].last.planes[0].image


def test_samples_are_those_of_a_training_with_this_seed() -> None:
    preview = detaug.preview(make, samples=3, seed=5)
    with DeterministicAugmenter(*make(), num_processes=0, seed=5) as augmenter:
        batches = [next(augmenter), next(augmenter)]
    expected = [batches[0]["data"][0], batches[0]["data"][1], batches[1]["data"][0]]
    for number, image in enumerate(expected):
        np.testing.assert_array_equal(last_image(preview, number), image[0, 6, :, ::-1][:, ::-1])
    assert [sample.title for sample in preview.samples] == [
        "epoch 0, step 0, sample 0: a",
        "epoch 0, step 0, sample 1: b",
        "epoch 0, step 1, sample 0: a",
    ]


def test_every_stage_is_seen_with_its_params_and_those_that_changed_nothing_are_named() -> None:
    preview = detaug.preview(make, samples=8, seed=5)
    assert [name for _, name in preview.places] == ["CenterCrop", "GaussianNoise", "Mirror"]
    assert preview.unchanging == ["RemoveLabel"]
    noisy = [
        step for sample in preview.samples for step in sample.steps if step.name == "GaussianNoise"
    ]
    assert 0 < len(noisy) < 8, "it is applied to half of the samples"
    assert all(step.caption[0].startswith("sigmas=[0.") for step in noisy)
    assert not any("key" in line for step in noisy for line in step.caption)
    assert all(sample.before.shape == (1, 20, 18, 16) for sample in preview.samples)
    assert all(sample.steps[0].view.shape == (1, 12, 12, 12) for sample in preview.samples)


def test_transforms_in_a_loader_are_seen_as_well() -> None:
    class Within(Loader):
        def __next__(self) -> dict[str, Any]:
            made = [
                PIPELINE(
                    image=self.image,
                    segmentation=self.labels,
                    rng=current().next_sample_generator(),
                )
                for _ in range(2)
            ]
            return {
                "data": np.stack([each["image"] for each in made]),
                "target": np.stack([each["segmentation"] for each in made]),
            }

    preview = detaug.preview(lambda: (Within(*blob()), None), samples=2)
    assert preview.samples[0].steps[0].name == "CenterCrop"
    assert preview.samples[0].before.shape == (1, 20, 18, 16)
    assert preview.samples[0].steps[-1].name == "RemoveLabel", "the last stage is what is delivered"


def test_a_single_transform_is_drawn_on_one_image_at_three_strengths() -> None:
    pytest.importorskip("nilearn")
    preview = detaug.preview(t.GaussianNoise((0.0, 0.5)), seed=5)
    assert [name for _, name in preview.places] == ["weakest", "median", "strongest"]
    (sample,) = preview.samples
    strengths = [
        float(np.abs(step.view.planes[0].image - sample.before.planes[0].image).mean())
        for step in sample.steps
    ]
    assert 0 < strengths[0] < strengths[1] < strengths[2]
    assert all(step.caption[0].startswith("sigmas=[") for step in sample.steps)
    assert preview.summary == "1 sample, 3 strengths"
    with pytest.raises(UnusableError, match="none of 16 draws of RemoveLabel changes"):
        detaug.preview(t.RemoveLabel(7, 0))


def test_a_brighter_image_is_not_all_white() -> None:
    image = np.linspace(0, 1, 400, dtype=np.float32).reshape(1, 20, 20)
    low, high = window_of(planes_of(image))
    assert low < 0
    assert high > 1.2


class Doubled:
    def __call__(self, data: Any, **rest: Any) -> dict[str, Any]:
        return {"data": 2 * data, **rest}


def test_transform_of_whom_nothing_is_known_has_before_and_after() -> None:
    preview = detaug.preview(lambda: (Loader(*blob()), Doubled()), samples=2)
    assert [name for _, name in preview.places] == ["Doubled"]
    for number, sample in enumerate(preview.samples):
        np.testing.assert_array_equal(
            last_image(preview, number), 2 * sample.before.planes[0].image
        )


def test_four_channels_regions_label_minus_one_and_nan() -> None:
    from detaug.nnunet import training_transforms

    image, labels = blob((4, 24, 24, 24))
    labels[:, :3] = -1
    image[:, 10:14, 10:14] = np.nan
    pipeline = training_transforms(
        (16,) * 3, (-0.3, 0.3), [[1, 1, 1], [0.5] * 3], (0, 1, 2), False, regions=[(1, 2), (2,)]
    )
    preview = detaug.preview(lambda: (Loader(image, labels), pipeline), samples=2, channel=3)
    assert -1 in preview.samples[0].before.planes[2].masks
    assert "ConvertSegmentationToRegions" in [name for _, name in preview.places]
    assert preview.legend.keys() >= {"label 1", "label -1 (outside)", "NaN or infinite"}
    assert Image.open(io.BytesIO(preview.png)).format == "PNG"
    with pytest.raises(ValueError, match="there is no channel 4: the image has 4, from 0 to 3"):
        detaug.preview(lambda: (Loader(image, labels), pipeline), channel=4)


def test_sheet_is_the_same_bytes_each_time_and_notebooks_show_it() -> None:
    first, second = (detaug.preview(make, samples=2, seed=5) for _ in range(2))
    assert first.png == second.png == first._repr_png_()
    assert "CenterCrop" in repr(first)
    width, height = Image.open(io.BytesIO(first.png)).size
    assert width > 4 * 200
    assert height > 2 * 3 * 200


def test_batch_without_an_image_is_described() -> None:
    class Numbers:
        def __next__(self) -> dict[str, Any]:
            return {"data": np.zeros(3), "name": "x"}

    with pytest.raises(
        UnusableError, match=r"there is no image in a batch.*\{'data': \(3,\), 'name': 'str'\}"
    ):
        detaug.preview(lambda: (Numbers(), None))


def test_wrong_arguments_are_refused() -> None:
    for wrong in (DeterministicAugmenter(*make(), num_processes=0, seed=1), PIPELINE, 5):
        with pytest.raises(TypeError, match="pass a function that makes the pipeline"):
            detaug.preview(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="samples"):
        detaug.preview(make, samples=0)


def test_missing_matplotlib_is_said_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    with pytest.raises(NotInstalled, match=r"pip install 'detaug\[plots\]'"):
        detaug.preview(make)


def test_only_applied_finds_samples_in_which_every_transform_acts() -> None:
    image, labels = blob()
    noise = t.RandomApply(t.GaussianNoise((0.1, 0.1)), 0.3)
    pipeline = t.Compose([noise, t.RandomApply(t.RemoveLabel(1, 0), 0.3)])

    def make() -> Any:
        return Loader(image, labels), pipeline

    preview = detaug.preview(make, samples=1, seed=5, only_applied=True)
    assert [name for _, name in preview.places] == ["GaussianNoise", "RemoveLabel"]
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
