"""`detaug.DataLoader` in Ignite's engines and MONAI's trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

from detaug import DataLoader
from tests.peers.loops.numbers import flattened
from tests.support.numbers import Numbers, Seen, epochs, loader, samples

pytest.importorskip("ignite")
from ignite.engine import DeterministicEngine, Engine, Events


class Loop:
    """An engine, the loader that it reads, and the batches that it has seen.

    Args:
        kind: the engine's class.
        workers: of the loader.
    """

    def __init__(self, kind: type[Engine] = Engine, workers: int = 0) -> None:
        self.engine = kind(self._step)
        self.loader = loader(num_workers=workers)
        self.seen: list[Seen] = []
        #: States that were saved.
        self.states: dict[str, Any] = {}

    def _step(self, _: Any, batch: torch.Tensor) -> None:
        self.seen.append(samples(batch))

    def save_at(self, step: int) -> None:
        """Let the engine save its state after a step, and the loader's unless the engine skips."""
        self.engine.add_event_handler(Events.ITERATION_COMPLETED(once=step), self._save)

    def _save(self) -> None:
        self.states["engine"] = dict(self.engine.state_dict())
        # A DeterministicEngine skips batches by itself, with a DataLoader of its own.
        if not isinstance(self.engine, DeterministicEngine):
            self.states["loader"] = self.loader.state_dict()

    def name_epochs(self) -> None:
        """Let the engine call `set_epoch` of the loader at the start of each epoch."""
        self.engine.add_event_handler(Events.EPOCH_STARTED, self._set_epoch)

    def _set_epoch(self) -> None:
        # Ignite counts epochs from 1.
        self.loader.set_epoch(self.engine.state.epoch - 1)


@pytest.mark.parametrize("step", [1, 3, 6, 8, 12])
@pytest.mark.parametrize("length", [None, 4])
def test_an_engine_resumes_at_any_step(step: int, length: int | None) -> None:
    whole = Loop(workers=2)
    whole.save_at(step)
    whole.engine.run(whole.loader, max_epochs=4, epoch_length=length)
    assert len(whole.seen) == 4 * (length or 6)
    assert whole.seen[:4] == epochs(1)[0][:4]
    rest = Loop()
    rest.engine.load_state_dict(whole.states["engine"])
    rest.loader.load_state_dict(whole.states["loader"])
    rest.engine.run(rest.loader)
    assert rest.seen == whole.seen[step:]


def test_an_epoch_length_beyond_the_loaders_goes_on_with_the_next_epoch() -> None:
    loop = Loop()
    loop.engine.run(loop.loader, max_epochs=2, epoch_length=8)
    assert loop.seen == flattened(epochs(3))[:16]


@pytest.mark.parametrize("step", [3, 6, 8, 12])
def test_a_deterministic_engine_skips_by_itself(step: int) -> None:
    expected = flattened(epochs(3))
    whole = Loop(DeterministicEngine)
    whole.name_epochs()
    whole.save_at(step)
    whole.engine.run(whole.loader, max_epochs=3)
    assert whole.seen == expected
    rest = Loop(DeterministicEngine, workers=1)
    rest.name_epochs()
    rest.engine.load_state_dict(whole.states["engine"])
    rest.engine.run(rest.loader)
    assert rest.seen == expected[step:]


def test_a_deterministic_engine_with_a_loaded_state_is_told_that_both_skip() -> None:
    other = loader()
    # The iterator is kept, since a pass that nobody holds is over.
    iterator = iter(other)
    next(iterator)
    loop = Loop(DeterministicEngine)
    loop.loader.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match="load the state into only one of the two"):
        loop.engine.run(loop.loader, max_epochs=1)


# --- MONAI


def image_and_label(items: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Collate items of `Numbers` into a batch of MONAI's."""
    numbers = torch.stack(items)
    return {"image": numbers[:, :1], "label": numbers[:, 1:]}


def mean_score(scores: torch.Tensor, _: Any) -> torch.Tensor:
    """Return the loss: labels have no effect."""
    return scores.mean()


def train(
    folder: Path, start: Path | None = None, length: int | None = None, **options: Any
) -> tuple[torch.nn.Module, list[Seen]]:
    """Train three epochs with a SupervisedTrainer; return the network and the batches.

    Args:
        folder: where MONAI's handlers save a checkpoint after every two steps.
        start: checkpoint from which the training continues.
        length: of an epoch, in steps; None for the loader's.
        options: of the loader.
    """
    pytest.importorskip("monai")
    from monai.engines import SupervisedTrainer
    from monai.handlers import CheckpointLoader, CheckpointSaver

    torch.manual_seed(0)
    network = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(network.parameters(), 1e-3)
    batches = loader(collate_fn=image_and_label, **options)
    trainer = SupervisedTrainer(
        device="cpu",
        max_epochs=3,
        train_data_loader=batches,
        network=network,
        optimizer=optimizer,
        loss_function=mean_score,
        decollate=False,
        epoch_length=length,
    )
    objects = {"network": network, "optimizer": optimizer, "trainer": trainer, "loader": batches}
    saver = CheckpointSaver(str(folder), objects, save_interval=2, epoch_level=False, n_saved=None)
    saver.attach(trainer)
    if start is not None:
        CheckpointLoader(str(start), objects).attach(trainer)

    seen: list[Seen] = []

    def record(engine: Any) -> None:
        seen.append(samples(engine.state.batch["image"]))

    trainer.add_event_handler(Events.ITERATION_COMPLETED, record)
    trainer.run()
    return network, seen


@pytest.mark.parametrize("length", [None, 4, 8])
def test_a_supervised_trainer_resumes_through_its_checkpoint_handlers(
    tmp_path: Path, length: int | None
) -> None:
    network, seen = train(tmp_path, length=length)
    num_steps = 3 * (length or 6)
    assert seen == flattened(epochs(4))[:num_steps], "no batch comes twice"
    for step in (2, 4, 6, 8, 12):
        start = tmp_path / f"checkpoint_iteration={step}.pt"
        resumed_network, rest = train(tmp_path / "resumed", start, length=length)
        assert rest == seen[step:]
        assert torch.equal(resumed_network.weight, network.weight)


@pytest.mark.parametrize("length", [None, 4, 8])
def test_a_supervised_trainer_names_epochs_from_1_where_ranks_share(
    tmp_path: Path, length: int | None
) -> None:
    """MONAI calls set_epoch only of a DistributedSampler."""

    def train_sharded(folder: Path, start: Path | None = None) -> list[Seen]:
        sampler = DistributedSampler(Numbers(), 1, 0)
        _, seen = train(folder, start, length, shuffle=None, sampler=sampler)
        return seen

    whole = train_sharded(tmp_path)
    num_steps = 3 * (length or 6)
    assert whole == flattened(epochs(5)[1:])[:num_steps]
    for step in (2, 4, 6, 8, 12):
        start = tmp_path / f"checkpoint_iteration={step}.pt"
        assert train_sharded(tmp_path / "resumed", start) == whole[step:]


def test_transforms_of_a_decollated_batch_are_inverted() -> None:
    """MONAI identifies a transform by its address, which differs in a worker, or by its class.

    A batch that was collated without a collate_fn has MONAI's own mark for the latter.
    """
    pytest.importorskip("monai")
    from monai.data import Dataset, decollate_batch
    from monai.transforms import Compose, EnsureChannelFirstd, RandFlipd, RandRotate90d

    images = [torch.arange(80.0).reshape(4, 4, 5) + number for number in range(4)]
    transform = Compose(
        [
            EnsureChannelFirstd("image", channel_dim="no_channel"),
            RandFlipd("image", prob=0.5, spatial_axis=2),
            RandRotate90d("image", prob=0.5, max_k=3, spatial_axes=(0, 1)),
        ]
    )
    dataset = Dataset([{"image": image} for image in images], transform)
    numbers = []
    for batch in DataLoader(dataset, 2, shuffle=True, num_workers=2, seed=3):
        for item in decollate_batch(batch):
            inverted = torch.as_tensor(transform.inverse(item)["image"]).squeeze()
            number = int(inverted.min())
            numbers.append(number)
            assert torch.equal(inverted, images[number])
    assert sorted(numbers) == [0, 1, 2, 3]
