"""nnU-Net's own loader and transforms, unmodified, with batches that do not depend on the number of
workers.

The one line that does it is marked below. A toy data set goes through nnU-Net's own planner.
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
    for name, one, two in zip(with_one, with_one.values(), with_two.values(), strict=True):
        print(f"{name:>12}  {one[:14]}  {two[:14]}  {'same' if one == two else 'DIFFERENT'}")
    assert with_one == with_two
    print("nnU-Net's batches are the same with 1 and with 2 processes")


def swap_the_augmenter() -> None:
    import nnunetv2.training.nnUNetTrainer.nnUNetTrainer as trainer_module

    from detaug.batchgenerators import NonDetMultiThreadedAugmenter

    trainer_module.NonDetMultiThreadedAugmenter = (
        NonDetMultiThreadedAugmenter  # all that nnU-Net needs
    )


def draw(num_processes: int) -> dict[str, str]:
    """Fingerprints of the first batches for training and validation of a new trainer."""
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
        drawn = {f"training {number}": next(training) for number in range(BATCHES)}
        drawn.update({f"validation {number}": next(validation) for number in range(BATCHES)})
        print(f"{num_processes} process(es): images {tuple(drawn['training 0']['data'].shape)}")
        return {name: fingerprint(batch) for name, batch in drawn.items()}


if __name__ == "__main__":
    main()
