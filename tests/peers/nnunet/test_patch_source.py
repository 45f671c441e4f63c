"""`PatchSource` reads parts of nnU-Net's cases.

The patches are those that nnU-Net's own loader cuts, with the same bytes in any process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from acvl_utils.cropping_and_padding.bounding_boxes import crop_and_pad_nd
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2
from nnunetv2.utilities.label_handling.label_handling import LabelManager

from detaug import DeterministicAugmenter, fingerprint
from detaug.nnunet import training_transforms
from detaug.nnunet.loading import PatchSource
from detaug.nnunet.loading.case_files import CaseFolder, UnreadableCase, opened

LABELS = LabelManager({"background": 0, "one": 1, "two": 2}, None)
#: Shape of a patch after the transforms, and as it is cut, in voxels.
FINAL = (12, 14, 16)
PATCH = (17, 20, 23)
#: Spatial shapes of the cases, by name.
SHAPES = {"small": (9, 30, 22), "case": (28, 25, 31), "large": (40, 33, 29)}
#: Shapes of the files' chunks and blocks.
CHUNKS = (1, 8, 16, 16)
BLOCKS = (1, 8, 8, 8)


def case(name: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Return a case's image (2, D, H, W), labels (1, D, H, W) and properties."""
    rng = np.random.default_rng(len(name))
    # Whole numbers are compressed well, so that a flipped byte damages the file.
    image = rng.normal(size=(2, *SHAPES[name])).round().astype(np.float32)
    labels = rng.integers(0, 3, (1, *SHAPES[name])).astype(np.int8)
    locations = {label: np.argwhere(labels == label)[::7] for label in (1, 2)}
    return image, labels, {"class_locations": locations}


def save_case(path: Path, image: np.ndarray, labels: np.ndarray, properties: Any) -> None:
    """Write the files of a case, whose paths begin with `path`."""
    nnUNetDatasetBlosc2.save_case(image, labels, properties, str(path), CHUNKS, BLOCKS)


def write_cases(folder: Path) -> None:
    """Write all cases into a folder, and segmentations of a previous stage into "previous"."""
    (folder / "previous").mkdir()
    for name in SHAPES:
        image, labels, properties = case(name)
        save_case(folder / name, image, labels, properties)
        previous = np.roll(labels[0], 1, axis=0)
        nnUNetDatasetBlosc2.save_seg(previous, str(folder / "previous" / name))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all cases."""
    path = tmp_path_factory.mktemp("cases")
    write_cases(path)
    return path


def stock_dataset(folder: Path, previous: bool = False) -> Any:
    """Return nnU-Net's data set of a folder, with or without the previous stage."""
    previous_folder = str(folder / "previous") if previous else None
    return nnUNetDatasetBlosc2(str(folder), None, previous_folder)


def overlaps(box: list[list[int]], shape: tuple[int, ...]) -> bool:
    """Return whether a box of (start, stop) per axis has voxels of an image of this shape."""
    return all(
        stop > 0 and start < length for (start, stop), length in zip(box, shape, strict=True)
    )


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("previous", [False, True])
def test_a_patch_has_the_voxels_that_nnunet_cuts(folder: Path, name: str, previous: bool) -> None:
    source = PatchSource(stock_dataset(folder, previous), 2, PATCH, FINAL, LABELS)
    image, labels, before, _ = stock_dataset(folder, previous).load_case(name)
    low = (2, 0, 5)
    high = (9, 20, 11)
    part = (slice(None), slice(2, 9), slice(0, 20), slice(5, 11))

    def between(first: int, last: int) -> tuple[Sequence[int], Sequence[int]]:
        return (first, *low[1:]), (last, *high[1:])

    for start in [(0, 0, 0), (-4, -3, -5), (3, 5, 6), (-8, 14, 12), (20, 11, -2)]:
        box = [[first, first + length] for first, length in zip(start, PATCH, strict=True)]
        if not overlaps(box, image.shape[1:]):
            # nnU-Net never cuts outside a case.
            continue
        volumes = source.patch(source.cases.open(name), start)
        arrays = {key: volume.read_all() for key, volume in volumes.items()}
        assert np.array_equal(arrays["image"], crop_and_pad_nd(image, box, 0))

        expected = [crop_and_pad_nd(labels, box, -1, cast_cropped_to=np.int16)]
        if previous:
            expected.append(crop_and_pad_nd(before, box, -1, cast_cropped_to=np.int16)[None])
        assert arrays["segmentation"].dtype == np.int16
        assert np.array_equal(arrays["segmentation"], np.concatenate(expected))

        read = volumes["image"].read(low, high)
        assert np.array_equal(read, arrays["image"][part])
        # What was read belongs to the reader, who may change it.
        read[...] = 7
        assert np.array_equal(volumes["image"].read(low, high), arrays["image"][part])

        # The memory that is lent here still holds the previous box.
        for key, volume in volumes.items():
            assert np.array_equal(volume.lend(low, high, between), arrays[key][part])


def test_places_that_preprocessing_did_not_collect_are_an_error_with_the_case(
    folder: Path, tmp_path: Path
) -> None:
    with_ignore_label = LabelManager({"background": 0, "one": 1, "two": 2, "ignore": 3}, None)
    source = PatchSource(CaseFolder(folder, ["small"]), 2, PATCH, FINAL, with_ignore_label)
    advice = r"preprocess it again \(nnUNetv2_preprocess\)"
    with pytest.raises(ValueError, match=rf"case small: .*\(-1, 0, 1, 2\): .*{advice}"):
        source.sample(np.random.default_rng(0))

    image, labels, _ = case("small")
    save_case(tmp_path / "small", image, labels, {})
    source = PatchSource(tmp_path, 2, PATCH, FINAL, LABELS, 1.0)
    with pytest.raises(ValueError, match=f"case small: .*no class_locations.*{advice}"):
        source.sample(np.random.default_rng(0), 1)


def test_any_number_of_processes_gives_the_same_batches(folder: Path) -> None:
    scales = [[1, 1, 1], [0.5, 0.5, 0.5]]
    transforms = training_transforms(FINAL, (-0.5, 0.5), scales, (0, 1, 2), False)

    def fingerprints(num_processes: int) -> list[str]:
        source = PatchSource(folder, 2, PATCH, FINAL, LABELS, 0.33, transforms=transforms)
        with DeterministicAugmenter(source, None, num_processes, seed=4) as augmenter:
            batches = [next(augmenter) for _ in range(6)]
        first = batches[0]
        assert first["data"].shape == (2, 2, *FINAL)
        assert isinstance(first["data"], torch.Tensor)
        assert [level.shape[2:] for level in first["target"]] == [FINAL, (6, 7, 8)]
        return [fingerprint(batch) for batch in batches]

    expected = fingerprints(0)
    assert len(set(expected)) == 6
    assert fingerprints(2) == expected


class OneVoxelLess:
    """A transform that crops the second sample that it is called with."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, image: torch.Tensor, segmentation: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        if self.calls == 2:
            image = image[..., 1:]
        return {"image": image, "segmentation": segmentation}


def test_transforms_whose_samples_differ_in_shape_are_named(folder: Path) -> None:
    source = PatchSource(folder, 3, PATCH, FINAL, LABELS, transforms=OneVoxelLess())
    with (
        DeterministicAugmenter(source, None, 0, seed=1) as augmenter,
        pytest.raises(ValueError, match=r"sample 1 of a batch is \(2, 17, 20, 22\)"),
    ):
        next(augmenter)


def read_whole_case(folder: Path, name: str) -> None:
    """Read all voxels of a case."""
    opened.cache_clear()
    source = PatchSource(folder, 1, SHAPES[name], FINAL, LABELS)
    for volume in source.patch(source.cases.open(name), (0, 0, 0)).values():
        volume.read_all()


@pytest.mark.parametrize("ending", [".b2nd", "_seg.b2nd", ".pkl"])
def test_a_flipped_byte_is_named_with_case_and_file(tmp_path: Path, ending: str) -> None:
    write_cases(tmp_path)
    file = tmp_path / f"large{ending}"
    content = file.read_bytes()
    size = len(content)
    num_named = 0
    for index in [20, 30, *range(size // 10, size, size // 30)]:
        damaged = bytearray(content)
        damaged[index] ^= 0xFF
        file.write_bytes(damaged)
        try:
            read_whole_case(tmp_path, "large")
        except UnreadableCase as error:
            num_named += f"case large: {file} cannot be read" in str(error)
    assert num_named


def cut_in_half(file: Path) -> None:
    """Leave the first half of a file."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def test_missing_and_half_written_cases_are_named(tmp_path: Path) -> None:
    write_cases(tmp_path)
    CaseFolder(tmp_path).check()
    (tmp_path / "small.pkl").unlink()
    cut_in_half(tmp_path / "large.pkl")
    cut_in_half(tmp_path / "case_seg.b2nd")
    with pytest.raises(ValueError, match=r"3 of 3 cases") as error:
        CaseFolder(tmp_path).check()
    assert all(name in str(error.value) for name in SHAPES)
    with pytest.raises(ValueError, match="absent"):
        CaseFolder(tmp_path, ["case", "absent"])
    with pytest.raises(FileNotFoundError, match="nnUNetv2_preprocess"):
        CaseFolder(tmp_path / "nowhere")
