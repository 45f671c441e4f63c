"""`Transform.in_place`: the values of a call, in the arrays that were given where that can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from detaug import SeedTree, fingerprint
from detaug import transforms as t
from tests.support.transforms.every_transform import EVERY
from tests.support.transforms.golden import sample

SHAPES = {2: (24, 24), 3: (18, 18, 14)}
CASES = [pytest.param(make, dims, id=f"{name}, {dims}-D") for name, make in EVERY.items() for dims in SHAPES]
BRIGHTER = t.BrightnessAdditive(0.5, 0.6)


def rng() -> np.random.Generator:
    return SeedTree(3).generator(0, 0)


def contiguous(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: contiguous(part) for key, part in value.items()}
    if isinstance(value, list):
        return [contiguous(part) for part in value]
    if isinstance(value, torch.Tensor):
        return value.contiguous().numpy()
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize(("make", "dims"), CASES)
def test_values_are_those_of_a_call(make: Any, dims: int) -> None:
    for seed in range(4):
        given = sample(seed, SHAPES[dims])
        expected = fingerprint(contiguous(make(dims)(**given, rng=rng())))
        assert fingerprint(contiguous(make(dims).in_place(**sample(seed, SHAPES[dims]), rng=rng()))) == expected
        tensors = {key: torch.from_numpy(array.copy()) for key, array in given.items()}
        assert fingerprint(contiguous(make(dims).in_place(**tensors, rng=rng()))) == expected


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_the_given_array_is_changed_and_returned(kind: Any) -> None:
    image = kind(sample(1, SHAPES[3])["image"])
    expected = BRIGHTER(image=image, rng=rng())["image"]
    made = BRIGHTER.in_place(image=image, rng=rng())["image"]
    assert made is image
    assert np.array_equal(image, expected)


def test_the_given_batch_is_changed_and_returned() -> None:
    data = np.stack([sample(seed, SHAPES[3])["image"] for seed in range(3)])
    seg = np.zeros((3, 1, *SHAPES[3]), np.int16)
    expected = BRIGHTER(data=data, seg=seg, rng=rng())
    made = BRIGHTER.in_place(data=data, seg=seg, rng=rng())
    assert made["data"] is data
    assert made["seg"] is seg
    assert fingerprint(made) == fingerprint(expected)


def test_a_batch_whose_shapes_change_is_a_new_one() -> None:
    data = np.stack([sample(seed, SHAPES[3])["image"] for seed in range(3)])
    crop = t.Compose([t.CenterCrop((8, 8, 8)), BRIGHTER])
    expected = crop(data=data, rng=rng())
    assert fingerprint(contiguous(crop.in_place(data=data.copy(), rng=rng()))) == fingerprint(contiguous(expected))


def read_only(image: np.ndarray) -> np.ndarray:
    image.flags.writeable = False
    return image


NOT_WRITABLE = {
    "read-only": read_only,
    "of another dtype": lambda image: image.astype(np.float64),
    "strided": lambda image: np.asfortranarray(image),
    "repeated": lambda image: np.broadcast_to(image[:, :1], image.shape),
    "a tensor whose gradient is recorded": lambda image: torch.from_numpy(image).requires_grad_(),
    "a tensor that is a view in another order": lambda image: torch.from_numpy(image).permute(0, 2, 1, 3),
}


@pytest.mark.parametrize("name", NOT_WRITABLE)
def test_what_cannot_be_written_into_stays_as_it_is(name: str) -> None:
    image = NOT_WRITABLE[name](sample(1, (18, 18, 18))["image"])
    before = fingerprint(image)
    expected = BRIGHTER(image=image, rng=rng())["image"]
    made = BRIGHTER.in_place(image=image, rng=rng())["image"]
    assert fingerprint(contiguous(made)) == fingerprint(contiguous(expected))
    assert fingerprint(image) == before


@pytest.mark.parametrize("other", ["regression_target", "beside"])
def test_arrays_that_share_memory_are_not_written_into(other: str) -> None:
    image = sample(1, SHAPES[3])["image"]
    shared = image if other == "regression_target" else torch.from_numpy(image)[0, 0, 0]
    made = BRIGHTER.in_place(image=image, rng=rng(), **{other: shared})
    assert np.array_equal(made[other], sample(1, SHAPES[3])["image"] if other == "regression_target" else shared)
    assert np.array_equal(image, sample(1, SHAPES[3])["image"])


REPEATED = {
    "one array for all samples": lambda image: torch.from_numpy(image).expand(3, *image.shape),
    "one array twice in a list": lambda image: [image, image],
    "samples that overlap": lambda image: torch.from_numpy(image).as_strided((2, 1, 9, 18, 14), (252, 1, 252, 14, 1)),
}


@pytest.mark.parametrize("name", REPEATED)
def test_samples_that_share_memory_are_not_written_into(name: str) -> None:
    data = REPEATED[name](sample(1, SHAPES[3])["image"])
    expected = fingerprint(contiguous(BRIGHTER(data=data, rng=rng())))
    assert fingerprint(contiguous(BRIGHTER.in_place(data=data, rng=rng()))) == expected


def test_a_batchs_other_keys_may_view_its_data() -> None:
    data = np.stack([sample(seed, SHAPES[3])["image"] for seed in range(2)])
    before = data[0, 0, 0].copy()
    made = BRIGHTER.in_place(data=data, rng=rng(), kept={"row": data[0, 0, 0]})
    assert np.array_equal(made["kept"]["row"], before)


def test_other_keys_may_be_of_any_kind() -> None:
    image = sample(1, SHAPES[3])["image"]
    others = {
        "half": torch.ones(3, dtype=torch.bfloat16),
        "conjugate": torch.ones(3, dtype=torch.complex64).conj(),
        "sparse": torch.eye(3).to_sparse(),
        "meta": torch.ones(3, device="meta"),
        "name": "case",
    }
    assert BRIGHTER.in_place(image=image, rng=rng(), **others)["image"] is image


def test_keys_of_ones_own_names() -> None:
    image, label = sample(1, SHAPES[3])["image"], sample(1, SHAPES[3])["segmentation"]
    pipeline = t.Compose([BRIGHTER], keys={"scan": "image", "label": "segmentation"})
    expected = fingerprint(pipeline(scan=image, label=label, rng=rng()))
    made = pipeline.in_place(scan=image, label=label, rng=rng())
    assert made["scan"] is image
    assert fingerprint(made) == expected
