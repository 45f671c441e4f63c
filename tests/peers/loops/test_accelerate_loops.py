"""`aug.loader()` that Accelerate prepared, and in Hugging Face's Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.peers.loops.numbers import Seen, augmenter, in_a_row, loader, reference, samples, seen

accelerate = pytest.importorskip("accelerate")

pytestmark = pytest.mark.filterwarnings("ignore")


def prepared(workers: int = 0, stateful: bool = False) -> tuple[Any, Any]:
    options = accelerate.DataLoaderConfiguration(use_stateful_dataloader=stateful)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=options)
    return accelerator, accelerator.prepare(loader(workers))


@pytest.mark.parametrize("stateful", [False, True])
def test_epochs_follow_each_other(stateful: bool) -> None:
    if stateful:
        pytest.importorskip("torchdata")
    _, batches = prepared(2, stateful)
    assert len(batches) == 6
    assert [seen(batches) for _ in range(3)] == reference()[:3]


def test_first_batches_are_skipped_of_the_epoch_that_was_set(tmp_path: Path) -> None:
    accelerator, batches = prepared()
    batches.set_epoch(1)
    passing = iter(batches)
    assert seen(next(passing) for _ in range(2)) == reference()[1][:2]
    accelerator.save_state(str(tmp_path))
    accelerator, batches = prepared(1)
    accelerator.load_state(str(tmp_path))
    batches.set_epoch(1)
    assert seen(accelerator.skip_first_batches(batches, 2)) == reference()[1][2:]
    batches.set_epoch(2)
    assert seen(batches) == reference()[2]


def test_first_batches_are_skipped_of_a_loader_that_was_not_prepared() -> None:
    batches = loader()
    assert seen(accelerate.skip_first_batches(batches, 2)) == reference()[0][2:]
    assert seen(batches) == reference()[1]


@pytest.mark.parametrize("taken", [1, 2, 5])
def test_a_saved_state_has_the_place_of_a_stateful_loader(tmp_path: Path, taken: int) -> None:
    pytest.importorskip("torchdata")
    accelerator, batches = prepared(stateful=True)
    assert seen(batches) == reference()[0]
    passing = iter(batches)
    assert seen(next(passing) for _ in range(taken)) == reference()[1][:taken]
    accelerator.save_state(str(tmp_path))
    accelerator, batches = prepared(1, stateful=True)
    accelerator.load_state(str(tmp_path))
    assert [seen(batches) for _ in range(2)] == [reference()[1][taken:], reference()[2]]


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
            batches = augmenter(collate_fn=named).loader()
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

    whole, expected = train(), in_a_row(reference()[:3])
    assert whole.seen == expected
    for step in (2, 6, 8, 12):
        rest = train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert rest.seen == expected[step:]
        assert torch.equal(rest.layer.weight, whole.layer.weight)
