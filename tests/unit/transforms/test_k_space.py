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
from tests.support.transforms.generators import noise

# One voxel, powers of 2, mixed factors, primes, nnU-Net's enlarged patches, the MNI grid.
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 30, 31, 37, 64, 66, 100, 127, 193, 205, 229, 249, 1009)


@pytest.mark.parametrize("n", LENGTHS)
def test_a_filter_of_any_length_is_the_formula_in_float64(n: int) -> None:
    rng = np.random.default_rng(n)
    for shape, axis in (((n, 5, 3), 0), ((3, n, 70), 1), ((2, 37, n), 2)):
        volumes = rng.standard_normal((2, *shape)).astype(np.float32)
        gains = rng.uniform(-1, 1, (2, n))
        along_axis = [1, 1, 1]
        along_axis[axis] = n
        total = np.zeros(shape, np.complex128)
        for volume, gain in zip(volumes, gains, strict=True):
            k_space = np.fft.fft(volume.astype(np.float64), axis=axis)
            total += np.fft.fftshift(k_space, axes=axis) * gain.reshape(along_axis)
        exact = np.fft.ifft(np.fft.ifftshift(total, axes=axis), axis=axis).real
        filtered = filter_axis(volumes, axis, gains)
        assert np.abs(filtered - exact).max() < 2e-6
        assert np.sqrt(np.mean((filtered - exact) ** 2)) < 2e-7


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


def test_an_extended_axis_is_an_eighth_longer_and_of_small_factors() -> None:
    lengths = {n: extended_length(n) for n in (1, 2, 7, 8, 24, 61, 96, 127, 128, 193, 512)}
    assert lengths == {
        1: 1, 2: 3, 7: 8, 8: 9, 24: 27, 61: 72, 96: 108, 127: 144, 128: 144, 193: 225, 512: 576,
    }  # fmt: skip


def extended(volume: np.ndarray, axis: int) -> np.ndarray:
    """Return what k-space is made of, plane by plane: both ends mirrored, fading into each other."""
    planes = list(np.moveaxis(volume.astype(np.float64), axis, 0))
    n = len(planes)
    added = extended_length(n) - n
    for step in range(added):
        part = (step + 1) / (added + 1)
        share = part**2 * (3 - 2 * part)
        planes.append((1 - share) * planes[n - 1 - step] + share * planes[added - 1 - step])
    return np.moveaxis(np.array(planes), 0, axis)


@pytest.mark.parametrize("alpha", [0.05, 0.4, 0.8, 0.97])
@pytest.mark.parametrize("shape", [(24, 20, 28), (17, 9, 33), (31, 30), (7, 1, 12)])
def test_gibbs_ringing_is_the_formula_in_float64(shape: tuple[int, ...], alpha: float) -> None:
    image = noise((1, *shape))
    whole = image[0]
    for axis in range(len(shape)):
        whole = extended(whole, axis)
    k_space = np.fft.fftshift(np.fft.fftn(whole))
    places = np.indices(whole.shape)
    squares = np.zeros(whole.shape)
    for place, n, length in zip(places, shape, whole.shape, strict=True):
        squares += ((place - (length - 1) / 2) * n / length) ** 2
    k_space[np.sqrt(squares) > (1 - alpha) * max(shape) / math.sqrt(2)] = 0
    expected = np.fft.ifftn(np.fft.ifftshift(k_space)).real[tuple(map(slice, shape))]
    params = {"apply_to_channel": [0], "alphas": [alpha]}
    result = GibbsNoise().apply({"image": image}, params)["image"][0]
    assert np.abs(result - expected).max() < 1e-5


@pytest.mark.parametrize("shape", [(24, 20, 28), (17, 9, 33), (31, 30), (9, 70)])
@pytest.mark.parametrize("seed", range(4))
def test_motion_is_the_formula_in_float64(shape: tuple[int, ...], seed: int) -> None:
    image = noise((1, *shape))
    transform = Motion((-0.5, 0.5), (-8, 8), 3, axes=range(len(shape)))
    params = transform.sample(np.random.default_rng(seed), {"image": image.shape})
    motion = params["motions"][0]
    axis, middle = motion["axis"], (np.array(shape) - 1) / 2
    positions = [extended(image[0], axis)]
    for angles, translation in zip(motion["rotations"], motion["translations"], strict=True):
        matrix = np.array(rotation(angles))
        offset = middle + translation - matrix @ middle
        moved = affine_transform(
            image[0].astype(np.float64), matrix, offset, order=1, mode="nearest"
        )
        positions.append(extended(moved, axis))
    # The stretch that holds the middle is the image's own, the movement before it has the first.
    length = positions[0].shape[axis]
    ends = [0, *(int(length * time) for time in motion["times"]), length]
    order = [0, 1, 2, 3]
    middle_stretch = next(k for k in range(4) if k == 3 or motion["times"][k] > 0.5)
    order[0], order[middle_stretch] = order[middle_stretch], order[0]
    k_space = np.empty(positions[0].shape, complex)
    planes = np.moveaxis(k_space, axis, 0)
    for position, start, stop in zip(order, ends[:-1], ends[1:], strict=True):
        own = np.fft.fftshift(np.fft.fft(positions[position], axis=axis), axes=axis)
        planes[start:stop] = np.moveaxis(own, axis, 0)[start:stop]
    whole = np.fft.ifft(np.fft.ifftshift(k_space, axes=axis), axis=axis).real
    expected = whole[tuple(map(slice, shape))]
    result = transform.apply({"image": image}, params)["image"][0]
    assert np.abs(result - expected).max() < 5e-6


def frame(before: np.ndarray, after: np.ndarray, edge: int) -> float:
    """Return the mean change in the outer voxels of a patch over the mean change inside."""
    change = np.abs(after - before)
    inside = change[edge:-edge, edge:-edge, edge:-edge]
    outer = (change.sum() - inside.sum()) / (change.size - inside.size)
    return float(outer / inside.mean())


def mean_frames(transform: Any, head: np.ndarray, size: int, edge: int) -> tuple[float, float]:
    """Return the mean frames of 24 patches, and of the same patches of the head, same params."""
    of_patches, of_heads = [], []
    for number in range(24):
        rng = SeedTree(3).generator(0, number)
        starts = [int(rng.random() * (n - size + 1)) for n in head.shape]
        within = tuple(slice(start, start + size) for start in starts)
        patch = np.ascontiguousarray(head[within])
        params = transform.sample(rng, {"image": (1, size, size, size)})
        alone = transform.apply({"image": patch[None]}, params)["image"][0]
        whole = transform.apply({"image": head[None]}, params)["image"][0]
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
