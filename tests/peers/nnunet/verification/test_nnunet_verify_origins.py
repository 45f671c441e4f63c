"""Where two trainings parted, told from their traces and checkpoints alone."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from detaug.nnunet.verification.settings import Settings
from detaug.nnunet.verification.traces import (
    Origin,
    at_start,
    bookkeeping_origin,
    first_origin,
    in_step,
)
from detaug.nnunet.verification.verifying import Row, Trainings, trainings
from detaug.training.comparing import Event


def training() -> list[Event]:
    """The trace of a training of two epochs in which everything is "same"."""
    trace = []
    for epoch in range(2):
        trace += [Event(at_start(epoch), "start", name, "same") for name in ("w", "momentum of w")]
        for phase, kinds in (
            ("training", ("data", "outcome", "weights")),
            ("validation", ("data", "outcome")),
        ):
            trace += [
                Event(in_step(phase, step, epoch), kind, "w", "same")
                for step in range(2)
                for kind in kinds
            ]
    return trace


def changed(place: str, kind: str, name: str = "w") -> list[Event]:
    """The same, but different from there on, as noise in one place makes it: batches stay what they were."""
    trace = training()
    first = trace.index(Event(place, kind, name, "same"))
    later = [
        event if event.stage == "data" else event._replace(digest="other")
        for event in trace[first + 1 :]
    ]
    return [*trace[:first], trace[first]._replace(digest="other"), *later]


@pytest.mark.parametrize(
    ("place", "kind", "told"),
    [
        (at_start(0), "start", "initial weights"),
        (in_step("training", 0, 0), "data", "data"),
        (in_step("training", 1, 1), "data", "data"),
        (in_step("training", 1, 0), "outcome", "outcome"),
        (in_step("training", 0, 1), "weights", "weights"),
        (at_start(1), "start", "between epochs"),
        (in_step("validation", 0, 0), "data", "data"),
        (in_step("validation", 0, 1), "outcome", "outcome"),
    ],
)
def test_the_place_where_a_difference_began_is_told(place: str, kind: str, told: str) -> None:
    assert first_origin(training(), changed(place, kind)) == Origin(told, f"w {place}")


def test_what_differs_first_where_a_training_was_resumed_is_the_resumes() -> None:
    found = first_origin(training(), changed(at_start(1), "start", "momentum of w"), resumed=True)
    assert found == Origin("resume", "momentum of w at the start of epoch 1")
    first = in_step("training", 0, 1)
    found = first_origin(training(), changed(first, "outcome"), resumed=True)
    assert found == Origin("resume", "w of training batch 0 of epoch 1")
    assert first_origin(training(), changed(first, "data"), resumed=True) == Origin(
        "data", f"w {first}"
    )


@pytest.mark.parametrize("drop", ["first", "other"])
def test_what_only_one_training_has_is_a_difference(drop: str) -> None:
    one, other = training(), training()
    del (one if drop == "first" else other)[1]
    found = first_origin(one, other)
    assert found is not None
    assert (found.kind, "momentum of w" in found.where) == ("initial weights", True)


def _edit(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    checkpoint: dict[str, Any] = {
        "logging": {"losses": [0.5, 0.25]},
        "network": {"w": torch.zeros(2)},
        "best": None,
    }
    change(checkpoint)
    return checkpoint


@pytest.mark.parametrize(
    ("change", "place", "told"),
    [
        (
            lambda c: c["logging"]["losses"].append(1.0),
            "logging.losses",
            "[0.5, 0.25] and [0.5, 0.25, 1.0]",
        ),
        (
            lambda c: c["network"].update(w=torch.ones(2)),
            "network.w",
            "tensor([0., 0.]) and tensor([1., 1.])",
        ),
        (lambda c: c.update(best=np.float64(1)), "best", "None and 1.0"),
        (lambda c: c.update(time=1.0), "time", "nothing and 1.0"),
    ],
)
def test_the_first_differing_entry_of_a_checkpoint_is_named(
    change: Any, place: str, told: str, tmp_path: Path
) -> None:
    files = [tmp_path / "one.pth", tmp_path / "other.pth"]
    torch.save(_edit(lambda c: None), files[0])
    torch.save(_edit(change), files[1])
    found = bookkeeping_origin(*files)
    assert found == Origin("bookkeeping", f"{place} of one.pth ({told})")


def test_equal_entries_in_other_bytes_are_said_to_be_pickled_in_another_way(tmp_path: Path) -> None:
    files = [tmp_path / "one.pth", tmp_path / "other.pth"]
    text = "some text, which is one object here"
    torch.save({"a": text, "b": text}, files[0])
    torch.save({"a": text, "b": "".join(list(text))}, files[1])
    assert files[0].read_bytes() != files[1].read_bytes()
    assert "pickled" in bookkeeping_origin(*files).where


def test_trainings_differ_in_their_processes_and_one_is_killed() -> None:
    planned = trainings(Settings("1", "2d"))
    assert len({tuple(part.processes for part in training.parts) for training in planned}) == 3
    assert [(part.killed, part.resume) for part in planned[2].parts] == [
        (True, False),
        (False, True),
    ]


def test_the_report_fits_into_eighty_columns_and_says_what_is_wrong() -> None:
    other = Origin("data", "target of training batch 2 of epoch 1")
    rows = (
        Row("straight through", sha256="ab" * 32, seconds=12.0),
        Row("straight through", "different", sha256="cd" * 32, origin=other),
        Row("killed in epoch 2 of 2, resumed", "failed", failure="OSError: no space left"),
    )
    result = Trainings(Settings("Dataset001_Name", "3d_fullres"), rows, "cpu (some processor)")
    file = io.StringIO()
    Console(file=file, width=80).print(result)
    shown = file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "began with data: target of training batch 2 of epoch 1" in shown
    assert "failed: OSError: no space left" in shown
    assert "different: straight through, killed in epoch 2 of 2, resumed" in shown
    assert result.as_json()["rows"][1]["origin"]["kind"] == "data"
    assert not result.ok


def test_a_difference_without_effect_on_the_checkpoint_is_told_and_passes() -> None:
    origin = Origin("data", "taken_at of training batch 0 of epoch 0")
    other = Row("straight through", "equal", sha256="ab" * 32, origin=origin)
    result = Trainings(Settings("1", "2d"), (Row("straight through", sha256="ab" * 32), other))
    file = io.StringIO()
    Console(file=file, width=80).print(result)
    assert "no difference in the checkpoint, but in data: taken_at" in file.getvalue()
    assert "equal: all 2 trainings wrote the same checkpoint" in file.getvalue()
    assert result.ok
