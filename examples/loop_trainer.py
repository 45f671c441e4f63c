"""Hugging Face's Trainer: `get_train_dataloader` and `resume_from_checkpoint` within an epoch.

python loop_trainer.py FOLDER              (again: it continues from the last checkpoint)
torchrun --nproc_per_node=2 loop_trainer.py FOLDER
"""

import torch
from mri_slices import BATCH_SIZE, EPOCHS, arguments, segmenter, show
from torch.nn.functional import cross_entropy
from torch_dataset import AxialSlices
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from detaug import DataLoader, fingerprint


class Segmentation(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = segmenter()

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        loss = cross_entropy(self.network(batch["image"]), batch["labels"])
        show(batch["slice"], loss)
        return {"loss": loss}


class SliceTrainer(Trainer):
    def get_train_dataloader(self) -> DataLoader:
        workers = self.args.dataloader_num_workers
        loader = DataLoader(
            AxialSlices(), BATCH_SIZE, shuffle=True, drop_last=True, num_workers=workers, seed=1234
        )
        return self.accelerator.prepare(loader)


def main() -> None:
    args = arguments(__doc__)
    options = TrainingArguments(
        str(args.folder),
        num_train_epochs=EPOCHS,
        save_steps=4,
        dataloader_num_workers=args.workers,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    module = Segmentation()
    trainer = SliceTrainer(model=module, args=options)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.folder))
    print("weights", fingerprint(module.network.state_dict()))


if __name__ == "__main__":
    main()
