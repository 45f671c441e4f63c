"""Prepare small data sets of real MRI for nnU-Net, of all kinds that its loader distinguishes.

detaug's demo makes them; nnU-Net plans and preprocesses them. The planned networks get few features
per stage, so that a training takes seconds on a CPU; nothing else in nnU-Net's plans changes.
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.pool
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import nibabel
import numpy as np
import torch

from detaug.demo.mri import load_template
from detaug.demo.nnunet import nnunet_folders, plan_and_preprocess, write_raw_dataset

#: Name of the plans with the residual-encoder U-Net, which all data sets have in addition.
RESIDUAL_ENCODER = "nnUNetResEncUNetPlans"
#: Labels of the data set of scribbles.
SCRIBBLED = {"background": 0, "brain": [1, 2], "white": 2, "ignore": 3}
#: Number of its voxels along axis 1 that are annotated.
ANNOTATED = 24


def _change_nothing(_: Any) -> None:
    """Do nothing: the default of changes."""


@dataclass(frozen=True)
class Kind:
    """A kind of data set.

    Attributes:
        number: nnU-Net's.
        crop: shape of each case, in voxels.
        configurations: those that are preprocessed.
        change: changes the raw data set in its folder before nnU-Net reads it.
        plan: changes nnU-Net's plans.
    """

    number: int
    crop: tuple[int, int, int] = (28, 28, 28)
    configurations: tuple[str, ...] = ("3d_fullres",)
    change: Callable[[Path], None] = _change_nothing
    plan: Callable[[dict[str, Any]], None] = _change_nothing

    @property
    def name(self) -> str:
        """nnU-Net's name of the data set."""
        return f"Dataset{self.number:03d}_MNI152"


def _describe(folder: Path, **changes: Any) -> None:
    """Change entries of dataset.json."""
    file = folder / "dataset.json"
    description = json.loads(file.read_text())
    file.write_text(json.dumps({**description, **changes}))


def _flat(folder: Path, spacing: float = 6.0) -> None:
    """Make slices `spacing` times as far apart as the voxels within them."""
    # The last axis of a file is nnU-Net's first one.
    affine = np.diag([1.0, 1.0, spacing, 1.0])
    for file in sorted(folder.glob("*/*.nii.gz")):
        data = np.asarray(nibabel.load(file).dataobj)
        nibabel.save(nibabel.Nifti1Image(data, affine), file)


def _two_channels_and_regions(folder: Path) -> None:
    """Add a second channel, and describe labels as regions."""
    for file in sorted((folder / "imagesTr").glob("*_0000.nii.gz")):
        image = nibabel.load(file)
        data = np.asarray(image.dataobj)
        second = nibabel.Nifti1Image(np.gradient(data.astype(np.float32), axis=0), image.affine)
        nibabel.save(second, str(file).replace("_0000", "_0001"))
    _describe(
        folder,
        channel_names={"0": "T1", "1": "gradient"},
        labels={"background": 0, "brain": [1, 2], "white_matter": 2},
        regions_class_order=[1, 2],
    )


def _ignored(folder: Path, part: tuple[slice, ...]) -> None:
    """Give a part of every case the ignore label."""
    for file in sorted((folder / "labelsTr").glob("*.nii.gz")):
        image = nibabel.load(file)
        labels = np.asarray(image.dataobj).astype(np.uint8).copy()
        labels[part] = 3
        nibabel.save(nibabel.Nifti1Image(labels, image.affine), file)


def _ignored_slices(folder: Path) -> None:
    """Annotate every other slice only."""
    _ignored(folder, (slice(None), slice(None), slice(None, None, 2)))
    _describe(folder, labels={"background": 0, "grey_matter": 1, "white_matter": 2, "ignore": 3})


def _scribbles(folder: Path) -> None:
    """Make regions and slices 3 mm apart, and annotate only the front."""
    _flat(folder, 3.0)
    _ignored(folder, (slice(None), slice(ANNOTATED, None)))
    _describe(folder, labels=SCRIBBLED, regions_class_order=[1, 2])


def _narrow(plans: dict[str, Any]) -> None:
    """Plan few features per stage, and batches of two."""
    for configuration in plans["configurations"].values():
        if "architecture" in configuration:
            arguments = configuration["architecture"]["arch_kwargs"]
            num_stages = arguments["n_stages"]
            arguments["features_per_stage"] = [4 * 2**stage for stage in range(num_stages)]
        if "batch_size" in configuration:
            configuration["batch_size"] = 2


def _residual_encoder(plans: dict[str, Any]) -> dict[str, Any]:
    """Return plans with nnU-Net's residual-encoder U-Net, as its ResEnc planners write them."""
    changed: dict[str, Any] = json.loads(json.dumps(plans))
    changed["plans_name"] = RESIDUAL_ENCODER
    for configuration in changed["configurations"].values():
        if "architecture" not in configuration:
            continue
        architecture = configuration["architecture"]
        architecture["network_class_name"] = (
            "dynamic_network_architectures.architectures.unet.ResidualEncoderUNet"
        )
        arguments = architecture["arch_kwargs"]
        num_stages = arguments["n_stages"]
        del arguments["n_conv_per_stage"]
        arguments["n_blocks_per_stage"] = [1, 3, 4, 6, 6, 6][:num_stages]
        arguments["n_conv_per_stage_decoder"] = [1] * (num_stages - 1)
    return changed


def _with_a_cascade(plans: dict[str, Any]) -> None:
    """Plan a cascade, as nnU-Net does for cases that are larger than a patch."""
    full = plans["configurations"]["3d_fullres"]
    plans["configurations"]["3d_lowres"] = {
        "inherits_from": "3d_fullres",
        "data_identifier": "nnUNetPlans_3d_lowres",
        "spacing": [1.4 * length for length in full["spacing"]],
        "next_stage": "3d_cascade_fullres",
    }
    plans["configurations"]["3d_cascade_fullres"] = {
        "inherits_from": "3d_fullres",
        "previous_stage": "3d_lowres",
    }


KINDS = {
    "plain": Kind(1, configurations=("2d", "3d_fullres")),
    "flat": Kind(2, crop=(40, 40, 8), change=_flat),
    "regions": Kind(3, change=_two_channels_and_regions),
    "ignore": Kind(4, configurations=("2d", "3d_fullres"), change=_ignored_slices),
    "scribbles": Kind(6, crop=(36, 40, 14), configurations=("2d", "3d_fullres"), change=_scribbles),
    "cascade": Kind(5, configurations=("3d_lowres", "3d_fullres"), plan=_with_a_cascade),
}


def _crops(shape: tuple[int, ...]) -> Iterator[tuple[str, list[Any], Any]]:
    """Yield name, channels and labels of five crops along the diagonal of the template."""
    template = load_template()
    for index in range(5):
        box = []
        for length, size in zip(template.image.shape, shape, strict=True):
            start = int((length - size) * index / 4)
            box.append(slice(start, start + size))
        crop = tuple(box)
        labels = template.labels[crop].astype(np.uint8)
        yield f"brain_{index:03d}", [template.image[crop]], labels


@contextmanager
def little_work() -> Iterator[None]:
    """Let nnU-Net use threads, and read few intensities, inside the block.

    By default nnU-Net starts a dozen processes at every step, some of which import torch and
    nnU-Net for seconds. It also draws 100 million intensities for statistics that only CT images
    need.
    """
    # Imported here, since nnU-Net before 2.8 reads its folders' names only once.
    from nnunetv2.experiment_planning import plan_and_preprocess_api as planning
    from nnunetv2.utilities import utils

    class FewIntensities(planning.DatasetFingerprintExtractor):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.num_foreground_voxels_for_intensitystats = 10_000

    pool = multiprocessing.pool.ThreadPool
    context = SimpleNamespace(Pool=pool)
    with (
        mock.patch.object(multiprocessing, "get_context", return_value=context),
        mock.patch.object(utils, "Pool", pool),
        mock.patch.object(planning, "DatasetFingerprintExtractor", FewIntensities),
    ):
        yield


def prepare(root: Path, name: str) -> None:
    """Make, plan and preprocess a data set.

    Args:
        root: folder where nnU-Net's ``raw`` and ``preprocessed`` are.
        name: key of `KINDS`.
    """
    kind = KINDS[name]
    with nnunet_folders(root), little_work():
        from nnunetv2.experiment_planning import plan_and_preprocess_api as nnunet

        folder = root / "raw" / kind.name
        write_raw_dataset(folder, _crops(kind.crop), ("grey_matter", "white_matter"))
        kind.change(folder)
        plan_and_preprocess(kind.number, ())
        file = root / "preprocessed" / kind.name / "nnUNetPlans.json"
        plans = json.loads(file.read_text())
        _narrow(plans)
        kind.plan(plans)
        file.write_text(json.dumps(plans, indent=4))
        other_file = file.with_name(f"{RESIDUAL_ENCODER}.json")
        other_file.write_text(json.dumps(_residual_encoder(plans), indent=4))
        num_processes = [1] * len(kind.configurations)
        nnunet.preprocess([kind.number], "nnUNetPlans", kind.configurations, num_processes, False)


def main() -> None:
    """Prepare the data set that the command line names: ROOT KIND."""
    torch.set_num_threads(1)
    prepare(Path(sys.argv[1]), sys.argv[2])
