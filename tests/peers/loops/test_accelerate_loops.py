"""`detaug.DataLoader` that Accelerate prepared, and in Hugging Face's Trainer."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from detaug import DataLoader, DeterministicAugmenter, fingerprint
from tests.peers.loops.ranks import run_on_two_ranks
from tests.support.numbers import Count, Numbers, Seen, SizedCount, epochs, loader, samples, seen

accelerate = pytest.importorskip("accelerate")

pytestmark = pytest.mark.filterwarnings("ignore")


def prepared(stateful: bool = False, config: dict[str, Any] | None = None, **options: Any) -> Any:
    """(accelerator, loader)"""
    if stateful:
        pytest.importorskip("torchdata")
    configuration = accelerate.DataLoaderConfiguration(
        use_stateful_dataloader=stateful, **(config or {})
    )
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
        assert [fingerprint(one) for one in batches] == [fingerprint(one) for one in unprepared]


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
    accelerator, batches = prepared()
    batches.set_epoch(1)
    passing = iter(batches)
    whole = epochs(3)
    assert [samples(next(passing)) for _ in range(2)] == whole[1][:2]
    accelerator.save_state(str(tmp_path))
    accelerator, batches = prepared(num_workers=1)
    accelerator.load_state(str(tmp_path))
    batches.set_epoch(1)
    assert seen(accelerator.skip_first_batches(batches, 2)) == whole[1][2:]
    batches.set_epoch(2)
    assert seen(batches) == whole[2]


def test_skipping_in_an_epoch_that_nobody_named_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """As in Accelerate's tutorial, whose loop does not call set_epoch: torch's DataLoader would
    repeat epoch 0 silently.
    """
    accelerator, batches = prepared()
    rest = seen(accelerator.skip_first_batches(batches, 2))
    assert rest == epochs(1)[0][2:]
    (line,) = (record.getMessage() for record in caplog.records)
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


@pytest.mark.parametrize("taken", [1, 2, 5])
def test_a_saved_state_has_the_place_of_a_stateful_loader(tmp_path: Path, taken: int) -> None:
    accelerator, batches = prepared(stateful=True)
    whole = epochs(3)
    assert seen(batches) == whole[0]
    passing = iter(batches)
    assert [samples(next(passing)) for _ in range(taken)] == whole[1][:taken]
    accelerator.save_state(str(tmp_path))
    accelerator, batches = prepared(stateful=True, num_workers=1)
    accelerator.load_state(str(tmp_path))
    assert [seen(batches) for _ in range(2)] == [whole[1][taken:], whole[2]]


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
# ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return run_on_two_ranks("tests.peers.loops.accelerate_ranks", library="accelerate")


def of(ranks: list[dict[str, Any]], case: str) -> list[Any]:
    """What each rank saw: epochs of batches, as tuples."""
    return [[[tuple(batch) for batch in epoch] for epoch in found[case]] for found in ranks]


@pytest.mark.parametrize("case", ["seven batches", "seven batches, sharded before"])
def test_seven_batches_are_four_and_four(ranks: list[dict[str, Any]], case: str) -> None:
    whole = epochs(2, length=14)
    assert of(ranks, case) == [
        [epoch[0::2] for epoch in whole],
        [[*epoch[1::2], epoch[0]] for epoch in whole],
    ]


def test_dispatched_batches_are_split_where_they_are_no_round(ranks: list[dict[str, Any]]) -> None:
    whole = epochs(2, length=14)
    assert of(ranks, "dispatched") == [
        [[*epoch[0:6:2], epoch[6][:1]] for epoch in whole],
        [[*epoch[1:6:2], epoch[6][1:]] for epoch in whole],
    ]


def test_seven_batches_are_three_and_three_without_the_last_round(
    ranks: list[dict[str, Any]],
) -> None:
    (whole,) = epochs(1, length=14)
    assert of(ranks, "the last round dropped") == [[whole[0:6:2]], [whole[1:6:2]]]


def test_a_last_batch_is_filled_for_all_ranks_to_have_as_many_samples(
    ranks: list[dict[str, Any]],
) -> None:
    (whole,) = epochs(1, length=10, batch_size=4)
    *_, (a, b) = whole
    first, second = whole[0], whole[1]
    found = of(ranks, "a smaller last batch")
    assert found[0] == [[first, (a, b, *first[:2])]]
    assert found[1] == [[second, (*first[2:], *second[:2])]]


def test_metrics_count_every_sample_once(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["gathered"] == {
            "10": list(range(10)),
            "12": list(range(12)),
            "20": list(range(20)),
        }


def test_split_batches_gives_each_rank_its_part(ranks: list[dict[str, Any]]) -> None:
    (whole,) = epochs(1, length=12, batch_size=4)
    assert of(ranks, "split batches") == [
        [[batch[:2] for batch in whole]],
        [[batch[2:] for batch in whole]],
    ]


def test_a_drawn_seed_is_rank_0s(ranks: list[dict[str, Any]]) -> None:
    first, second = of(ranks, "a drawn seed")
    assert sorted(
        sample for epoch in (*first, *second) for batch in epoch for sample in batch
    ) == list(range(12))


@pytest.mark.parametrize("stateful", [False, True])
def test_two_ranks_resume_in_mid_epoch(ranks: list[dict[str, Any]], stateful: bool) -> None:
    whole = epochs(3)
    for rank, found in enumerate(of(ranks, f"resumed, stateful={stateful}")):
        assert found == [whole[1][rank::2][1:], whole[2][rank::2]]


def test_each_rank_makes_its_own_batches_alone(ranks: list[dict[str, Any]]) -> None:
    """Workers make no batch that another rank reads."""
    for found in ranks:
        assert found["made here"] == 3


# --- Trainer
# --------------------------------------------------------------------------------------------------------------


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[Seen] = []

    def forward(self, numbers: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen.append(samples(numbers))
        return {"loss": self.layer(numbers[:, :1]).mean()}


def named(items: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"numbers": torch.stack(items)}


@pytest.mark.parametrize("prepares", [True, False])
def test_the_trainer_resumes_in_mid_epoch_and_at_its_end(tmp_path: Path, prepares: bool) -> None:
    transformers = pytest.importorskip("transformers")

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            batches = loader(collate_fn=named)
            return self.accelerator.prepare(batches) if prepares else batches

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
    expected = list(chain.from_iterable(epochs(3)))
    assert whole.seen == expected
    for step in (2, 6, 8, 12):
        rest = train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert rest.seen == expected[step:]
        assert torch.equal(rest.layer.weight, whole.layer.weight)


def test_the_trainer_on_two_ranks_resumes_in_any_epoch() -> None:
    pytest.importorskip("transformers")
    whole = epochs(3, length=14)
    ranks = run_on_two_ranks("tests.peers.loops.trainer_ranks", library="transformers.trainer")
    for rank, found in enumerate(ranks):
        filled = [[*epoch, epoch[0]][rank::2] for epoch in whole]
        expected = [list(batch) for epoch in filled for batch in epoch]
        assert found["whole"] == expected
        for step in (3, 6, 9):
            assert found[str(step)] == expected[step:]


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
