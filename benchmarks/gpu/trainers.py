"""nnU-Net's trainers for short runs: a toy data set, stand-ins, single steps."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.ndimage import zoom

from benchmarks.fidelity.tasks import set_network
from benchmarks.gpu.bench import Bench, Child, Finding
from detaug.nnunet.verification.settings import load_plans

STOCK = "nnUNetTrainer"
DETERMINISTIC = "nnUNetTrainerDeterministic"
DETAUG = "nnUNetTrainerDetAug"
FAST = "nnUNetTrainerDetAugFast"

DATASET = "Dataset001_Toy"
IDENTIFIER = "nnUNetPlans_toy"
CASES = 4

#: Places of the label that the loader may centre a patch on, of each case.
MOST_PLACES = 10_000

#: Packages that nnU-Net imports and that these runs do not use: no image file is read, and nothing
#: is plotted. (seaborn derives classes from matplotlib's: both are there, or neither.)
STAND_INS = (("SimpleITK",), ("matplotlib", "matplotlib.pyplot", "seaborn"))


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


#: nnU-Net's default: the patch and the network of its references.
DEFAULT_3D = Plan((128,) * 3, 2, (32, 64, 128, 256, 320, 320), (224, 224, 224))
DEFAULT_2D = Plan((512,) * 2, 12, (32, 64, 128, 256, 512, 512, 512, 512), (16, 704, 704))

#: Large enough for a GPU's usual algorithms, small enough for many trainings.
SMALL_3D = Plan((64,) * 3, 2, (32, 64, 128, 256), (96, 96, 96))
SMALL_2D = Plan((128,) * 2, 8, (32, 64, 128, 256), (16, 192, 192))

#: For a CPU.
TINY_3D = Plan((16,) * 3, 2, (4, 8, 8), (32, 32, 32))
TINY_2D = Plan((32,) * 2, 2, (4, 8, 8), (8, 48, 48))


def prepare(bench: Bench) -> None:
    """Import nnU-Net once for all children, with stand-ins for what is not installed.

    The kernels of its default pipelines are compiled, which takes a minute, if they are not yet.
    """
    put_in_stand_ins()
    importlib.import_module("nnunetv2.run.run_training")
    importlib.import_module("detaug.nnunet.trainers")
    for failure in Child(bench, "kernels", _compile_kernels).findings():
        raise RuntimeError(failure.text)


def put_in_stand_ins() -> None:
    """Put empty modules in the place of those of `STAND_INS` that are not installed."""
    for modules in STAND_INS:
        if any(find_spec(module.partition(".")[0]) is None for module in modules):
            for module in modules:
                sys.modules[module] = mock.MagicMock(__spec__=ModuleSpec(module, None))


def _compile_kernels() -> Iterator[Finding]:
    from detaug.nnunet import training_transforms

    for plan in (TINY_3D, TINY_2D):
        axes = len(plan.patch)
        scales = [[1.0] * axes, [0.5] * axes]
        training_transforms(plan.patch, (-0.5, 0.5), scales, tuple(range(axes)), False).warm_up()
    yield from ()


# --- the data set ---------------------------------------------------------------------------------


def dataset_of(bench: Bench, plan: Plan) -> Path:
    """Return the root of a data set, as nnU-Net leaves one after planning and preprocessing.

    It is written at once in nnU-Net's own formats, because planning takes a minute: no image file
    is read or written. That is done in a child, since compressing starts threads.
    """
    root = bench.folder / "x".join(map(str, (plan.configuration, *plan.patch)))
    if not root.exists():
        for failure in Child(bench, "data", write_dataset, root, plan).findings():
            raise RuntimeError(failure.text)
    return root


def write_dataset(root: Path, plan: Plan) -> Iterator[Finding]:
    """Write a data set of one configuration below `root`."""
    folder = root / "preprocessed" / DATASET
    (folder / IDENTIFIER).mkdir(parents=True)
    (folder / "gt_segmentations").mkdir()
    names = [f"toy_{number:03d}" for number in range(CASES)]
    for number, name in enumerate(names):
        _write_case(folder, name, plan, np.random.default_rng(number))
    template = json.loads(Path(__file__).with_name("plans.json").read_text())
    files = {
        "nnUNetPlans": template["plans"],
        "dataset": template["dataset"],
        "dataset_fingerprint": {},
        "splits_final": [{"train": names[:-1], "val": names[-1:]}],
    }
    set_network(files["nnUNetPlans"], plan)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    yield from ()


def _write_case(folder: Path, name: str, plan: Plan, rng: np.random.Generator) -> None:
    from nnunetv2.training.dataloading import nnunet_dataset

    # Smooth: noise with a voxel in sixteen along each axis, and linear in between.
    coarse = rng.standard_normal([max(2, extent // 16) for extent in plan.case_shape])
    image = zoom(coarse, np.divide(plan.case_shape, coarse.shape), order=1).astype(np.float32)
    labels = (image > 0.5).astype(np.int16)
    image += 0.3 * rng.standard_normal(plan.case_shape, dtype=np.float32)
    # Twelve bits, as scanners have them: files are then as small as those of real images.
    image = np.round(image * 512) / 512
    places = np.argwhere(labels[None] == 1)
    if len(places) > MOST_PLACES:
        places = rng.choice(places, MOST_PLACES, replace=False)
    blocks, chunks = nnunet_dataset.comp_blosc2_params((1, *plan.case_shape), plan.patch)
    nnunet_dataset.nnUNetDatasetBlosc2.save_case(
        image[None],
        labels[None],
        {"class_locations": {1: places}},
        str(folder / IDENTIFIER / name),
        chunks=chunks,
        blocks=blocks,
        clevel=1,
    )
    (folder / "gt_segmentations" / f"{name}.nii.gz").touch()


# --- trainers -------------------------------------------------------------------------------------


def trainer_class(name: str) -> Any:
    """Return nnU-Net's trainer, or one of detaug's.

    nnU-Net's own search would import all of its trainers, some of which need other packages.
    """
    from detaug.nnunet import trainers
    from detaug.nnunet.compatibility import trainer_class

    if name == STOCK:
        return trainer_class()
    return getattr(trainers, name)


def set_up(root: Path, **variables: str) -> None:
    """Have nnU-Net keep everything below a root, in this process; torch gets one thread."""
    os.environ.update(
        nnUNet_raw=str(root / "raw"),
        nnUNet_preprocessed=str(root / "preprocessed"),
        nnUNet_results=str(root / "results"),
        nnUNet_wandb_enabled="0",
        DETAUG_SEED="1234",
        DETAUG_CPU_THREADS="1",
    )
    os.environ.update(variables)
    # As ``nnUNetv2_train`` does on a GPU.
    torch.set_num_threads(1)


def make_trainer(name: str, root: Path, plan: Plan, device: str) -> Any:
    """Return a trainer as ``nnUNetv2_train`` makes it, initialised and not compiled."""
    set_up(root, nnUNet_compile="False", nnUNet_n_proc_DA="0")
    plans, description = load_plans(DATASET)
    kind = trainer_class(name)
    trainer = kind(plans, plan.configuration, 0, description, torch.device(device))
    trainer.initialize()
    trainer.set_deep_supervision_enabled(True)
    return trainer


def random_batch(trainer: Any, plan: Plan) -> dict[str, Any]:
    """Return a batch as the trainer's loader gives them: one target for each deep output."""
    generator = torch.Generator().manual_seed(0)
    data = torch.randn((plan.batch_size, 1, *plan.patch), generator=generator)
    labels = (data > 0.5).to(torch.int16)
    targets = []
    for scales in trainer._get_deep_supervision_scales():
        steps = [slice(None, None, round(1 / scale)) for scale in scales]
        targets.append(labels[(slice(None), slice(None), *steps)].contiguous())
    return {"data": data, "target": targets}


def synchronise(device: str) -> None:
    """Wait until the GPU has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
