"""`aug.loader()` under Lightning's Trainer, in all ways in which it reads less than an epoch, or one from its middle."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.peers.loops.numbers import Seen, epochs, in_a_row, loader, samples

pl = pytest.importorskip("pytorch_lightning")

pytestmark = pytest.mark.filterwarnings("ignore")
REFERENCE = epochs(4)
(VALIDATION,) = epochs(1, name="val")


class Module(pl.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(1, 1)
        self._trained: dict[int, list[Seen]] = {}
        self.validated: list[list[Seen]] = []

    @property
    def trained(self) -> list[list[Seen]]:
        """The batches of each epoch."""
        return list(self._trained.values())

    def on_validation_epoch_start(self) -> None:
        self.validated.append([])

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        self._trained.setdefault(self.current_epoch, []).append(samples(batch))
        return self.layer(batch[:, :1]).mean()

    def validation_step(self, batch: torch.Tensor, _: int) -> None:
        self.validated[-1].append(samples(batch))

    def predict_step(self, batch: torch.Tensor, _: int) -> Seen:
        return samples(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 1e-3)


def trainer(**options: Any) -> Any:
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(
        accelerator="cpu", **{"max_epochs": 3, "enable_checkpointing": "callbacks" in options, **quiet, **options}
    )


def fit(checkpoint: Path | None = None, workers: int = 0, val: bool = True, **options: Any) -> Module:
    module = Module()
    validation = loader(name="val") if val else None
    trainer(**options).fit(module, loader(workers), validation, ckpt_path=checkpoint)
    return module


def test_epochs_follow_each_other_and_validations_are_the_same() -> None:
    module = fit(workers=2)
    assert module.trained == REFERENCE[:3]
    sanity, *validated = module.validated
    assert sanity == VALIDATION[:2]
    assert validated == [VALIDATION] * 3


def test_limited_epochs_have_as_many_batches_each() -> None:
    module = fit(limit_train_batches=4, limit_val_batches=3)
    assert module.trained == [epoch[:4] for epoch in REFERENCE[:3]]
    assert module.validated[1:] == [VALIDATION[:3]] * 3


def test_overfit_batches_are_the_same_in_every_epoch() -> None:
    module = fit(overfit_batches=2, val=False)
    assert module.trained == [REFERENCE[0][:2]] * 3


def test_validations_within_an_epoch_leave_the_training_where_it_is() -> None:
    module = fit(val_check_interval=2)
    assert module.trained == REFERENCE[:3]
    assert module.validated[1:] == [VALIDATION] * 9


def test_a_loader_made_anew_for_each_epoch_goes_on_with_the_next() -> None:
    class Reloads(Module):
        def train_dataloader(self) -> Any:
            return loader()

    module = Reloads()
    trainer(reload_dataloaders_every_n_epochs=1).fit(module)
    assert module.trained == REFERENCE[:3]


@pytest.mark.parametrize("steps", [*(pytest.param(steps, marks=pytest.mark.slow) for steps in (1, 6, 13)), 8, 12])
def test_a_checkpoint_in_mid_epoch_or_at_its_end_goes_on(tmp_path: Path, steps: int) -> None:
    saving = pl.callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=steps, save_top_k=-1)
    whole = fit(callbacks=[saving])
    rest = fit(tmp_path / f"step={steps}.ckpt", workers=1)
    assert in_a_row(rest.trained) == in_a_row(REFERENCE[:3])[steps:]
    assert torch.equal(rest.layer.weight, whole.layer.weight)


def test_a_checkpoint_made_at_an_epochs_end_goes_on_with_the_next(tmp_path: Path) -> None:
    fit(callbacks=[pl.callbacks.ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)])
    assert fit(tmp_path / "epoch=0.ckpt").trained == REFERENCE[1:3]


@pytest.mark.parametrize("steps", [pytest.param(3, marks=pytest.mark.slow), 4, 6])
def test_a_checkpoint_of_limited_epochs_goes_on(tmp_path: Path, steps: int) -> None:
    saving = pl.callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=steps, save_top_k=-1)
    fit(callbacks=[saving], limit_train_batches=4)
    rest = fit(tmp_path / f"step={steps}.ckpt", limit_train_batches=4)
    assert in_a_row(rest.trained) == in_a_row([epoch[:4] for epoch in REFERENCE[:3]])[steps:]


def test_validate_test_and_predict_read_an_epoch() -> None:
    module = Module()
    trainer().validate(module, loader(name="val"), verbose=False)
    assert module.validated == [VALIDATION]
    assert trainer().predict(module, loader()) == REFERENCE[0]


SPAWNED = """
import pytorch_lightning as pl
from tests.peers.loops.test_lightning_loops import Module, loader
class Late(Module):
    def train_dataloader(self):
        from detaug import DeterministicAugmenter
        from tests.peers.loops.numbers import Numbers
        return DeterministicAugmenter.from_torch_distributed(Numbers(), batch_size=2, num_processes=1, seed=3).loader()
    def on_train_end(self):
        print("rank", self.global_rank, self.trained, flush=True)
if __name__ == "__main__":
    import sys
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp_spawn", max_epochs=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(*([Late()] if sys.argv[1] == "late" else [Module(), loader()]))
"""


@pytest.mark.slow
def test_ddp_spawn_makes_the_loader_in_each_process_or_is_told_to(tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED)

    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}

    def run(when: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), when]
        return subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, check=False)

    early = run("early")
    assert early.returncode != 0
    assert "train_dataloader()" in early.stderr
    late = run("late")
    assert late.returncode == 0, late.stderr
    assert f"rank 0 {[REFERENCE[0][0::2]]}" in late.stdout
    assert f"rank 1 {[REFERENCE[0][1::2]]}" in late.stdout
