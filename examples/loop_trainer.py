"""Hugging Face's Trainer: `get_train_dataloader`, a checkpoint in mid-epoch, and `resume_from_checkpoint`.

python loop_trainer.py FOLDER              (again: it goes on from the last checkpoint)
"""

from __future__ import annotations

from typing import Any

import torch
from mri_slices import BATCH_SIZE, EPOCHS, arguments, segmenter, show
from torch import nn
from torch_dataset import AxialSlices

from detaug import DeterministicAugmenter, fingerprint

try:
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint
except ImportError:
    raise SystemExit("this example needs Transformers: pip install 'transformers[torch]'") from None


class Segmentation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network, self.loss = segmenter(), nn.CrossEntropyLoss()

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        loss = self.loss(self.network(batch["image"]), batch["labels"])
        show(batch["slice"], loss.item())
        return {"loss": loss}


class SliceTrainer(Trainer):
    def __init__(self, workers: int, **options: Any) -> None:
        super().__init__(**options)
        self.workers = workers

    def get_train_dataloader(self) -> Any:
        augmenter = DeterministicAugmenter.from_torch_distributed(
            AxialSlices(),
            batch_size=BATCH_SIZE,
            drop_last=True,
            num_processes=self.workers,
            seed=1234,
        )
        return self.accelerator.prepare(augmenter.loader())


def main() -> None:
    args = arguments(__doc__)
    options = TrainingArguments(
        str(args.folder),
        num_train_epochs=EPOCHS,
        save_steps=4,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    module = Segmentation()
    trainer = SliceTrainer(args.workers, model=module, args=options)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.folder))
    print("weights", fingerprint(module.network.state_dict()))


if __name__ == "__main__":
    main()
