"""Rows: what an epoch of nnU-Net's training takes, with its own trainer and with detaug's. They want a GPU to say anything."""

from __future__ import annotations

import os
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.command import silence
from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.nnunet.loaders import Task
from benchmarks.report import Row, ratio_check
from detaug.bench.measuring import Ratio, in_fresh_process, interleaved

#: (what, trainer, whether the network is compiled)
SYSTEMS = {
    "nnU-Net": ("nnUNetTrainer", True),
    "nnU-Net, not compiled": ("nnUNetTrainer", False),
    "only detaug's loader and transforms (Fast)": ("nnUNetTrainerDetAugFast", True),
    "Deterministic": ("nnUNetTrainerDeterministic", True),
    "Deterministic, not compiled": ("nnUNetTrainerDeterministic", False),
    "DetAug, not compiled": ("nnUNetTrainerDetAug", False),
    "DetAug": ("nnUNetTrainerDetAug", True),
}
OURS = "DetAug"
#: nnU-Net's epoch has 250 and 50 batches; a fifth of it is enough to tell.
ITERATIONS, EPOCHS = (50, 10), 2
QUICK_ITERATIONS = (2, 1)


def measure_epochs(
    name: str, task: Task, data: Preprocessed, device: str, rounds: int, quick: bool
) -> Row:
    """Seconds of an epoch after the first one, which compiles and tries algorithms."""
    iterations, validation_iterations = QUICK_ITERATIONS if quick else ITERATIONS
    found = interleaved(
        tuple(SYSTEMS),
        1 if quick else rounds,
        lambda system: in_fresh_process(
            _seconds, *SYSTEMS[system], data, task.configuration, device, quick
        ),
    )
    return Row(
        name=f"{name}: an epoch of {iterations} + {validation_iterations} batches on {device}",
        unit="s",
        ours=median(found[OURS]),
        checks=[
            ratio_check(system, median(seconds), Ratio.of(seconds, found[OURS]))
            for system, seconds in found.items()
            if system != OURS
        ],
        repeats=1 if quick else rounds,
        settings={
            **task.settings(),
            "device": device,
            "iterations": [iterations, validation_iterations],
        },
        details={"seconds": found},
    )


def _seconds(
    trainer: str, compiled: bool, data: Preprocessed, configuration: str, device: str, quick: bool
) -> float:
    silence()
    with TemporaryDirectory() as results:
        os.environ.update(
            nnUNet_raw=str(data.folder.parents[2] / "raw"),
            nnUNet_preprocessed=str(data.folder.parents[1]),
            nnUNet_results=results,
            nnUNet_compile=str(compiled),
            DETAUG_SEED="1",
        )
        made = _trainer(trainer, data, configuration, device, quick)
        made.run_training()
        logged = made.logger.get_checkpoint()
    starts, ends = logged["epoch_start_timestamps"], logged["epoch_end_timestamps"]
    return float(median(end - start for start, end in zip(starts[1:], ends[1:], strict=True)))


def _trainer(name: str, data: Preprocessed, configuration: str, device: str, quick: bool) -> Any:
    """As ``nnUNetv2_train`` makes it."""
    import torch

    from detaug.nnunet import trainers
    from detaug.nnunet.compatibility import plot_nothing

    if device == "cuda":
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = False, True
    plans = {**data.plans, "continue_training": False}
    if quick:
        _make_small(plans["configurations"][configuration])
    made = getattr(trainers, name)(plans, configuration, 0, data.dataset_json, torch.device(device))
    made.num_epochs = 1 + (1 if quick else EPOCHS)
    iterations, validation_iterations = QUICK_ITERATIONS if quick else ITERATIONS
    made.num_iterations_per_epoch = iterations
    made.num_val_iterations_per_epoch = validation_iterations
    made.disable_checkpointing = True
    plot_nothing(made)
    return made


def _make_small(configuration: dict[str, Any]) -> None:
    """A network that a CPU trains in seconds: it shows that the row runs."""
    arguments = configuration["architecture"]["arch_kwargs"]
    arguments["features_per_stage"] = [4] * len(arguments["features_per_stage"])
    configuration["patch_size"] = [64] * len(configuration["patch_size"])
    configuration["batch_size"] = 2
