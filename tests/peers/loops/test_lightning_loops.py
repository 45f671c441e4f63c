"""`aug.loader()` under Lightning's Trainer, in all ways in which it reads less than an epoch, or one from its middle."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.peers.loops.numbers import Seen, in_a_row, loader, reference, samples

pl = pytest.importorskip("pytorch_lightning")

pytestmark = pytest.mark.filterwarnings("ignore")


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
        accelerator="cpu",
        **{"max_epochs": 3, "enable_checkpointing": "callbacks" in options, **quiet, **options},
    )


def fit(
    checkpoint: Path | None = None, workers: int = 0, val: bool = True, **options: Any
) -> Module:
    module = Module()
    validation = loader(name="val") if val else None
    trainer(**options).fit(module, loader(workers), validation, ckpt_path=checkpoint)
    return module


def test_epochs_follow_each_other_and_validations_are_the_same() -> None:
    module = fit(workers=2)
    assert module.trained == reference()[:3]
    sanity, *validated = module.validated
    assert sanity == reference("val")[0][:2]
    assert validated == [reference("val")[0]] * 3


def test_limited_epochs_have_as_many_batches_each() -> None:
    module = fit(limit_train_batches=4, limit_val_batches=3)
    assert module.trained == [epoch[:4] for epoch in reference()[:3]]
    assert module.validated[1:] == [reference("val")[0][:3]] * 3


def test_overfit_batches_are_the_same_in_every_epoch() -> None:
    module = fit(overfit_batches=2, val=False)
    assert module.trained == [reference()[0][:2]] * 3


def test_validations_within_an_epoch_leave_the_training_where_it_is() -> None:
    module = fit(val_check_interval=2)
    assert module.trained == reference()[:3]
    assert module.validated[1:] == [reference("val")[0]] * 9


def test_a_loader_made_anew_for_each_epoch_goes_on_with_the_next() -> None:
    class Reloads(Module):
        def train_dataloader(self) -> Any:
            return loader()

    module = Reloads()
    trainer(reload_dataloaders_every_n_epochs=1).fit(module)
    assert module.trained == reference()[:3]


@pytest.mark.parametrize(
    "steps", [*(pytest.param(steps, marks=pytest.mark.slow) for steps in (1, 6, 13)), 8, 12]
)
def test_a_checkpoint_in_mid_epoch_or_at_its_end_goes_on(tmp_path: Path, steps: int) -> None:
    saving = pl.callbacks.ModelCheckpoint(
        tmp_path, "{step}", every_n_train_steps=steps, save_top_k=-1
    )
    whole = fit(callbacks=[saving])
    rest = fit(tmp_path / f"step={steps}.ckpt", workers=1)
    assert in_a_row(rest.trained) == in_a_row(reference()[:3])[steps:]
    assert torch.equal(rest.layer.weight, whole.layer.weight)


def test_a_checkpoint_made_at_an_epochs_end_goes_on_with_the_next(tmp_path: Path) -> None:
    fit(callbacks=[pl.callbacks.ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)])
    assert fit(tmp_path / "epoch=0.ckpt").trained == reference()[1:3]


@pytest.mark.parametrize("steps", [pytest.param(3, marks=pytest.mark.slow), 4, 6])
def test_a_checkpoint_of_limited_epochs_goes_on(tmp_path: Path, steps: int) -> None:
    saving = pl.callbacks.ModelCheckpoint(
        tmp_path, "{step}", every_n_train_steps=steps, save_top_k=-1
    )
    fit(callbacks=[saving], limit_train_batches=4)
    rest = fit(tmp_path / f"step={steps}.ckpt", limit_train_batches=4)
    assert in_a_row(rest.trained) == in_a_row([epoch[:4] for epoch in reference()[:3]])[steps:]


def test_validate_test_and_predict_read_an_epoch() -> None:
    module = Module()
    trainer().validate(module, loader(name="val"), verbose=False)
    assert module.validated == [reference("val")[0]]
    assert trainer().predict(module, loader()) == reference()[0]
