"""detaug's transforms in pipelines of MONAI and TorchIO."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from detaug import DeterministicAugmenter, fingerprint
from detaug.transforms import Compose, GaussianNoise, Mirror

pytest.importorskip("monai")
torchio = pytest.importorskip("torchio")

import monai.transforms  # noqa: E402
from monai.data import MetaTensor  # noqa: E402

import detaug.monai  # noqa: E402
import detaug.torchio  # noqa: E402

SHAPE = (1, 6, 8, 10)
ROLES = {"image": "image", "label": "segmentation"}
AFFINE = torch.tensor([[2.0, 0, 0, 5], [0, 3.0, 0, 6], [0, 0, 1.0, 7], [0, 0, 0, 1]])


def item(dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    image = torch.arange(480).reshape(SHAPE).to(dtype)
    return {
        "image": MetaTensor(image, affine=AFFINE, meta={"filename_or_obj": "a.nii.gz"}),
        "label": (np.arange(480).reshape(SHAPE) % 3).astype(np.uint8),
        "name": "a",
    }


def pipeline() -> Any:
    return Compose([Mirror((0, 1, 2)), GaussianNoise()])


def test_monais_flip_and_ours_give_the_same_arrays() -> None:
    wrap = detaug.monai.Wrap(Mirror((1,)), ROLES).set_random_state(0)
    flipped = monai.transforms.Flipd(["image", "label"], 1)(item())
    outcomes = []
    for _ in range(20):
        made = wrap(item())
        as_given = torch.equal(made["image"], item()["image"])
        outcomes.append(as_given)
        expected = item() if as_given else flipped
        assert torch.equal(made["image"].as_tensor(), expected["image"].as_tensor())
        assert np.array_equal(made["label"], expected["label"])
    assert 3 < sum(outcomes) < 17


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int16, torch.uint8])
def test_what_monai_gave_comes_back_in_kind_with_its_meta_data(dtype: torch.dtype) -> None:
    given = item(dtype)
    made = detaug.monai.Wrap(Mirror((0,)), ROLES).set_random_state(1)(given)
    assert list(made) == ["image", "label", "name"]
    assert type(made["image"]) is MetaTensor
    assert made["image"].dtype == (dtype if dtype.is_floating_point else torch.float32)
    assert torch.equal(made["image"].affine, given["image"].affine)
    assert made["image"].meta["filename_or_obj"] == "a.nii.gz"
    assert type(made["label"]) is np.ndarray
    assert made["label"].dtype == np.uint8
    assert torch.equal(given["image"], item(dtype)["image"]), "the item itself was changed"


def test_monais_protocol_seeds_it() -> None:
    def run(transform: Any) -> list[str]:
        return [fingerprint(transform(item())["image"].as_tensor()) for _ in range(3)]

    def composed() -> Any:
        return monai.transforms.Compose([detaug.monai.Wrap(pipeline(), ROLES)])

    assert run(composed().set_random_state(7)) == run(composed().set_random_state(7))
    assert run(composed().set_random_state(7)) != run(composed().set_random_state(8))
    assert len(set(run(composed().set_random_state(7)))) == 3
    runs = []
    for _ in range(2):
        monai.utils.set_determinism(3)
        runs.append(run(composed()))
        monai.utils.set_determinism(None)
    assert runs[0] == runs[1]


def test_keys_that_are_missing_are_an_error_unless_allowed() -> None:
    with pytest.raises(KeyError, match="label"):
        detaug.monai.Wrap(Mirror((0,)), ROLES)({"image": item()["image"]})
    assert set(detaug.monai.Wrap(Mirror((0,)), ROLES, True)({"image": item()["image"]})) == {
        "image"
    }
    with pytest.raises(ValueError, match="'mask', which is no role"):
        detaug.monai.Wrap(Mirror((0,)), {"label": "mask"})


def monai_items() -> Any:
    return monai.data.Dataset([item() for _ in range(6)], detaug.monai.Wrap(pipeline(), ROLES))


def subject(dtype: torch.dtype = torch.float32) -> Any:
    given = item(dtype)
    return torchio.Subject(
        image=torchio.ScalarImage(tensor=given["image"].as_tensor(), affine=AFFINE.numpy()),
        label=torchio.LabelMap(tensor=torch.from_numpy(given["label"]), affine=AFFINE.numpy()),
        name="a",
    )


def torchio_items() -> Any:
    wrap = detaug.torchio.Wrap(pipeline())

    class Items(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, _: int) -> Any:
            made = wrap(subject())
            return {"image": made.image.data, "label": made.label.data}

    return Items()


@pytest.mark.parametrize("items", [monai_items, torchio_items])
def test_an_augmenter_seeds_them_for_every_sample(items: Any) -> None:
    def run(n: int) -> list[Any]:
        with DeterministicAugmenter.from_dataset(items(), 2, num_processes=n, seed=1) as augmenter:
            return [batch["image"] for batch in augmenter]

    images = run(0)
    assert [fingerprint(image) for image in images] == [fingerprint(image) for image in run(2)]
    assert len({fingerprint(np.asarray(one)) for image in images for one in image}) == 6


def test_torchios_flip_and_ours_give_the_same_arrays() -> None:
    torch.manual_seed(0)
    flipped = torchio.Flip(1)(subject())
    outcomes = []
    for _ in range(20):
        made = detaug.torchio.Wrap(Mirror((1,)))(subject())
        as_given = torch.equal(made.image.data, subject().image.data)
        outcomes.append(as_given)
        expected = subject() if as_given else flipped
        assert torch.equal(made.image.data, expected.image.data)
        assert torch.equal(made.label.data, expected.label.data)
    assert 3 < sum(outcomes) < 17


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
def test_what_torchio_gave_comes_back_in_kind_with_its_affine_and_history(
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(3)
    given = subject(dtype)
    made = torchio.Compose([torchio.Flip(0), detaug.torchio.Wrap(Mirror((0, 1, 2)))])(given)
    assert type(made.image) is torchio.ScalarImage
    assert type(made.label) is torchio.LabelMap
    assert made.image.data.dtype == torch.float32
    assert np.array_equal(made.image.affine, AFFINE.numpy())
    assert [name for name, _ in made.applied_transforms] == ["Flip", "Wrap"]
    assert torch.equal(made.get_composed_history()(subject(dtype)).image.data, made.image.data)
    tensor = detaug.torchio.Wrap(Mirror((0,)))(given.image.data)
    assert type(tensor) is torch.Tensor


def test_a_subject_without_chosen_images_stays_as_it_is() -> None:
    made = detaug.torchio.Wrap(GaussianNoise(), exclude=["image", "label"])(subject())
    assert torch.equal(made.image.data, subject().image.data)


def test_torchios_probability_and_choice_of_images_hold() -> None:
    never = detaug.torchio.Wrap(pipeline(), p=0)(subject())
    assert torch.equal(never.image.data, subject().image.data)
    torch.manual_seed(1)
    made = detaug.torchio.Wrap(pipeline(), exclude=["label"])(subject())
    assert torch.equal(made.label.data, subject().label.data)
