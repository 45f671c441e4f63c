"""A toy data set as nnU-Net leaves one after planning and preprocessing.

It is written at once in nnU-Net's own formats, because planning takes a minute: no image file is
read or written.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.children import Send, result_in_child
from benchmarks.gpu.findings import Bench

#: nnU-Net's folders below a data set's root, by the variables that name them.
FOLDERS = {
    "nnUNet_raw": "raw",
    "nnUNet_preprocessed": "preprocessed",
    "nnUNet_results": "results",
}
DATASET = "Dataset001_Toy"
IDENTIFIER = "nnUNetPlans_toy"
CASES = 4

#: Places of the label that the loader may centre a patch on, of each case.
MOST_PLACES = 10_000


@dataclass(frozen=True)
class Plan:
    """One configuration of nnU-Net's plans.

    Attributes:
        patch: voxels, of three or two axes.
        batch_size: samples.
        features: of the network's stages, three at least; each after the first halves the
            resolution. (With two, nnU-Net's deep supervision has no output with a weight.)
        case_shape: voxels of every case, always of three axes.
    """

    patch: tuple[int, ...]
    batch_size: int
    features: tuple[int, ...]
    case_shape: tuple[int, int, int]

    @property
    def configuration(self) -> str:
        """nnU-Net's name of it."""
        return "2d" if len(self.patch) == 2 else "3d_fullres"


#: nnU-Net's default for 3-D: the patch and the network of its references.
DEFAULT_3D = Plan((128, 128, 128), 2, (32, 64, 128, 256, 320, 320), (224, 224, 224))
DEFAULT_2D = Plan((512, 512), 12, (32, 64, 128, 256, 512, 512, 512, 512), (16, 704, 704))

#: Large enough for a GPU's usual algorithms, small enough for many trainings.
SMALL_3D = Plan((64, 64, 64), 2, (32, 64, 128, 256), (96, 96, 96))
SMALL_2D = Plan((128, 128), 8, (32, 64, 128, 256), (16, 192, 192))

#: For a CPU.
TINY_3D = Plan((16, 16, 16), 2, (4, 8, 8), (32, 32, 32))
TINY_2D = Plan((32, 32), 2, (4, 8, 8), (8, 48, 48))


def use_folders(root: Path) -> None:
    """Have nnU-Net keep everything below this root, in this process."""
    for variable, folder in FOLDERS.items():
        os.environ[variable] = str(root / folder)


def dataset_of(bench: Bench, plan: Plan, name: str) -> Path:
    """Write a data set in a child, since compressing starts threads, and return its root."""
    root = bench.folder / name
    log = bench.folder / "data.txt"
    result_in_child(write_dataset, root, plan, log=log, seconds=bench.seconds_left)
    return root


def write_dataset(send: Send, root: Path, plan: Plan) -> None:
    """Write a data set of one configuration below an empty root, and send its name."""
    for below in FOLDERS.values():
        (root / below).mkdir(parents=True)
    folder = root / "preprocessed" / DATASET
    (folder / IDENTIFIER).mkdir(parents=True)
    (folder / "gt_segmentations").mkdir()
    names = [f"toy_{number:03d}" for number in range(CASES)]
    for number, name in enumerate(names):
        _write_case(folder, name, plan, np.random.default_rng(number))
    files: dict[str, Any] = {
        "nnUNetPlans": _plans(plan),
        "dataset": _description(),
        "dataset_fingerprint": {},
        "splits_final": [{"train": names[:-1], "val": names[-1:]}],
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    send(DATASET)


def _write_case(folder: Path, name: str, plan: Plan, rng: np.random.Generator) -> None:
    from nnunetv2.training.dataloading.nnunet_dataset import (
        comp_blosc2_params,
        nnUNetDatasetBlosc2,
    )

    image = _waves(plan.case_shape, rng)
    labels = (image > 0.5).astype(np.int16)
    image += 0.3 * rng.standard_normal(plan.case_shape, dtype=np.float32)
    # Twelve bits, as scanners have them: files are then as small as those of real images.
    image = np.round(image * 512) / 512
    places = np.argwhere(labels[None] == 1)
    if len(places) > MOST_PLACES:
        places = rng.choice(places, MOST_PLACES, replace=False)
    properties = {
        "spacing": [1.0, 1.0, 1.0],
        "shape_before_cropping": plan.case_shape,
        "bbox_used_for_cropping": [[0, extent] for extent in plan.case_shape],
        "shape_after_cropping_and_before_resampling": plan.case_shape,
        "class_locations": {1: places},
    }
    blocks, chunks = comp_blosc2_params((1, *plan.case_shape), plan.patch)
    nnUNetDatasetBlosc2.save_case(
        image[None],
        labels[None],
        properties,
        str(folder / IDENTIFIER / name),
        chunks=chunks,
        blocks=blocks,
        clevel=1,
    )
    with (folder / IDENTIFIER / f"{name}.pkl").open("wb") as file:
        pickle.dump(properties, file)
    (folder / "gt_segmentations" / f"{name}.nii.gz").touch()


def _waves(shape: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Return a smooth image, float32 between -1 and 1: a product of waves along the axes."""
    image = np.ones(shape, np.float32)
    for axis, extent in enumerate(shape):
        # In voxels.
        wave_length = rng.uniform(16, 32)
        phase = rng.uniform(0, 2 * np.pi)
        wave = np.cos(2 * np.pi * np.arange(extent) / wave_length + phase)
        image *= wave.astype(np.float32).reshape([-1 if n == axis else 1 for n in range(3)])
    return image


def _description() -> dict[str, Any]:
    return {
        "channel_names": {"0": "waves"},
        "labels": {"background": 0, "crest": 1},
        "numTraining": CASES,
        "file_ending": ".nii.gz",
    }


def _plans(plan: Plan) -> dict[str, Any]:
    return {
        "dataset_name": DATASET,
        "plans_name": "nnUNetPlans",
        "original_median_spacing_after_transp": [1.0, 1.0, 1.0],
        "original_median_shape_after_transp": list(plan.case_shape),
        "image_reader_writer": "NibabelIO",
        "transpose_forward": [0, 1, 2],
        "transpose_backward": [0, 1, 2],
        "configurations": {plan.configuration: _configuration(plan)},
        "experiment_planner_used": "ExperimentPlanner",
        "label_manager": "LabelManager",
        "foreground_intensity_properties_per_channel": {},
    }


def _configuration(plan: Plan) -> dict[str, Any]:
    axes = len(plan.patch)
    return {
        "data_identifier": IDENTIFIER,
        "preprocessor_name": "DefaultPreprocessor",
        "batch_size": plan.batch_size,
        "patch_size": list(plan.patch),
        "median_image_size_in_voxels": list(plan.case_shape[-axes:]),
        "spacing": [1.0] * axes,
        "normalization_schemes": ["ZScoreNormalization"],
        "use_mask_for_norm": [False],
        **_resampling(),
        "architecture": _architecture(plan),
        "batch_dice": axes == 2,
    }


def _resampling() -> dict[str, Any]:
    """Return entries that plans must have, and that no training uses."""
    orders = {"data": (False, 3), "seg": (True, 1), "probabilities": (False, 1)}
    entries: dict[str, Any] = {}
    for name, (is_seg, order) in orders.items():
        entries[f"resampling_fn_{name}"] = "resample_data_or_seg_to_shape"
        entries[f"resampling_fn_{name}_kwargs"] = {
            "is_seg": is_seg,
            "order": order,
            "order_z": 0,
            "force_separate_z": None,
        }
    return entries


def _architecture(plan: Plan) -> dict[str, Any]:
    """Return nnU-Net's plain U-Net."""
    axes = len(plan.patch)
    stages = len(plan.features)
    return {
        "network_class_name": "dynamic_network_architectures.architectures.unet.PlainConvUNet",
        "arch_kwargs": {
            "n_stages": stages,
            "features_per_stage": list(plan.features),
            "conv_op": f"torch.nn.modules.conv.Conv{axes}d",
            "kernel_sizes": [[3] * axes] * stages,
            "strides": [[1] * axes, *[[2] * axes] * (stages - 1)],
            "n_conv_per_stage": [2] * stages,
            "n_conv_per_stage_decoder": [2] * (stages - 1),
            "conv_bias": True,
            "norm_op": f"torch.nn.modules.instancenorm.InstanceNorm{axes}d",
            "norm_op_kwargs": {"eps": 1e-05, "affine": True},
            "dropout_op": None,
            "dropout_op_kwargs": None,
            "nonlin": "torch.nn.LeakyReLU",
            "nonlin_kwargs": {"inplace": True},
        },
        "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
    }
