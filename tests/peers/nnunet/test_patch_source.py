"""nnU-Net's cases read in part: the same patches as nnU-Net's own loader cuts, and the same bytes
from any process.
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
FINAL, PATCH = (12, 14, 16), (17, 20, 23)
SHAPES = {"small": (9, 30, 22), "case": (28, 25, 31), "large": (40, 33, 29)}


def case(name: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    rng = np.random.default_rng(len(name))
    image = (
        rng.normal(size=(2, *SHAPES[name])).round().astype(np.float32)
    )  # which a flipped byte damages
    labels = rng.integers(0, 3, (1, *SHAPES[name])).astype(np.int8)
    places = {label: np.argwhere(labels == label)[::7] for label in (1, 2)}
    return image, labels, {"class_locations": places}


def write_cases(path: Path) -> None:
    (path / "previous").mkdir()
    for name in SHAPES:
        image, labels, properties = case(name)
        nnUNetDatasetBlosc2.save_case(
            image, labels, properties, str(path / name), (1, 8, 16, 16), (1, 8, 8, 8)
        )
        nnUNetDatasetBlosc2.save_seg(np.roll(labels[0], 1, axis=0), str(path / "previous" / name))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cases")
    write_cases(path)
    return path


def stock_dataset(folder: Path, previous: bool = False) -> Any:
    return nnUNetDatasetBlosc2(str(folder), None, str(folder / "previous") if previous else None)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("previous", [False, True])
def test_a_patch_has_the_voxels_that_nnunet_cuts(folder: Path, name: str, previous: bool) -> None:
    source = PatchSource(stock_dataset(folder, previous), 2, PATCH, FINAL, LABELS)
    image, labels, before, _ = stock_dataset(folder, previous).load_case(name)
    for start in [(0, 0, 0), (-4, -3, -5), (3, 5, 6), (-8, 14, 12), (20, 11, -2)]:
        box = [[a, a + n] for a, n in zip(start, PATCH, strict=True)]
        if any(stop <= 0 or a >= n for (a, stop), n in zip(box, image.shape[1:], strict=True)):
            continue  # nnU-Net never cuts beside a case
        volumes = source.patch(source.cases.open(name), start)
        ours = {key: volume.read_all() for key, volume in volumes.items()}
        assert np.array_equal(ours["image"], crop_and_pad_nd(image, box, 0))
        theirs = [crop_and_pad_nd(labels, box, -1, cast_cropped_to=np.int16)]
        if previous:
            theirs.append(crop_and_pad_nd(before, box, -1, cast_cropped_to=np.int16)[None])
        assert ours["segmentation"].dtype == np.int16
        assert np.array_equal(ours["segmentation"], np.concatenate(theirs))
        low, high = (2, 0, 5), (9, 20, 11)
        part = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
        read = volumes["image"].read(low, high)
        assert np.array_equal(read, ours["image"][(slice(None), *part)])
        read[...] = 7  # it is ours to change
        assert np.array_equal(volumes["image"].read(low, high), ours["image"][(slice(None), *part)])

        def between(
            first: int, last: int, low: Any = low, high: Any = high
        ) -> tuple[Sequence[int], Sequence[int]]:
            return (first, *low[1:]), (last, *high[1:])

        for key, volume in volumes.items():  # the memory lent is full of the box before
            assert np.array_equal(volume.lend(low, high, between), ours[key][(slice(None), *part)])


def test_places_that_preprocessing_did_not_collect_are_an_error_with_the_case(
    folder: Path, tmp_path: Path
) -> None:
    with_ignore_label = LabelManager({"background": 0, "one": 1, "two": 2, "ignore": 3}, None)
    source = PatchSource(CaseFolder(folder, ["small"]), 2, PATCH, FINAL, with_ignore_label)
    again = r"preprocess it again \(nnUNetv2_preprocess\)"
    with pytest.raises(ValueError, match=rf"case small: .*\(-1, 0, 1, 2\): .*{again}"):
        source.sample(np.random.default_rng(0))

    image, labels, _ = case("small")
    nnUNetDatasetBlosc2.save_case(
        image, labels, {}, str(tmp_path / "small"), (1, 8, 16, 16), (1, 8, 8, 8)
    )
    source = PatchSource(tmp_path, 2, PATCH, FINAL, LABELS, 1.0)
    with pytest.raises(ValueError, match=f"case small: .*no class_locations.*{again}"):
        source.sample(np.random.default_rng(0), 1)


def test_any_number_of_processes_gives_the_same_batches(folder: Path) -> None:
    pipeline = training_transforms(
        FINAL, (-0.5, 0.5), [[1, 1, 1], [0.5, 0.5, 0.5]], (0, 1, 2), False
    )

    def batches(processes: int) -> list[str]:
        source = PatchSource(folder, 2, PATCH, FINAL, LABELS, 0.33, transforms=pipeline)
        with DeterministicAugmenter(source, None, processes, seed=4) as augmenter:
            made = [next(augmenter) for _ in range(6)]
        assert made[0]["data"].shape == (2, 2, *FINAL)
        assert isinstance(made[0]["data"], torch.Tensor)
        assert [level.shape[2:] for level in made[0]["target"]] == [FINAL, (6, 7, 8)]
        return [fingerprint(batch) for batch in made]

    expected = batches(0)
    assert len(set(expected)) == 6
    assert batches(2) == expected


class OneVoxelLess:
    """Crops the second sample that it sees."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, image: torch.Tensor, segmentation: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        return {"image": image[..., 1:] if self.calls == 2 else image, "segmentation": segmentation}


def test_transforms_whose_samples_differ_in_shape_are_named(folder: Path) -> None:
    source = PatchSource(folder, 3, PATCH, FINAL, LABELS, transforms=OneVoxelLess())
    with (
        DeterministicAugmenter(source, None, 0, seed=1) as augmenter,
        pytest.raises(ValueError, match=r"sample 1 of a batch is \(2, 17, 20, 22\)"),
    ):
        next(augmenter)


@pytest.mark.parametrize("ending", [".b2nd", "_seg.b2nd", ".pkl"])
def test_a_flipped_byte_is_named_with_case_and_file(tmp_path: Path, ending: str) -> None:
    write_cases(tmp_path)
    file = tmp_path / f"large{ending}"
    whole, named = file.read_bytes(), 0
    size = len(whole)
    for at in [20, 30, *range(size // 10, size, size // 30)]:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        opened.cache_clear()
        try:
            source = PatchSource(tmp_path, 1, SHAPES["large"], FINAL, LABELS)
            for volume in source.patch(source.cases.open("large"), (0, 0, 0)).values():
                volume.read_all()
        except UnreadableCase as error:
            named += f"case large: {file} cannot be read" in str(error)
    assert named


def test_missing_and_half_written_cases_are_named(tmp_path: Path) -> None:
    write_cases(tmp_path)
    CaseFolder(tmp_path).check()
    (tmp_path / "small.pkl").unlink()
    content = (tmp_path / "large.pkl").read_bytes()
    (tmp_path / "large.pkl").write_bytes(content[: len(content) // 2])
    content = (tmp_path / "case_seg.b2nd").read_bytes()
    (tmp_path / "case_seg.b2nd").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"3 of 3 cases") as error:
        CaseFolder(tmp_path).check()
    assert all(name in str(error.value) for name in SHAPES)
    with pytest.raises(ValueError, match="absent"):
        CaseFolder(tmp_path, ["case", "absent"])
    with pytest.raises(FileNotFoundError, match="nnUNetv2_preprocess"):
        CaseFolder(tmp_path / "nowhere")
