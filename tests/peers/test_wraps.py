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
    """Return an item of a data set of MONAI's: an image, labels, and a name."""
    numbers = np.arange(480).reshape(SHAPE)
    image = torch.from_numpy(numbers).to(dtype)
    return {
        "image": MetaTensor(image, affine=AFFINE, meta={"filename_or_obj": "a.nii.gz"}),
        "label": (numbers % 3).astype(np.uint8),
        "name": "a",
    }


def subject(dtype: torch.dtype = torch.float32) -> Any:
    """Return the image, labels and name of `item` as TorchIO has them."""
    arrays = item(dtype)
    affine = AFFINE.numpy()
    return torchio.Subject(
        image=torchio.ScalarImage(tensor=arrays["image"].as_tensor(), affine=affine),
        label=torchio.LabelMap(tensor=torch.from_numpy(arrays["label"]), affine=affine),
        name="a",
    )


def pipeline() -> Any:
    """Return two transforms of detaug's that draw."""
    return Compose([Mirror((0, 1, 2)), GaussianNoise()])


def test_monais_flip_and_ours_give_the_same_arrays() -> None:
    wrap = detaug.monai.Wrap(Mirror((1,)), ROLES).set_random_state(0)
    flipped = monai.transforms.Flipd(["image", "label"], 1)(item())
    num_unchanged = 0
    for _ in range(20):
        result = wrap(item())
        expected = flipped
        if torch.equal(result["image"], item()["image"]):
            num_unchanged += 1
            expected = item()
        assert torch.equal(result["image"].as_tensor(), expected["image"].as_tensor())
        assert np.array_equal(result["label"], expected["label"])
    assert 3 < num_unchanged < 17


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int16, torch.uint8])
def test_what_monai_gave_comes_back_in_kind_with_its_meta_data(dtype: torch.dtype) -> None:
    original = item(dtype)
    result = detaug.monai.Wrap(Mirror((0,)), ROLES).set_random_state(1)(original)
    assert list(result) == ["image", "label", "name"]
    assert type(result["image"]) is MetaTensor
    assert result["image"].dtype == (dtype if dtype.is_floating_point else torch.float32)
    assert torch.equal(result["image"].affine, original["image"].affine)
    assert result["image"].meta["filename_or_obj"] == "a.nii.gz"
    assert type(result["label"]) is np.ndarray
    assert result["label"].dtype == np.uint8
    assert torch.equal(original["image"], item(dtype)["image"]), "the item itself was changed"


def three_fingerprints(transform: Any) -> list[str]:
    """Return fingerprints of the images that a transform makes of three equal items."""
    results = [transform(item()) for _ in range(3)]
    return [fingerprint(result["image"].as_tensor()) for result in results]


def test_monais_protocol_seeds_it() -> None:
    def composed() -> Any:
        return monai.transforms.Compose([detaug.monai.Wrap(pipeline(), ROLES)])

    of_seed_7 = three_fingerprints(composed().set_random_state(7))
    assert three_fingerprints(composed().set_random_state(7)) == of_seed_7
    assert three_fingerprints(composed().set_random_state(8)) != of_seed_7
    assert len(set(of_seed_7)) == 3

    runs = []
    for _ in range(2):
        monai.utils.set_determinism(3)
        runs.append(three_fingerprints(composed()))
        monai.utils.set_determinism(None)
    assert runs[0] == runs[1]


def test_keys_that_are_missing_are_an_error_unless_allowed() -> None:
    image_only = {"image": item()["image"]}
    with pytest.raises(KeyError, match="label"):
        detaug.monai.Wrap(Mirror((0,)), ROLES)(image_only)
    result = detaug.monai.Wrap(Mirror((0,)), ROLES, True)(image_only)
    assert set(result) == {"image"}
    with pytest.raises(ValueError, match="'mask', which is no role"):
        detaug.monai.Wrap(Mirror((0,)), {"label": "mask"})


def monai_items() -> Any:
    """Return a data set of MONAI's with six equal items."""
    items = [item() for _ in range(6)]
    return monai.data.Dataset(items, detaug.monai.Wrap(pipeline(), ROLES))


class TorchioItems(torch.utils.data.Dataset[Any]):
    """A data set with six equal subjects of TorchIO's."""

    def __init__(self) -> None:
        self.wrap = detaug.torchio.Wrap(pipeline())

    def __len__(self) -> int:
        return 6

    def __getitem__(self, _: int) -> Any:
        result = self.wrap(subject())
        return {"image": result.image.data, "label": result.label.data}


@pytest.mark.parametrize("items", [monai_items, TorchioItems])
def test_an_augmenter_seeds_them_for_every_sample(items: Any) -> None:
    def images(num_processes: int) -> list[Any]:
        with DeterministicAugmenter.from_dataset(
            items(), 2, num_processes=num_processes, seed=1
        ) as augmenter:
            return [batch["image"] for batch in augmenter]

    expected = images(0)
    by_workers = images(2)
    assert [fingerprint(image) for image in by_workers] == [
        fingerprint(image) for image in expected
    ]
    samples = np.concatenate([np.asarray(image) for image in expected])
    assert len({fingerprint(sample) for sample in samples}) == 6


def test_torchios_flip_and_ours_give_the_same_arrays() -> None:
    torch.manual_seed(0)
    flipped = torchio.Flip(1)(subject())
    num_unchanged = 0
    for _ in range(20):
        result = detaug.torchio.Wrap(Mirror((1,)))(subject())
        expected = flipped
        if torch.equal(result.image.data, subject().image.data):
            num_unchanged += 1
            expected = subject()
        assert torch.equal(result.image.data, expected.image.data)
        assert torch.equal(result.label.data, expected.label.data)
    assert 3 < num_unchanged < 17


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
def test_what_torchio_gave_comes_back_in_kind_with_its_affine_and_history(
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(3)
    original = subject(dtype)
    transform = torchio.Compose([torchio.Flip(0), detaug.torchio.Wrap(Mirror((0, 1, 2)))])
    result = transform(original)
    assert type(result.image) is torchio.ScalarImage
    assert type(result.label) is torchio.LabelMap
    assert result.image.data.dtype == torch.float32
    assert np.array_equal(result.image.affine, AFFINE.numpy())
    assert [name for name, _ in result.applied_transforms] == ["Flip", "Wrap"]
    repeated = result.get_composed_history()(subject(dtype))
    assert torch.equal(repeated.image.data, result.image.data)
    tensor = detaug.torchio.Wrap(Mirror((0,)))(original.image.data)
    assert type(tensor) is torch.Tensor


def test_a_subject_without_chosen_images_stays_as_it_is() -> None:
    result = detaug.torchio.Wrap(GaussianNoise(), exclude=["image", "label"])(subject())
    assert torch.equal(result.image.data, subject().image.data)


def test_torchios_probability_and_choice_of_images_hold() -> None:
    never = detaug.torchio.Wrap(pipeline(), p=0)(subject())
    assert torch.equal(never.image.data, subject().image.data)
    torch.manual_seed(1)
    result = detaug.torchio.Wrap(pipeline(), exclude=["label"])(subject())
    assert torch.equal(result.label.data, subject().label.data)
