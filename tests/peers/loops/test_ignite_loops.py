"""`detaug.DataLoader` in Ignite's engines and MONAI's trainers."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

from detaug import DataLoader
from tests.support.numbers import Numbers, Seen, epochs, loader, samples

pytest.importorskip("ignite")
from ignite.engine import DeterministicEngine, Engine, Events


def in_a_row(number: int, **options: Any) -> list[Seen]:
    """The batches of so many epochs."""
    return list(chain.from_iterable(epochs(number, **options)))


class Loop:
    """An engine, the loader that it reads, and what it saw."""

    def __init__(self, kind: type[Engine] = Engine, workers: int = 0) -> None:
        self.seen: list[Seen] = []
        self.engine, self.loader = kind(self._step), loader(num_workers=workers)
        self.state: dict[str, Any] = {}

    def _step(self, _: Any, batch: torch.Tensor) -> None:
        self.seen.append(samples(batch))

    def saved_at(self, step: int) -> None:
        def save() -> None:
            self.state = {
                "engine": dict(self.engine.state_dict()),
                "loader": self.loader.state_dict(),
            }

        self.engine.add_event_handler(Events.ITERATION_COMPLETED(once=step), save)

    def resume(self, state: dict[str, Any], loader: bool = True) -> None:
        self.engine.load_state_dict(state["engine"])
        if loader:
            self.loader.load_state_dict(state["loader"])


@pytest.mark.parametrize("step", [1, 3, 6, 8, 12])
@pytest.mark.parametrize("length", [None, 4])
def test_an_engine_resumes_at_any_step(step: int, length: int | None) -> None:
    whole = Loop(workers=2)
    whole.saved_at(step)
    whole.engine.run(whole.loader, max_epochs=4, epoch_length=length)
    assert len(whole.seen) == 4 * (length or 6)
    assert whole.seen[:4] == in_a_row(4)[:4]
    rest = Loop()
    rest.resume(whole.state)
    rest.engine.run(rest.loader)
    assert rest.seen == whole.seen[step:]


def test_an_epoch_length_beyond_the_loaders_goes_on_with_the_next_epoch() -> None:
    loop = Loop()
    loop.engine.run(loop.loader, max_epochs=2, epoch_length=8)
    assert loop.seen == in_a_row(3)[:16]


def told(loop: Loop) -> Loop:
    loop.engine.add_event_handler(
        Events.EPOCH_STARTED, lambda: loop.loader.set_epoch(loop.engine.state.epoch - 1)
    )
    return loop


@pytest.mark.parametrize("step", [3, 6, 8, 12])
def test_a_deterministic_engine_skips_by_itself(step: int) -> None:
    whole = told(Loop(DeterministicEngine))
    state: dict[str, Any] = {}
    whole.engine.add_event_handler(
        Events.ITERATION_COMPLETED(once=step),
        lambda: state.update(engine=dict(whole.engine.state_dict())),
    )
    whole.engine.run(whole.loader, max_epochs=3)
    assert whole.seen == in_a_row(3)
    rest = told(Loop(DeterministicEngine, workers=1))
    rest.resume(state, loader=False)
    rest.engine.run(rest.loader)
    assert rest.seen == in_a_row(3)[step:]


def test_a_deterministic_engine_with_a_loaded_state_is_told_that_both_skip() -> None:
    ahead, passing = loader(), None
    passing = iter(ahead)
    next(passing)
    loop = Loop(DeterministicEngine)
    loop.loader.load_state_dict(ahead.state_dict())
    with pytest.raises(RuntimeError, match="load the state into only one of the two"):
        loop.engine.run(loop.loader, max_epochs=1)


# --- MONAI
# ------------------------------------------------------------------------------------------------------------


def image_and_label(items: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    numbers = torch.stack(items)
    return {"image": numbers[:, :1], "label": numbers[:, 1:]}


def train(
    folder: Path, start: Path | None = None, length: int | None = None, **options: Any
) -> tuple[torch.nn.Module, list[Seen]]:
    """A SupervisedTrainer of three epochs, saved every two steps by MONAI's handlers."""
    pytest.importorskip("monai")
    from monai.engines import SupervisedTrainer
    from monai.handlers import CheckpointLoader, CheckpointSaver

    torch.manual_seed(0)
    network, found = torch.nn.Linear(1, 1), []
    optimizer = torch.optim.SGD(network.parameters(), 1e-3)
    batches = loader(collate_fn=image_and_label, **options)
    trainer = SupervisedTrainer(
        device="cpu", max_epochs=3, train_data_loader=batches, network=network, optimizer=optimizer,
        loss_function=lambda scores, _: scores.mean(), decollate=False, epoch_length=length,
    )  # fmt: skip
    everything = {"network": network, "optimizer": optimizer, "trainer": trainer, "loader": batches}
    CheckpointSaver(
        str(folder), everything, save_interval=2, epoch_level=False, n_saved=None
    ).attach(trainer)
    if start:
        CheckpointLoader(str(start), everything).attach(trainer)
    trainer.add_event_handler(
        Events.ITERATION_COMPLETED,
        lambda engine: found.append(samples(engine.state.batch["image"])),
    )
    trainer.run()
    return network, found


@pytest.mark.parametrize("length", [None, 4, 8])
def test_a_supervised_trainer_resumes_through_its_checkpoint_handlers(
    tmp_path: Path, length: int | None
) -> None:
    network, found = train(tmp_path, length=length)
    assert found == in_a_row(4)[: 3 * (length or 6)], "no batch comes twice"
    for step in (2, 4, 6, 8, 12):
        start = tmp_path / f"checkpoint_iteration={step}.pt"
        again, rest = train(tmp_path / "again", start, length=length)
        assert rest == found[step:]
        assert torch.equal(again.weight, network.weight)


@pytest.mark.parametrize("length", [None, 4, 8])
def test_a_supervised_trainer_names_epochs_from_1_where_ranks_share(
    tmp_path: Path, length: int | None
) -> None:
    """MONAI calls set_epoch of a DistributedSampler, and only of one."""
    whole = in_a_row(5)[6:]

    def sampler() -> Any:
        return DistributedSampler(Numbers(), 1, 0)

    _, found = train(tmp_path, length=length, shuffle=None, sampler=sampler())
    assert found == whole[: 3 * (length or 6)]
    for step in (2, 4, 6, 8, 12):
        start = tmp_path / f"checkpoint_iteration={step}.pt"
        _, rest = train(tmp_path / "again", start, length, shuffle=None, sampler=sampler())
        assert rest == found[step:]


def test_transforms_of_a_decollated_batch_are_inverted() -> None:
    """MONAI knows a transform by its address, which no worker's has; or, by its own word for this,
    by its class alone, which is what a batch says that was collated without a collate_fn.
    """
    pytest.importorskip("monai")
    from monai.data import Dataset, decollate_batch
    from monai.transforms import Compose, EnsureChannelFirstd, RandFlipd, RandRotate90d

    images = [{"image": torch.arange(80.0).reshape(4, 4, 5) + number} for number in range(4)]
    transform = Compose(
        [EnsureChannelFirstd("image", channel_dim="no_channel"), RandFlipd("image", prob=0.5, spatial_axis=2),
         RandRotate90d("image", prob=0.5, max_k=3, spatial_axes=(0, 1))]
    )  # fmt: skip
    batches = DataLoader(Dataset(images, transform), 2, shuffle=True, num_workers=2, seed=3)
    found = []
    for batch in batches:
        for item in decollate_batch(batch):
            whole = transform.inverse(item)["image"]
            found.append(int(whole.min()))
            assert torch.equal(torch.as_tensor(whole).squeeze(), images[found[-1]]["image"])
    assert sorted(found) == [0, 1, 2, 3]
