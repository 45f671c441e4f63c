"""Artefacts of k-space against their formulas in float64, with NumPy's transforms."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import scipy.fft
from scipy.ndimage import affine_transform

from detaug import SeedTree, fingerprint
from detaug.demo import load_template
from detaug.transforms import Ghosting, GibbsNoise, Motion
from detaug.transforms.building.affine import rotation
from detaug.transforms.mri.k_space import extended_length, filter_axis
from tests.support.transforms.errors import largest_error, root_mean_square_error
from tests.support.transforms.generators import noise

#: One voxel, powers of 2, mixed factors, primes, nnU-Net's enlarged patches, the MNI grid.
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 30, 31, 37, 64, 66, 100, 127, 193, 205, 229, 249, 1009)


def to_k_space(volume: np.ndarray, axis: int) -> np.ndarray:
    """Return a volume's frequencies along an axis in float64, the zero in the middle."""
    frequencies = np.fft.fft(volume.astype(np.float64), axis=axis)
    return np.fft.fftshift(frequencies, axes=axis)


def from_k_space(k_space: np.ndarray, axis: int) -> np.ndarray:
    """Return the volume of the frequencies along an axis."""
    frequencies = np.fft.ifftshift(k_space, axes=axis)
    return np.fft.ifft(frequencies, axis=axis).real


def exactly_filtered(volumes: np.ndarray, axis: int, gains: np.ndarray) -> np.ndarray:
    """Return the sum of the volumes, each filtered with its own gains."""
    along_axis = [1, 1, 1]
    along_axis[axis] = -1
    total = np.zeros(volumes.shape[1:], np.complex128)
    for volume, gain in zip(volumes, gains, strict=True):
        total += to_k_space(volume, axis) * gain.reshape(along_axis)
    return from_k_space(total, axis)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_filter_of_any_length_is_the_formula_in_float64(n: int, axis: int) -> None:
    rng = np.random.default_rng(n)
    shape = {0: (n, 5, 3), 1: (3, n, 70), 2: (2, 37, n)}[axis]
    volumes = rng.standard_normal((2, *shape)).astype(np.float32)
    gains = rng.uniform(-1, 1, (2, n))
    exact = exactly_filtered(volumes, axis, gains)
    filtered = filter_axis(volumes, axis, gains)
    assert largest_error(filtered, exact) < 2e-6
    assert root_mean_square_error(filtered, exact) < 2e-7


class DoublingBackend:
    """A backend for `scipy.fft` whose transforms are twice as large as they should be."""

    __ua_domain__ = "numpy.scipy.fft"

    @staticmethod
    def __ua_function__(method: Any, args: Any, kwargs: Any) -> Any:
        with scipy.fft.set_backend("scipy", only=True):
            return 2 * method(*args, **kwargs)


@pytest.mark.parametrize("transform", [Ghosting(), GibbsNoise((0.3, 0.5))])
def test_another_backend_of_scipys_transforms_is_not_used(transform: Any) -> None:
    image = noise((1, 12, 10, 9))
    params = transform.sample(np.random.default_rng(0), {"image": image.shape})
    usual = fingerprint(transform.apply({"image": image}, params))
    with scipy.fft.set_backend(DoublingBackend):
        assert np.allclose(scipy.fft.fft([1.0, 0.0]), 2)
        assert fingerprint(transform.apply({"image": image}, params)) == usual


#: Length of an axis -> its extended length.
EXTENDED_LENGTHS = {
    1: 1,
    2: 3,
    7: 8,
    8: 9,
    24: 27,
    61: 72,
    96: 108,
    127: 144,
    128: 144,
    193: 225,
    512: 576,
}


@pytest.mark.parametrize(("length", "extended"), EXTENDED_LENGTHS.items())
def test_an_extended_axis_is_an_eighth_longer_and_of_small_factors(
    length: int, extended: int
) -> None:
    assert extended_length(length) == extended


def extended(volume: np.ndarray, axis: int) -> np.ndarray:
    """Return a volume extended along an axis, plane by plane, as it is before its transform.

    The added planes are a mirror image of the end that fades into one of the start.
    """
    planes = list(np.moveaxis(volume.astype(np.float64), axis, 0))
    length = len(planes)
    num_added = extended_length(length) - length
    for step in range(num_added):
        part = (step + 1) / (num_added + 1)
        share = part**2 * (3 - 2 * part)
        from_end = planes[length - 1 - step]
        from_start = planes[num_added - 1 - step]
        planes.append((1 - share) * from_end + share * from_start)
    return np.moveaxis(np.array(planes), 0, axis)


def cropped(volume: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the part of an extended volume that is the image."""
    return volume[tuple(slice(length) for length in shape)]


@pytest.mark.parametrize("alpha", [0.05, 0.4, 0.8, 0.97])
@pytest.mark.parametrize("shape", [(24, 20, 28), (17, 9, 33), (31, 30), (7, 1, 12)])
def test_gibbs_ringing_is_the_formula_in_float64(shape: tuple[int, ...], alpha: float) -> None:
    image = noise((1, *shape))
    whole = image[0]
    for axis in range(len(shape)):
        whole = extended(whole, axis)
    k_space = np.fft.fftshift(np.fft.fftn(whole))
    square = np.zeros(whole.shape)
    for axis, index in enumerate(np.indices(whole.shape)):
        middle = (whole.shape[axis] - 1) / 2
        distance = (index - middle) * shape[axis] / whole.shape[axis]
        square += distance**2
    radius = (1 - alpha) * max(shape) / math.sqrt(2)
    k_space[np.sqrt(square) > radius] = 0
    exact = np.fft.ifftn(np.fft.ifftshift(k_space)).real
    params = {"apply_to_channel": [0], "alphas": [alpha]}
    result = GibbsNoise().apply({"image": image}, params)["image"][0]
    assert largest_error(result, cropped(exact, shape)) < 1e-5


def moved(image: np.ndarray, angles: Any, translation: Any) -> np.ndarray:
    """Return the image rotated about its middle and shifted, in float64."""
    middle = (np.array(image.shape) - 1) / 2
    matrix = np.array(rotation(angles))
    offset = middle + translation - matrix @ middle
    return affine_transform(image.astype(np.float64), matrix, offset, order=1, mode="nearest")


def positions_in_order(positions: list[np.ndarray], times: list[float]) -> list[np.ndarray]:
    """Return the positions in the order of the parts of k-space that are acquired in them.

    The part with the middle is acquired in the image's own position, and the first part in the one
    that would have been there.
    """
    num_before_middle = sum(time <= 0.5 for time in times)
    ordered = list(positions)
    ordered[0] = positions[num_before_middle]
    ordered[num_before_middle] = positions[0]
    return ordered


@pytest.mark.parametrize("shape", [(24, 20, 28), (17, 9, 33), (31, 30), (9, 70)])
@pytest.mark.parametrize("seed", range(4))
def test_motion_is_the_formula_in_float64(shape: tuple[int, ...], seed: int) -> None:
    image = noise((1, *shape))
    transform = Motion((-0.5, 0.5), (-8, 8), 3, axes=range(len(shape)))
    params = transform.sample(np.random.default_rng(seed), {"image": image.shape})
    (motion,) = params["motions"]
    axis = motion["axis"]
    positions = [extended(image[0], axis)]
    for angles, translation in zip(motion["rotations"], motion["translations"], strict=True):
        positions.append(extended(moved(image[0], angles, translation), axis))
    length = positions[0].shape[axis]
    ends = [0, *(int(length * time) for time in motion["times"]), length]
    k_space = np.empty(positions[0].shape, complex)
    planes = np.moveaxis(k_space, axis, 0)
    for number, position in enumerate(positions_in_order(positions, motion["times"])):
        part = slice(ends[number], ends[number + 1])
        planes[part] = np.moveaxis(to_k_space(position, axis), axis, 0)[part]
    exact = from_k_space(k_space, axis)
    result = transform.apply({"image": image}, params)["image"][0]
    assert largest_error(result, cropped(exact, shape)) < 5e-6


def frame(original: np.ndarray, result: np.ndarray, edge: int) -> float:
    """Return the mean change in the outer voxels of a patch divided by that of the inner ones."""
    change = np.abs(result - original)
    inside = change[edge:-edge, edge:-edge, edge:-edge]
    outer = (change.sum() - inside.sum()) / (change.size - inside.size)
    return float(outer / inside.mean())


def mean_frames(transform: Any, head: np.ndarray, size: int, edge: int) -> tuple[float, float]:
    """Return the mean frames of 24 transformed patches and of patches of the transformed head.

    Both have the same params.
    """
    of_patches = []
    of_heads = []
    for number in range(24):
        rng = SeedTree(3).generator(0, number)
        starts = [int(rng.random() * (length - size + 1)) for length in head.shape]
        within = tuple(slice(start, start + size) for start in starts)
        patch = np.ascontiguousarray(head[within])
        params = transform.sample(rng, {"image": (1, size, size, size)})
        (alone,) = transform.apply({"image": patch[None]}, params)["image"]
        (whole,) = transform.apply({"image": head[None]}, params)["image"]
        of_patches.append(frame(patch, alone, edge))
        of_heads.append(frame(patch, whole[within], edge))
    return float(np.mean(of_patches)), float(np.mean(of_heads))


@pytest.mark.skipif(find_spec("nilearn") is None, reason="nilearn is not installed")
@pytest.mark.parametrize("name", ["Motion", "GibbsNoise"])
@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_no_frame_is_drawn_around_a_patch(name: str, step: int) -> None:
    head = np.ascontiguousarray(load_template().image[::step, ::step, ::step], np.float32)
    reach = 10 / step
    transforms = {"Motion": Motion(translation=(-reach, reach)), "GibbsNoise": GibbsNoise()}
    of_patches, of_heads = mean_frames(transforms[name], head, 96 // step, 12 // step)
    assert of_patches <= 1.15 * of_heads
