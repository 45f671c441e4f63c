"""`detaug.DataLoader` under Lightning's Trainer, in all ways in which it reads less than an epoch,
or one from its middle.
"""

from __future__ import annotations

import logging
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import WeightedRandomSampler

from detaug import DeterministicAugmenter
from tests.peers.loops.ranks import run_on_two_ranks
from tests.support.numbers import Numbers, Seen, epochs, loader, samples

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


def validation() -> Any:
    return loader(shuffle=False, epoch=0, name="val")


def fit(
    checkpoint: Path | None = None, workers: int = 0, val: bool = True, **options: Any
) -> Module:
    module = Module()
    trainer(**options).fit(
        module, loader(num_workers=workers), validation() if val else None, ckpt_path=checkpoint
    )
    return module


def in_a_row(run: list[list[Seen]]) -> list[Seen]:
    return list(chain.from_iterable(run))


IN_ORDER = [(sample, sample + 1) for sample in range(0, 12, 2)]


def test_epochs_follow_each_other_and_validations_are_the_same() -> None:
    module = fit(workers=2)
    assert module.trained == epochs(3)
    sanity, *validated = module.validated
    assert sanity == IN_ORDER[:2]
    assert validated == [IN_ORDER] * 3


def test_limited_epochs_have_as_many_batches_each() -> None:
    module = fit(limit_train_batches=4, limit_val_batches=3)
    assert module.trained == [epoch[:4] for epoch in epochs(3)]
    assert module.validated[1:] == [IN_ORDER[:3]] * 3


def test_overfit_batches_are_the_first_ones_in_order_in_every_epoch() -> None:
    module = fit(overfit_batches=2, val=False)
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
    "steps", [*(pytest.param(steps, marks=pytest.mark.slow) for steps in (1, 6, 13)), 8, 12]
)
def test_a_checkpoint_in_mid_epoch_or_at_its_end_goes_on(tmp_path: Path, steps: int) -> None:
    saving = pl.callbacks.ModelCheckpoint(
        tmp_path, "{step}", every_n_train_steps=steps, save_top_k=-1
    )
    whole = fit(callbacks=[saving])
    rest = fit(tmp_path / f"step={steps}.ckpt", workers=1)
    assert in_a_row(rest.trained) == in_a_row(epochs(3))[steps:]
    assert torch.equal(rest.layer.weight, whole.layer.weight)


def test_a_checkpoint_made_at_an_epochs_end_goes_on_with_the_next(tmp_path: Path) -> None:
    fit(callbacks=[pl.callbacks.ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)])
    assert fit(tmp_path / "epoch=0.ckpt").trained == epochs(3)[1:3]


@pytest.mark.parametrize("steps", [pytest.param(3, marks=pytest.mark.slow), 4, 6])
def test_a_checkpoint_of_limited_epochs_goes_on(tmp_path: Path, steps: int) -> None:
    saving = pl.callbacks.ModelCheckpoint(
        tmp_path, "{step}", every_n_train_steps=steps, save_top_k=-1
    )
    fit(callbacks=[saving], limit_train_batches=4)
    rest = fit(tmp_path / f"step={steps}.ckpt", limit_train_batches=4)
    assert in_a_row(rest.trained) == in_a_row([epoch[:4] for epoch in epochs(3)])[steps:]


class TwoLoaders(Module):
    """A dict of loaders of 6 and of 4 batches: the shorter one is read a second time within an
    epoch.
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
        if not self.short:  # resumed
            self.on_train_epoch_start()
        self.short[-1].append(samples(batch["short"]))
        self.long[-1].append(samples(batch["long"]))
        return self.layer(batch["long"][:, :1]).mean()


def test_the_shorter_of_two_loaders_repeats_no_pass() -> None:
    module = TwoLoaders()
    trainer().fit(module)
    assert module.long == epochs(3)
    passes = epochs(6, length=8, name="short")
    assert module.short == [[*passes[n], *passes[n + 1][:2]] for n in (0, 2, 4)]


@pytest.mark.parametrize("steps", [5, 6, 11])
def test_the_shorter_of_two_loaders_resumes_in_its_second_pass(tmp_path: Path, steps: int) -> None:
    saving = pl.callbacks.ModelCheckpoint(
        tmp_path, "{step}", every_n_train_steps=steps, save_top_k=-1
    )
    whole = TwoLoaders()
    trainer(callbacks=[saving]).fit(whole)
    rest = TwoLoaders()
    trainer(callbacks=[saving]).fit(rest, ckpt_path=tmp_path / f"step={steps}.ckpt")
    assert in_a_row(rest.long) == in_a_row(whole.long)[steps:]
    assert in_a_row(rest.short) == in_a_row(whole.short)[steps:]


def test_validate_and_predict_read_an_epoch() -> None:
    module = Module()
    trainer().validate(module, validation(), verbose=False)
    assert module.validated == [IN_ORDER]
    assert trainer().predict(module, loader(shuffle=False)) == IN_ORDER
    assert trainer().predict(module, loader()) == epochs(1)[0]


def test_predictions_are_written_beside_the_indices_of_their_samples() -> None:
    class Writer(pl.callbacks.BasePredictionWriter):  # type: ignore[misc, name-defined]
        indices: Any = None

        def write_on_epoch_end(self, _: Any, __: Any, predictions: Any, indices: Any) -> None:
            self.indices = indices

    writer = Writer("epoch")
    found = trainer(callbacks=[writer], enable_checkpointing=False).predict(Module(), loader(13))
    assert [tuple(batch) for batch in writer.indices[0]] == found == epochs(1, length=13)[0]


def test_workers_are_not_seeded_by_lightning() -> None:
    pl.seed_everything(1, workers=True)
    assert fit(val=False).trained == epochs(3)


def test_an_augmenter_is_refused() -> None:
    augmenter = DeterministicAugmenter.from_dataset(Numbers(), 2, num_processes=0, seed=3)
    with pytest.raises(TypeError, match=r"pytorch_lightning .*detaug\.DataLoader.*\.loader\(\)"):
        trainer().fit(Module(), augmenter)


# --- two ranks
# ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("checkpoints")
    found: list[dict[str, Any]] = run_on_two_ranks(
        "tests.peers.loops.lightning_ranks", str(folder), library="pytorch_lightning"
    )
    for each in found:
        each["folder"] = folder
    return found


def of(ranks: list[dict[str, Any]], case: str) -> list[Any]:
    return [[[tuple(batch) for batch in epoch] for epoch in found[case]] for found in ranks]


@pytest.mark.parametrize("case", ["a loader given to fit", "a loader of a hook", "sharded before"])
def test_ranks_share_the_batches_of_one_rank(ranks: list[dict[str, Any]], case: str) -> None:
    whole = epochs(3)
    assert of(ranks, case) == [[epoch[rank::2] for epoch in whole] for rank in range(2)]


def test_ranks_share_the_batches_of_a_custom_sampler(ranks: list[dict[str, Any]]) -> None:
    weighted = WeightedRandomSampler([1.0] * 11 + [30.0], 12)
    whole = epochs(3, shuffle=None, sampler=weighted)
    for case in ("a custom sampler", "a custom sampler of a hook"):
        assert of(ranks, case) == [[epoch[rank::2] for epoch in whole] for rank in range(2)]


def test_ranks_share_a_validation_that_is_the_same_every_time(ranks: list[dict[str, Any]]) -> None:
    assert of(ranks, "validated") == [[IN_ORDER[rank::2]] * 3 for rank in range(2)]


def test_what_two_ranks_saved_in_mid_epoch_goes_on_with_one(ranks: list[dict[str, Any]]) -> None:
    """Two of three steps of epoch 1 were done by each rank: later epochs are whole."""
    module = fit(ranks[0]["folder"] / "step=5.ckpt", val=False)
    whole = epochs(3)
    assert module.trained == [whole[1][4:], whole[2]]


def test_what_two_ranks_saved_goes_on_with_two(ranks: list[dict[str, Any]]) -> None:
    whole = epochs(3)
    for rank, found in enumerate(of(ranks, "resumed")):
        assert found == [whole[1][4:][rank::2], whole[2][rank::2]]


def test_predict_on_two_ranks_is_refused_with_what_to_do(ranks: list[dict[str, Any]]) -> None:
    """Lightning puts in a sampler that gives the ranks samples, and not batches."""
    for found in ranks:
        assert "Trainer(use_distributed_sampler=False)" in found["an error of predict"]


def test_predict_on_two_ranks_reads_a_loader_that_shares_batches(
    ranks: list[dict[str, Any]],
) -> None:
    (whole,) = epochs(1)
    for rank, found in enumerate(ranks):
        assert [tuple(batch) for batch in found["predicted, sharded before"]] == whole[rank::2]
