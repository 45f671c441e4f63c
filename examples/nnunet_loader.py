"""nnU-Net's own loader and transforms, with batches that no number of workers changes.

nnU-Net is not modified: one marked statement below replaces its augmenter. A toy data set goes
through nnU-Net's own planner.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

BATCHES = 4
DATASET = "Dataset001_Toy"


def main() -> None:
    from detaug.demo.nnunet import make_toy_dataset, nnunet_folders, plan_and_preprocess

    with tempfile.TemporaryDirectory() as temporary, nnunet_folders(Path(temporary)) as root:
        make_toy_dataset(root / "raw" / DATASET, seed=1)
        plan_and_preprocess()
        swap_the_augmenter()
        with_one = draw(num_processes=1)
        with_two = draw(num_processes=2)

    print(f"\n{'batch':>12}  {'1 process':<14}  {'2 processes':<14}")
    for name, one in with_one.items():
        two = with_two[name]
        verdict = "same" if one == two else "DIFFERENT"
        print(f"{name:>12}  {one[:14]}  {two[:14]}  {verdict}")
    assert with_one == with_two
    print("nnU-Net's batches are the same with 1 and with 2 processes")


def swap_the_augmenter() -> None:
    """Replace the augmenter of nnU-Net's trainers by detaug's."""
    import nnunetv2.training.nnUNetTrainer.nnUNetTrainer as trainer_module

    from detaug.batchgenerators import NonDetMultiThreadedAugmenter

    # This statement is all that nnU-Net needs.
    trainer_module.NonDetMultiThreadedAugmenter = NonDetMultiThreadedAugmenter


def draw(num_processes: int) -> dict[str, str]:
    """Return fingerprints of a new trainer's first batches, for training and validation."""
    import torch
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    from detaug import fingerprint
    from detaug.nnunet.verification.settings import load_plans

    # nnU-Net passes no seed on, so it comes from the environment.
    os.environ["DETAUG_SEED"] = "1234"
    os.environ["nnUNet_n_proc_DA"] = str(num_processes)
    plans, dataset_json = load_plans(DATASET)
    trainer = nnUNetTrainer(plans, "3d_fullres", 0, dataset_json, device=torch.device("cpu"))
    trainer.initialize()
    training, validation = trainer.get_dataloaders()
    with training, validation:
        batches = {f"training {index}": next(training) for index in range(BATCHES)}
        for index in range(BATCHES):
            batches[f"validation {index}"] = next(validation)
        print(f"{num_processes} process(es): images {tuple(batches['training 0']['data'].shape)}")
        return {name: fingerprint(batch) for name, batch in batches.items()}


if __name__ == "__main__":
    main()
