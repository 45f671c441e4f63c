"""Small nnU-Net data sets of real MRI: made by detaug's demo, planned and preprocessed by nnU-Net,
of every kind that its loader treats in its own way.

The planned networks are made narrow (features per stage), so that a training takes seconds on a
CPU; nothing else about nnU-Net's plans changes.
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

#: The name of the plans with the residual-encoder U-Net, which every data set has besides nnU-Net's
#: default ones.
RESIDUAL_ENCODER = "nnUNetResEncUNetPlans"
#: Of the data set of scribbles: its labels, and how many voxels along axis 1 are annotated.
SCRIBBLED, ANNOTATED = {"background": 0, "brain": [1, 2], "white": 2, "ignore": 3}, 24


@dataclass(frozen=True)
class Kind:
    """One kind of data set.

    Attributes:
        number: nnU-Net's.
        crop: voxels of each case.
        configurations: that are preprocessed.
        change: what is done to the raw data set before nnU-Net sees it.
        plan: what is done to nnU-Net's plans.
    """

    number: int
    crop: tuple[int, int, int] = (28, 28, 28)
    configurations: tuple[str, ...] = ("3d_fullres",)
    change: Callable[[Path], None] = lambda folder: None
    plan: Callable[[dict[str, Any]], None] = lambda plans: None

    @property
    def name(self) -> str:
        return f"Dataset{self.number:03d}_MNI152"


def _describe(folder: Path, **changes: Any) -> None:
    file = folder / "dataset.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def _flat(folder: Path, spacing: float = 6.0) -> None:
    """Slices so many times as far apart as voxels within them."""
    for file in sorted(folder.glob("*/*.nii.gz")):
        image = nibabel.load(file)
        # nnU-Net's first axis is the last one of the file
        data = np.asarray(image.dataobj)
        nibabel.save(nibabel.Nifti1Image(data, np.diag([1.0, 1.0, spacing, 1.0])), file)


def _two_channels_and_regions(folder: Path) -> None:
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
    """A part of every case is without annotation."""
    for file in sorted((folder / "labelsTr").glob("*.nii.gz")):
        image = nibabel.load(file)
        labels = np.asarray(image.dataobj).astype(np.uint8).copy()
        labels[part] = 3
        nibabel.save(nibabel.Nifti1Image(labels, image.affine), file)


def _ignored_slices(folder: Path) -> None:
    _ignored(folder, (slice(None), slice(None), slice(None, None, 2)))
    _describe(folder, labels={"background": 0, "grey_matter": 1, "white_matter": 2, "ignore": 3})


def _scribbles(folder: Path) -> None:
    """Regions, slices 3 mm apart, and only the front is annotated."""
    _flat(folder, 3.0)
    _ignored(folder, (slice(None), slice(ANNOTATED, None)))
    _describe(folder, labels=SCRIBBLED, regions_class_order=[1, 2])


def _narrow(plans: dict[str, Any]) -> None:
    for configuration in plans["configurations"].values():
        if "architecture" in configuration:
            arguments = configuration["architecture"]["arch_kwargs"]
            arguments["features_per_stage"] = [
                4 * 2**stage for stage in range(arguments["n_stages"])
            ]
        if "batch_size" in configuration:
            configuration["batch_size"] = 2


def _residual_encoder(plans: dict[str, Any]) -> dict[str, Any]:
    """The same plans with nnU-Net's residual-encoder U-Net, as its ResEnc planners write them."""
    changed: dict[str, Any] = json.loads(json.dumps(plans))
    changed["plans_name"] = RESIDUAL_ENCODER
    for configuration in changed["configurations"].values():
        if "architecture" in configuration:
            architecture = configuration["architecture"]
            architecture["network_class_name"] = (
                "dynamic_network_architectures.architectures.unet.ResidualEncoderUNet"
            )
            arguments = architecture["arch_kwargs"]
            del arguments["n_conv_per_stage"]
            arguments["n_blocks_per_stage"] = [1, 3, 4, 6, 6, 6][: arguments["n_stages"]]
            arguments["n_conv_per_stage_decoder"] = [1] * (arguments["n_stages"] - 1)
    return changed


def _with_a_cascade(plans: dict[str, Any]) -> None:
    """As nnU-Net plans it for cases that are larger than a patch."""
    full = plans["configurations"]["3d_fullres"]
    plans["configurations"]["3d_lowres"] = {
        "inherits_from": "3d_fullres",
        "data_identifier": "nnUNetPlans_3d_lowres",
        "spacing": [1.4 * each for each in full["spacing"]],
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
    """Five crops of the template, evenly along the diagonal of the brain's box."""
    template = load_template()
    for case in range(5):
        starts = [
            int((there - size) * case / 4)
            for there, size in zip(template.image.shape, shape, strict=True)
        ]
        box = tuple(slice(start, start + size) for start, size in zip(starts, shape, strict=True))
        yield f"brain_{case:03d}", [template.image[box]], template.labels[box].astype(np.uint8)


@contextmanager
def little_work() -> Iterator[None]:
    """Have nnU-Net use threads, and read few intensities, inside the block.

    For five small images it would start a dozen processes at every step, some of which import torch
    and nnU-Net for seconds, and draw 100 million intensities for statistics that only images of CT
    are normalised by.
    """
    # Imported here: nnU-Net before 2.8 reads its folders' names once.
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


def prepare(root: Path, kind: str) -> Kind:
    """Make, plan and preprocess a data set below `root`. nnU-Net's folders are ``raw`` and
    ``preprocessed`` there.
    """
    made = KINDS[kind]
    with nnunet_folders(root), little_work():
        from nnunetv2.experiment_planning import plan_and_preprocess_api as nnunet

        folder = root / "raw" / made.name
        write_raw_dataset(folder, _crops(made.crop), ("grey_matter", "white_matter"))
        made.change(folder)
        plan_and_preprocess(made.number, ())
        file = root / "preprocessed" / made.name / "nnUNetPlans.json"
        plans = json.loads(file.read_text())
        _narrow(plans)
        made.plan(plans)
        file.write_text(json.dumps(plans, indent=4))
        file.with_name(f"{RESIDUAL_ENCODER}.json").write_text(
            json.dumps(_residual_encoder(plans), indent=4)
        )
        nnunet.preprocess(
            [made.number], "nnUNetPlans", made.configurations, [1] * len(made.configurations), False
        )
    return made


def main() -> None:
    """Prepare the data set that the command line names: ROOT KIND."""
    torch.set_num_threads(1)
    prepare(Path(sys.argv[1]), sys.argv[2])
