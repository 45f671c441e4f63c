"""Claims about all transforms: types and layouts of arrays, untouched input, NaN, memory."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from detaug import SeedTree, fingerprint
from detaug import transforms as t
from detaug.kernels.compiling import all_kernels
from tests.support.transforms.every_transform import EVERY, public_transforms
from tests.support.transforms.generators import rng
from tests.support.transforms.golden import sample

SHAPES = {2: (24, 24), 3: (18, 18, 14)}
CASES = []
for transform_name, make_transform in EVERY.items():
    for num_axes in SHAPES:
        case_id = f"{transform_name}, {num_axes}-D"
        CASES.append(pytest.param(make_transform, num_axes, id=case_id))
each_transform = pytest.mark.parametrize(("make", "dims"), CASES)


def names_in(transform: Any) -> set[str]:
    """Return the names of the classes of a transform and of all transforms in it."""
    names = {type(transform).__name__}
    inner = getattr(transform, "transforms", None) or getattr(transform, "list_of_transforms", [])
    if hasattr(transform, "transform"):
        inner = [transform.transform]
    for part in inner:
        names |= names_in(part)
    return names


def test_table_has_every_transform() -> None:
    covered: set[str] = set()
    for make in EVERY.values():
        covered |= names_in(make(3))
    assert public_transforms() - covered == set()


def in_fortran_order(array: np.ndarray) -> np.ndarray:
    """Return an equal array in Fortran order, as a view."""
    return np.asfortranarray(array)[::-1][::-1]


def changed_arrays(change: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return a sample with every array changed by a function."""
    return {key: change(array) for key, array in arrays.items()}


@each_transform
def test_input_stays_as_it_is_and_the_sample_is_the_same_however_it_is_asked_for(
    make: Any, dims: int
) -> None:
    arrays = sample(1, SHAPES[dims])
    transform = make(dims)
    fingerprint_before = fingerprint(arrays)
    for array in arrays.values():
        array.flags.writeable = False
    expected = fingerprint(transform(**arrays, rng=rng()))
    assert fingerprint(arrays) == fingerprint_before
    params = transform.sample(rng(), {key: array.shape for key, array in arrays.items()})
    assert fingerprint(transform.apply(arrays, params)) == expected
    from_json = json.loads(json.dumps(params))
    assert fingerprint(transform.apply(arrays, from_json)) == expected
    assert transform.describe(from_json)
    unpickled = pickle.loads(pickle.dumps(transform))
    assert fingerprint(unpickled(**arrays, rng=rng())) == expected
    for seed in range(2):
        transform(**sample(seed, SHAPES[dims]), rng=SeedTree(9).generator(0, seed))
    assert fingerprint(transform(**arrays, rng=rng())) == expected, "after other samples"
    strided = changed_arrays(in_fortran_order, arrays)
    assert fingerprint(transform(**strided, rng=rng())) == expected


@each_transform
def test_tensors_give_tensors_with_the_same_values(make: Any, dims: int) -> None:
    arrays = sample(1, SHAPES[dims])
    expected = make(dims)(**arrays, rng=rng())
    tensors = make(dims)(**changed_arrays(torch.from_numpy, arrays), rng=rng())
    assert tensors.keys() == expected.keys()
    for key, value in tensors.items():
        for level, array in zip(levels(value), levels(expected[key]), strict=True):
            if isinstance(array, np.ndarray):
                assert isinstance(level, torch.Tensor)
                assert level.dtype == torch.from_numpy(np.array(array)).dtype
                assert np.array_equal(level.numpy(), array)


class Owned(t.Transform):
    """A transform that copies all arrays, so that later transforms may write into them."""

    def change(self, workspace: Any, params: Any) -> None:
        for key in ("image", "segmentation"):
            workspace.writable(key)


@each_transform
def test_arrays_that_it_owns_come_out_alike(make: Any, dims: int) -> None:
    arrays = sample(1, SHAPES[dims])
    expected = make(dims)(**arrays, rng=rng())
    result = t.Compose([Owned(), make(dims)])(**arrays, rng=rng())
    assert fingerprint(result) == fingerprint(expected)


#: Transforms with arguments that leave an image of two channels as it is.
NEUTRAL = [
    t.Anisotropy(downsampling=1),
    t.ApplyRandomBinaryOperator([0, 1], p_per_label=0),
    t.BiasField(0.0),
    t.BlankRectangle(2, 0, 3, p_per_channel=0),
    t.BrightnessAdditive(0, 0, False),
    t.BrightnessGradientAdditive(5, max_strength=0),
    t.CenterCrop(SHAPES[2]),
    t.Contrast(1.0, True, False),
    t.CutOffOutliers(0, 100),
    t.Gamma(1.0, 1, False, 1, 1),
    t.GaussianBlur(0.2),
    t.GaussianNoise(0),
    t.Ghosting(0),
    t.Ghosting(restore=1),
    t.InvertImage(0),
    t.InvertImage(1, 0, 0),
    t.LocalContrast(5, new_contrast=1),
    t.LocalGamma(5, gamma=1),
    t.LocalSmoothing(5, kernel_size=0.1),
    t.MaskImage([]),
    t.MaskImage([0, 1], 1),
    t.MedianFilter(1),
    t.Mirror(()),
    t.Motion(0, 0),
    t.MultiplicativeBrightness(1.0, False),
    t.RemoveLabel(1, 0, []),
    t.RemoveLabel(1, 1),
    t.RemoveRandomConnectedComponentFromOneHotEncoding(
        [0], dont_do_if_covers_more_than_x_percent=0
    ),
    t.RemoveRandomConnectedComponentFromOneHotEncoding([0], p_per_label=0),
    t.RicianNoise(0),
    t.Rot90(2, (2,), {0, 1}),
    t.Sharpening(0.0),
    t.SimulateLowResolution(0.5, False, False, (0, 1)),
    t.SimulateLowResolution(0.99, False, False, None),
    t.Spikes(0),
    t.Spikes(intensity=0),
    t.TransposeAxes(()),
]


@pytest.mark.parametrize("transform", NEUTRAL, ids=repr)
def test_what_has_no_effect_gives_the_same_objects(transform: t.Transform) -> None:
    arrays = sample(1, SHAPES[2])
    arrays["segmentation"] = np.abs(arrays["segmentation"]).astype(np.uint8)
    result = transform(**arrays, rng=rng())
    for key, array in arrays.items():
        assert result[key] is array


@each_transform
def test_float64_images_come_back_as_float64_and_whatever_comes_back_is_writable(
    make: Any, dims: int
) -> None:
    arrays = sample(1, SHAPES[dims])
    expected = make(dims)(**arrays, rng=rng())
    in_float64 = {**arrays, "image": arrays["image"].astype(np.float64)}
    result = make(dims)(**in_float64, rng=rng())
    for value in result.values():
        for level in levels(value):
            if isinstance(level, np.ndarray):
                assert level.flags.writeable
    if "image" in result:
        assert result["image"].dtype == np.float64
        assert np.array_equal(result["image"].astype(np.float32), expected["image"])


@each_transform
def test_not_a_number_raises_nothing_and_draws_nothing(make: Any, dims: int) -> None:
    arrays = sample(1, SHAPES[dims])
    arrays["image"][0, 3, 3] = np.nan
    arrays["image"][1, 5, 5] = np.inf
    generator = rng()
    other_generator = rng()
    with np.errstate(all="ignore"):
        make(dims)(**arrays, rng=generator)
        make(dims)(**sample(1, SHAPES[dims]), rng=other_generator)
    assert generator.bit_generator.state == other_generator.bit_generator.state


def compiled_kernels() -> set[str]:
    return {kernel.name for kernel in all_kernels() if kernel._compiled}


@each_transform
def test_kernels_that_are_called_are_those_that_warm_up_compiles(make: Any, dims: int) -> None:
    transform = make(dims)
    # Start as in a new process, except that machine code which this one has compiled is reused.
    for kernel in all_kernels():
        kernel.dispatcher.disable_compile(False)
        kernel._compiled = False
    transform.warm_up()
    warm = compiled_kernels()
    for seed in range(2):
        transform(**sample(seed, SHAPES[dims]), rng=SeedTree(9).generator(0, seed))
    assert compiled_kernels() == warm


@pytest.mark.parametrize("shape", [(8, 8), (1, 1, 8, 8, 8), (1, 8, 0, 8)])
def test_images_that_cannot_be_right_are_refused(shape: tuple[int, ...]) -> None:
    for image in (np.zeros(shape, np.float32), np.zeros((1, 8, 8, 8), np.int16), [[[0.0]]]):
        with pytest.raises((TypeError, ValueError), match="image"):
            t.Mirror((0,))(image=image, rng=rng())


def levels(value: Any) -> list[Any]:
    """Return the levels of a deep supervision, or the value as the only level."""
    return value if isinstance(value, list) else [value]


def num_bytes(value: Any) -> int:
    """Return the bytes of all arrays in a result."""
    return sum(level.nbytes for level in levels(value) if isinstance(level, np.ndarray))


@pytest.mark.parametrize("name", EVERY)
def test_no_more_memory_is_needed_than_for_results_an_image_and_some_planes(name: str) -> None:
    transform = EVERY[name](3)
    arrays = sample(0, (48, 48, 48))
    # The first call compiles kernels, which needs memory as well.
    transform(**arrays, rng=SeedTree(0).generator(0))
    for seed in range(2):
        tracemalloc.start()
        bytes_before, _ = tracemalloc.get_traced_memory()
        result = transform(**arrays, rng=SeedTree(seed).generator(0))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        size_of_results = 0
        for key, value in result.items():
            if value is not arrays.get(key):
                size_of_results += num_bytes(value)
        assert peak - bytes_before <= size_of_results + arrays["image"].nbytes + 1_000_000
