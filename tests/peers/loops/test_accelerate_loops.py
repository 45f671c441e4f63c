"""`detaug.DataLoader` prepared by Accelerate, and in Hugging Face's Trainer."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from detaug import DataLoader, DeterministicAugmenter, fingerprint
from tests.peers.loops.numbers import flattened
from tests.peers.loops.ranks import epochs_of_ranks, run_on_two_ranks
from tests.support.numbers import Count, Numbers, Seen, SizedCount, epochs, loader, samples, seen

accelerate = pytest.importorskip("accelerate")

pytestmark = pytest.mark.filterwarnings("ignore")


def prepared(stateful: bool = False, config: dict[str, Any] | None = None, **options: Any) -> Any:
    """Return an accelerator and a loader that it has prepared.

    Args:
        stateful: whether Accelerate wraps it in torchdata's StatefulDataLoader.
        config: of Accelerate.
        options: of the loader.
    """
    if stateful:
        pytest.importorskip("torchdata")
    settings = config or {}
    configuration = accelerate.DataLoaderConfiguration(use_stateful_dataloader=stateful, **settings)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=configuration)
    return accelerator, accelerator.prepare(loader(**options))


CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {"split_batches": True},
    {"dispatch_batches": True},
    {"use_seedable_sampler": True},
    {"even_batches": False},
]


@pytest.mark.parametrize("config", CONFIGURATIONS)
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_prepared_loader_gives_the_bytes_of_an_unprepared_one(
    config: dict[str, Any], shuffle: bool
) -> None:
    _, batches = prepared(config=config, shuffle=shuffle)
    unprepared = loader(shuffle=shuffle)
    for _ in range(2):
        expected = [fingerprint(batch) for batch in unprepared]
        assert [fingerprint(batch) for batch in batches] == expected


@pytest.mark.parametrize("stateful", [False, True])
def test_epochs_follow_each_other(stateful: bool) -> None:
    _, batches = prepared(stateful, num_workers=2)
    assert len(batches) == 6
    assert [seen(batches) for _ in range(3)] == epochs(3)


def test_it_reads_batch_size_total_batch_size_sampler_and_data_set() -> None:
    _, batches = prepared(length=13)
    assert batches.total_batch_size == 2
    assert batches.total_dataset_length == len(batches.dataset) == 13
    assert batches.get_sampler() is batches.batch_sampler.sampler
    for _ in batches:
        pass
    batches.begin()
    assert batches.remainder == 1
    batches.end()


def test_prepare_does_not_prepare_twice() -> None:
    accelerator, batches = prepared()
    assert accelerator.prepare(batches) is batches


def test_first_batches_are_skipped_of_the_epoch_that_was_set(tmp_path: Path) -> None:
    _, second, third = epochs(3)
    accelerator, batches = prepared()
    batches.set_epoch(1)
    iterator = iter(batches)
    assert seen(islice(iterator, 2)) == second[:2]
    accelerator.save_state(str(tmp_path))

    accelerator, batches = prepared(num_workers=1)
    accelerator.load_state(str(tmp_path))
    batches.set_epoch(1)
    assert seen(accelerator.skip_first_batches(batches, 2)) == second[2:]
    batches.set_epoch(2)
    assert seen(batches) == third


def test_skipping_in_an_epoch_that_nobody_named_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The loop of Accelerate's tutorial does not call set_epoch.

    torch's DataLoader would repeat epoch 0 silently.
    """
    accelerator, batches = prepared()
    rest = seen(accelerator.skip_first_batches(batches, 2))
    assert rest == epochs(1)[0][2:]
    (line,) = [record.getMessage() for record in caplog.records]
    assert "the first 2 batches of epoch 0 were skipped" in line
    assert "set_epoch(epoch)" in line


def test_skipping_in_an_epoch_that_was_named_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    accelerator, batches = prepared()
    batches.set_epoch(0)
    assert seen(accelerator.skip_first_batches(batches, 2)) == epochs(1)[0][2:]
    assert not caplog.records


def test_first_batches_are_skipped_of_a_loader_that_was_not_prepared() -> None:
    batches = loader()
    assert seen(accelerate.skip_first_batches(batches, 2)) == epochs(1)[0][2:]
    assert seen(batches) == epochs(2)[1]


@pytest.mark.parametrize("num_taken", [1, 2, 5])
def test_a_saved_state_has_the_place_of_a_stateful_loader(tmp_path: Path, num_taken: int) -> None:
    first, second, third = epochs(3)
    accelerator, batches = prepared(stateful=True)
    assert seen(batches) == first
    iterator = iter(batches)
    assert seen(islice(iterator, num_taken)) == second[:num_taken]
    accelerator.save_state(str(tmp_path))

    accelerator, batches = prepared(stateful=True, num_workers=1)
    accelerator.load_state(str(tmp_path))
    assert seen(batches) == second[num_taken:]
    assert seen(batches) == third


def test_a_state_saved_after_an_epoch_gives_the_next(tmp_path: Path) -> None:
    accelerator, batches = prepared(stateful=True)
    seen(batches)
    accelerator.save_state(str(tmp_path))
    accelerator, batches = prepared(stateful=True)
    accelerator.load_state(str(tmp_path))
    assert seen(batches) == epochs(2)[1]


def test_an_augmenter_is_refused() -> None:
    augmenter = DeterministicAugmenter.from_dataset(Numbers(), 2, num_processes=0, seed=3)
    with pytest.raises(TypeError, match=r"detaug\.DataLoader.*\.loader\(\)"):
        accelerate.Accelerator(cpu=True).prepare(augmenter)


@pytest.mark.parametrize("kind", [Count, SizedCount])
@pytest.mark.parametrize("config", [{}, {"dispatch_batches": True}])
def test_an_iterable_that_is_prepared_is_refused(kind: type[Count], config: dict[str, Any]) -> None:
    configuration = accelerate.DataLoaderConfiguration(**config)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=configuration)
    batches = accelerator.prepare(DataLoader(kind(), 2, seed=3))
    with pytest.raises(
        RuntimeError, match=r"an IterableDataset.* is read as it is, without prepare"
    ):
        next(iter(batches))


# --- two ranks


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    """Return what each of two ranks of Accelerate's saw, by case."""
    return run_on_two_ranks("tests.peers.loops.accelerate_ranks", library="accelerate")


@pytest.mark.parametrize("case", ["seven batches", "seven batches, sharded before"])
def test_seven_batches_are_four_and_four(ranks: list[dict[str, Any]], case: str) -> None:
    first, second = epochs(2, length=14)
    of_rank_0, of_rank_1 = epochs_of_ranks(ranks, case)
    assert of_rank_0 == [first[0::2], second[0::2]]
    assert of_rank_1 == [[*first[1::2], first[0]], [*second[1::2], second[0]]]


def test_dispatched_batches_are_split_where_they_are_no_round(ranks: list[dict[str, Any]]) -> None:
    first, second = epochs(2, length=14)
    of_rank_0, of_rank_1 = epochs_of_ranks(ranks, "dispatched")
    assert of_rank_0 == [[*first[0:6:2], first[6][:1]], [*second[0:6:2], second[6][:1]]]
    assert of_rank_1 == [[*first[1:6:2], first[6][1:]], [*second[1:6:2], second[6][1:]]]


def test_seven_batches_are_three_and_three_without_the_last_round(
    ranks: list[dict[str, Any]],
) -> None:
    (whole,) = epochs(1, length=14)
    of_rank_0, of_rank_1 = epochs_of_ranks(ranks, "the last round dropped")
    assert of_rank_0 == [whole[0:6:2]]
    assert of_rank_1 == [whole[1:6:2]]


def test_a_last_batch_is_filled_for_all_ranks_to_have_as_many_samples(
    ranks: list[dict[str, Any]],
) -> None:
    (whole,) = epochs(1, length=10, batch_size=4)
    first, second, last = whole
    of_rank_0, of_rank_1 = epochs_of_ranks(ranks, "a smaller last batch")
    assert of_rank_0 == [[first, (*last, *first[:2])]]
    assert of_rank_1 == [[second, (*first[2:], *second[:2])]]


def test_metrics_count_every_sample_once(ranks: list[dict[str, Any]]) -> None:
    for results in ranks:
        assert results["gathered"] == {
            "10": list(range(10)),
            "12": list(range(12)),
            "20": list(range(20)),
        }


def test_split_batches_gives_each_rank_its_part(ranks: list[dict[str, Any]]) -> None:
    (whole,) = epochs(1, length=12, batch_size=4)
    of_rank_0, of_rank_1 = epochs_of_ranks(ranks, "split batches")
    assert of_rank_0 == [[batch[:2] for batch in whole]]
    assert of_rank_1 == [[batch[2:] for batch in whole]]


def test_a_drawn_seed_is_rank_0s(ranks: list[dict[str, Any]]) -> None:
    """With one seed the two ranks share the samples; with two seeds some would come twice."""
    of_rank_0, of_rank_1 = epochs_of_ranks(ranks, "a drawn seed")
    all_samples: list[int] = []
    for batch in flattened([*of_rank_0, *of_rank_1]):
        all_samples.extend(batch)
    assert sorted(all_samples) == list(range(12))


@pytest.mark.parametrize("stateful", [False, True])
def test_two_ranks_resume_in_mid_epoch(ranks: list[dict[str, Any]], stateful: bool) -> None:
    _, second, third = epochs(3)
    for rank, resumed in enumerate(epochs_of_ranks(ranks, f"resumed, stateful={stateful}")):
        assert resumed == [second[rank::2][1:], third[rank::2]]


def test_each_rank_makes_its_own_batches_alone(ranks: list[dict[str, Any]]) -> None:
    """A rank's workers make no batch that another rank reads."""
    for results in ranks:
        assert results["made here"] == 3


# --- Trainer


class Module(torch.nn.Module):
    """A linear layer that records the samples of its batches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[Seen] = []

    def forward(self, numbers: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen.append(samples(numbers))
        return {"loss": self.layer(numbers[:, :1]).mean()}


def named(items: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Collate items into the arguments of `Module.forward`."""
    return {"numbers": torch.stack(items)}


@pytest.mark.parametrize("prepares", [True, False])
def test_the_trainer_resumes_in_mid_epoch_and_at_its_end(tmp_path: Path, prepares: bool) -> None:
    transformers = pytest.importorskip("transformers")

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            batches = loader(collate_fn=named)
            if prepares:
                return self.accelerator.prepare(batches)
            return batches

    def train(**options: Any) -> Module:
        module = Module()
        arguments = transformers.TrainingArguments(
            str(tmp_path),
            num_train_epochs=3,
            save_steps=2,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
        )
        Trainer(model=module, args=arguments).train(**options)
        return module

    whole = train()
    expected = flattened(epochs(3))
    assert whole.seen == expected
    for step in (2, 6, 8, 12):
        rest = train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert rest.seen == expected[step:]
        assert torch.equal(rest.layer.weight, whole.layer.weight)


def test_the_trainer_on_two_ranks_resumes_in_any_epoch() -> None:
    pytest.importorskip("transformers")
    ranks = run_on_two_ranks("tests.peers.loops.trainer_ranks", library="transformers.trainer")
    for rank, results in enumerate(ranks):
        expected: list[list[int]] = []
        for epoch in epochs(3, length=14):
            # An odd number of batches is filled with the first one.
            filled = [*epoch, epoch[0]]
            expected.extend(list(batch) for batch in filled[rank::2])
        assert results["whole"] == expected
        for step in (3, 6, 9):
            assert results[str(step)] == expected[step:]


def test_an_augmenter_in_the_trainer_is_refused(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return DeterministicAugmenter.from_dataset(
                Numbers(), 2, num_processes=0, seed=3, collate_fn=named
            )

    arguments = transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    with pytest.raises(TypeError, match=r"transformers .*detaug\.DataLoader.*\.loader\(\)"):
        Trainer(model=Module(), args=arguments).train()
