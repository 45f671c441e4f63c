"""`detaug.DataLoader` in Lightning's Trainer.

The Trainer reads whole epochs, less than an epoch, or an epoch from its middle.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import WeightedRandomSampler

from detaug import DeterministicAugmenter
from tests.peers.loops.numbers import flattened
from tests.peers.loops.ranks import epochs_of_ranks, run_on_two_ranks
from tests.support.numbers import Numbers, Seen, epochs, loader, samples

pl = pytest.importorskip("pytorch_lightning")

pytestmark = pytest.mark.filterwarnings("ignore")

#: The batches of a validation, which is not shuffled.
IN_ORDER = [(sample, sample + 1) for sample in range(0, 12, 2)]


class Module(pl.LightningModule):  # type: ignore[misc, name-defined]
    """A linear layer that records the samples of its batches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(1, 1)
        self._trained: dict[int, list[Seen]] = {}
        self.validated: list[list[Seen]] = []

    @property
    def trained(self) -> list[list[Seen]]:
        """The batches of each epoch of training."""
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
    """Return a Trainer of three epochs that writes checkpoints only if it has callbacks."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    defaults = {
        "max_epochs": 3,
        "enable_checkpointing": "callbacks" in options,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pl.Trainer(accelerator="cpu", **{**defaults, **options})


def checkpoints_every(num_steps: int, folder: Path) -> Any:
    """Return a callback that saves "step=N.ckpt" after every `num_steps` steps."""
    return pl.callbacks.ModelCheckpoint(
        folder, "{step}", every_n_train_steps=num_steps, save_top_k=-1
    )


def validation() -> Any:
    """Return a loader for validation: every pass is the same."""
    return loader(shuffle=False, epoch=0, name="val")


def fit(
    checkpoint: Path | None = None, workers: int = 0, validates: bool = True, **options: Any
) -> Module:
    """Train a `Module` and return it.

    Args:
        checkpoint: from which the training continues.
        workers: of the loader.
        validates: whether there is a validation.
        options: of the Trainer.
    """
    module = Module()
    validation_loader = validation() if validates else None
    train_loader = loader(num_workers=workers)
    trainer(**options).fit(module, train_loader, validation_loader, ckpt_path=checkpoint)
    return module


def test_epochs_follow_each_other_and_validations_are_the_same() -> None:
    module = fit(workers=2)
    assert module.trained == epochs(3)
    sanity_check, *validated = module.validated
    assert sanity_check == IN_ORDER[:2]
    assert validated == [IN_ORDER] * 3


def test_limited_epochs_have_as_many_batches_each() -> None:
    module = fit(limit_train_batches=4, limit_val_batches=3)
    assert module.trained == [epoch[:4] for epoch in epochs(3)]
    assert module.validated[1:] == [IN_ORDER[:3]] * 3


def test_overfit_batches_are_the_first_ones_in_order_in_every_epoch() -> None:
    module = fit(overfit_batches=2, validates=False)
    assert module.trained == [IN_ORDER[:2]] * 3


def test_validations_within_an_epoch_leave_the_training_where_it_is() -> None:
    module = fit(val_check_interval=2)
    assert module.trained == epochs(3)
    assert module.validated[1:] == [IN_ORDER] * 9


def test_a_loader_made_anew_for_each_epoch_goes_on_with_the_next() -> None:
    class Reloads(Module):
        def train_dataloader(self) -> Any:
            return loader()

    module = Reloads()
    trainer(reload_dataloaders_every_n_epochs=1).fit(module)
    assert module.trained == epochs(3)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(6, marks=pytest.mark.slow),
        pytest.param(13, marks=pytest.mark.slow),
        8,
        12,
    ],
)
def test_a_checkpoint_in_mid_epoch_or_at_its_end_goes_on(tmp_path: Path, step: int) -> None:
    whole = fit(callbacks=[checkpoints_every(step, tmp_path)])
    rest = fit(tmp_path / f"step={step}.ckpt", workers=1)
    assert flattened(rest.trained) == flattened(epochs(3))[step:]
    assert torch.equal(rest.layer.weight, whole.layer.weight)


def test_a_checkpoint_made_at_an_epochs_end_goes_on_with_the_next(tmp_path: Path) -> None:
    fit(callbacks=[pl.callbacks.ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)])
    assert fit(tmp_path / "epoch=0.ckpt").trained == epochs(3)[1:3]


@pytest.mark.parametrize("step", [pytest.param(3, marks=pytest.mark.slow), 4, 6])
def test_a_checkpoint_of_limited_epochs_goes_on(tmp_path: Path, step: int) -> None:
    fit(callbacks=[checkpoints_every(step, tmp_path)], limit_train_batches=4)
    rest = fit(tmp_path / f"step={step}.ckpt", limit_train_batches=4)
    limited = [epoch[:4] for epoch in epochs(3)]
    assert flattened(rest.trained) == flattened(limited)[step:]


class TwoLoaders(Module):
    """A module with a dict of loaders of 6 and of 4 batches.

    Within an epoch Lightning reads the shorter one a second time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.short: list[list[Seen]] = []
        self.long: list[list[Seen]] = []

    def train_dataloader(self) -> Any:
        return {"long": loader(), "short": loader(8, name="short")}

    def on_train_epoch_start(self) -> None:
        self.short.append([])
        self.long.append([])

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        # Lightning does not call the hook of an epoch that it resumes.
        if not self.short:
            self.on_train_epoch_start()
        self.short[-1].append(samples(batch["short"]))
        self.long[-1].append(samples(batch["long"]))
        return self.layer(batch["long"][:, :1]).mean()


def test_the_shorter_of_two_loaders_repeats_no_pass() -> None:
    module = TwoLoaders()
    trainer().fit(module)
    assert module.long == epochs(3)
    passes = epochs(6, length=8, name="short")
    expected = [[*passes[index], *passes[index + 1][:2]] for index in (0, 2, 4)]
    assert module.short == expected


@pytest.mark.parametrize("step", [5, 6, 11])
def test_the_shorter_of_two_loaders_resumes_in_its_second_pass(tmp_path: Path, step: int) -> None:
    saving = checkpoints_every(step, tmp_path)
    whole = TwoLoaders()
    trainer(callbacks=[saving]).fit(whole)
    rest = TwoLoaders()
    trainer(callbacks=[saving]).fit(rest, ckpt_path=tmp_path / f"step={step}.ckpt")
    assert flattened(rest.long) == flattened(whole.long)[step:]
    assert flattened(rest.short) == flattened(whole.short)[step:]


def test_validate_and_predict_read_an_epoch() -> None:
    module = Module()
    trainer().validate(module, validation(), verbose=False)
    assert module.validated == [IN_ORDER]
    assert trainer().predict(module, loader(shuffle=False)) == IN_ORDER
    assert trainer().predict(module, loader()) == epochs(1)[0]


class Writer(pl.callbacks.BasePredictionWriter):  # type: ignore[misc, name-defined]
    """A callback that keeps the indices that Lightning passes with the predictions."""

    indices: Any = None

    def write_on_epoch_end(self, _: Any, __: Any, predictions: Any, indices: Any) -> None:
        self.indices = indices


def test_predictions_are_written_beside_the_indices_of_their_samples() -> None:
    writer = Writer("epoch")
    predicting = trainer(callbacks=[writer], enable_checkpointing=False)
    predictions = predicting.predict(Module(), loader(13))
    (expected,) = epochs(1, length=13)
    assert predictions == expected
    assert [tuple(batch) for batch in writer.indices[0]] == expected


def test_workers_are_not_seeded_by_lightning() -> None:
    pl.seed_everything(1, workers=True)
    assert fit(validates=False).trained == epochs(3)


def test_an_augmenter_is_refused() -> None:
    augmenter = DeterministicAugmenter.from_dataset(Numbers(), 2, num_processes=0, seed=3)
    with pytest.raises(TypeError, match=r"pytorch_lightning .*detaug\.DataLoader.*\.loader\(\)"):
        trainer().fit(Module(), augmenter)


# --- two ranks


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the checkpoints that two ranks save."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def ranks(checkpoints: Path) -> list[dict[str, Any]]:
    """Return what each of two ranks of Lightning's saw, by case."""
    return run_on_two_ranks(
        "tests.peers.loops.lightning_ranks", str(checkpoints), library="pytorch_lightning"
    )


def shares_of(whole: list[list[Seen]]) -> list[list[list[Seen]]]:
    """Return the batches of rank 0 and of rank 1 in each epoch of a whole training."""
    return [[epoch[rank::2] for epoch in whole] for rank in range(2)]


@pytest.mark.parametrize("case", ["a loader given to fit", "a loader of a hook", "sharded before"])
def test_ranks_share_the_batches_of_one_rank(ranks: list[dict[str, Any]], case: str) -> None:
    assert epochs_of_ranks(ranks, case) == shares_of(epochs(3))


def test_ranks_share_the_batches_of_a_custom_sampler(ranks: list[dict[str, Any]]) -> None:
    weighted = WeightedRandomSampler([1.0] * 11 + [30.0], 12)
    expected = shares_of(epochs(3, shuffle=None, sampler=weighted))
    for case in ("a custom sampler", "a custom sampler of a hook"):
        assert epochs_of_ranks(ranks, case) == expected


def test_ranks_share_a_validation_that_is_the_same_every_time(ranks: list[dict[str, Any]]) -> None:
    assert epochs_of_ranks(ranks, "validated") == shares_of([IN_ORDER] * 3)


def test_what_two_ranks_saved_in_mid_epoch_goes_on_with_one(
    ranks: list[dict[str, Any]], checkpoints: Path
) -> None:
    """Each rank had done two of three steps of epoch 1; later epochs are whole."""
    module = fit(checkpoints / "step=5.ckpt", validates=False)
    _, second, third = epochs(3)
    assert module.trained == [second[4:], third]


def test_what_two_ranks_saved_goes_on_with_two(ranks: list[dict[str, Any]]) -> None:
    _, second, third = epochs(3)
    assert epochs_of_ranks(ranks, "resumed") == shares_of([second[4:], third])


def test_predict_on_two_ranks_is_refused_with_what_to_do(ranks: list[dict[str, Any]]) -> None:
    """Lightning adds a sampler that splits samples, and not batches, among the ranks."""
    for results in ranks:
        assert "Trainer(use_distributed_sampler=False)" in results["an error of predict"]


def test_predict_on_two_ranks_reads_a_loader_that_shares_batches(
    ranks: list[dict[str, Any]],
) -> None:
    (whole,) = epochs(1)
    for rank, results in enumerate(ranks):
        predicted = [tuple(batch) for batch in results["predicted, sharded before"]]
        assert predicted == whole[rank::2]
