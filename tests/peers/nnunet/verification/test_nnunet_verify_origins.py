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
    Moment,
    Origin,
    bookkeeping_origin,
    first_origin,
    read,
)
from detaug.nnunet.verification.verifying import Result, Row, trainings

KINDS = ("data", "outcome", "weights")


def training(epochs: int = 2, steps: int = 2) -> list[Moment]:
    """The trace of a training in which everything is "same"."""
    moments = []
    for epoch in range(epochs):
        moments.append(Moment(epoch, "start", parts={"weights: w": "same", "weights: momentum of w": "same"}))
        for step in range(steps):
            parts = {f"{kind}: w": "same" for kind in KINDS}
            moments.append(Moment(epoch, "training", step, parts))
        parts = {f"{kind}: w": "same" for kind in ("data", "outcome")}
        moments.append(Moment(epoch, "validation", 0, parts))
    return moments


def changed(place: tuple[int, str, int], kind: str, name: str = "w") -> list[Moment]:
    """The same, but different from there on, as noise in one place makes it: batches stay what they were."""
    moments = training()
    different = False
    for moment in moments:
        for key in moment.parts:
            different = different or (moment.place == place and key == f"{kind}: {name}")
            if different and (not key.startswith("data") or (moment.place == place and kind == "data")):
                moment.parts[key] = "other"
    return moments


@pytest.mark.parametrize(
    ("place", "kind", "told"),
    [
        ((0, "start", 0), "weights", "initial weights"),
        ((0, "training", 0), "data", "data"),
        ((1, "training", 1), "data", "data"),
        ((0, "training", 1), "outcome", "outcome"),
        ((1, "training", 0), "weights", "weights"),
        ((1, "start", 0), "weights", "between epochs"),
        ((0, "validation", 0), "data", "data"),
        ((1, "validation", 0), "outcome", "outcome"),
    ],
)
def test_the_place_where_a_difference_began_is_told(place: tuple[int, str, int], kind: str, told: str) -> None:
    found = first_origin(training(), changed(place, kind))
    epoch, phase, step = place
    wanted = (told, epoch, "", None) if phase == "start" else (told, epoch, phase, step)
    assert found is not None
    assert (found.kind, found.epoch, found.phase, found.step) == wanted


def test_what_differs_first_where_a_training_was_resumed_is_the_resumes() -> None:
    found = first_origin(training(), changed((1, "start", 0), "weights", "momentum of w"), resumed=True)
    assert found is not None
    assert (found.kind, found.name) == ("resume", "momentum of w")
    found = first_origin(training(), changed((1, "training", 0), "outcome"), resumed=True)
    assert found is not None
    assert (found.kind, found.name) == ("resume", "w")


@pytest.mark.parametrize("drop", ["first", "other"])
def test_what_only_one_training_has_is_a_difference(drop: str) -> None:
    one, other = training(), training()
    del (one if drop == "first" else other)[1].parts["weights: w"]
    found = first_origin(one, other)
    assert found is not None
    assert (found.kind, found.name) == ("weights", "w")


def _edit(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    checkpoint: dict[str, Any] = {"logging": {"losses": [0.5, 0.25]}, "network": {"w": torch.zeros(2)}, "best": None}
    change(checkpoint)
    return checkpoint


@pytest.mark.parametrize(
    ("change", "place", "told"),
    [
        (lambda c: c["logging"]["losses"].append(1.0), "logging.losses", "[0.5, 0.25] and [0.5, 0.25, 1.0]"),
        (lambda c: c["network"].update(w=torch.ones(2)), "network.w", "tensor([0., 0.]) and tensor([1., 1.])"),
        (lambda c: c.update(best=np.float64(1)), "best", "nothing and 1.0"),
        (lambda c: c.update(time=1.0), "time", "nothing and 1.0"),
    ],
)
def test_the_first_differing_entry_of_a_checkpoint_is_named(change: Any, place: str, told: str, tmp_path: Path) -> None:
    files = [tmp_path / "one.pth", tmp_path / "other.pth"]
    torch.save(_edit(lambda c: None), files[0])
    torch.save(_edit(change), files[1])
    found = bookkeeping_origin(*files)
    assert (found.kind, found.name) == ("bookkeeping", f"{place} of one.pth")
    assert found.detail == told


def test_equal_entries_in_other_bytes_are_said_to_be_pickled_in_another_way(tmp_path: Path) -> None:
    files = [tmp_path / "one.pth", tmp_path / "other.pth"]
    text = "some text, which is one object here"
    torch.save({"a": text, "b": text}, files[0])
    torch.save({"a": text, "b": "".join(list(text))}, files[1])
    assert files[0].read_bytes() != files[1].read_bytes()
    assert "pickled" in bookkeeping_origin(*files).name


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    moment = Moment(1, "training", 2)
    moment.add("data", {"data": torch.zeros(2), "target": [np.zeros(1), np.ones(1)]}.items())
    moment.add("outcome", [("loss", torch.zeros(3, requires_grad=True) * 2), ("odd", object())])
    (tmp_path / "trace.jsonl").write_text(moment.as_json() + "\n")
    assert read(tmp_path / "trace.jsonl") == [moment]
    assert list(moment.parts) == ["data: data", "data: target", "outcome: loss", "outcome: odd"]
    assert moment.parts["outcome: odd"] == "not compared: builtins.object"


def test_trainings_differ_in_their_processes_and_one_is_killed() -> None:
    planned = trainings(Settings("1", "2d"))
    assert len({training.processes for training in planned}) == 3
    assert [(part.killed, part.resume) for part in planned[2].parts] == [(True, False), (False, True)]


def test_the_report_fits_into_eighty_columns_and_says_what_is_wrong() -> None:
    other = Origin("data", "target", 1, "training", 2)
    rows = (
        Row("straight through", processes=(2,), sha256="ab" * 32, seconds=12.0),
        Row("straight through", "different", processes=(0,), sha256="cd" * 32, origin=other),
        Row("killed in epoch 2 of 2, resumed", "failed", processes=(1, 3), failure="OSError: no space left"),
    )
    result = Result(Settings("Dataset001_Name", "3d_fullres"), rows, "cpu (some processor)")
    file = io.StringIO()
    Console(file=file, width=80).print(result)
    shown = file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "began with data: target of training batch 2 of epoch 1" in shown
    assert "failed: OSError: no space left" in shown
    assert "different: straight through, killed in epoch 2 of 2, resumed" in shown
    assert "1, then 3" in shown
    assert result.as_json()["rows"][1]["origin"]["name"] == "target"
    assert not result.ok


def test_a_difference_without_effect_on_the_checkpoint_is_told_and_passes() -> None:
    origin = Origin("data", "taken_at", 0, "training", 0)
    other = Row("straight through", "equal", processes=(0,), sha256="ab" * 32, origin=origin)
    result = Result(Settings("1", "2d"), (Row("straight through", processes=(2,), sha256="ab" * 32), other))
    file = io.StringIO()
    Console(file=file, width=80).print(result)
    assert "no difference in the checkpoint, but in data: taken_at" in file.getvalue()
    assert "equal: all 2 trainings wrote the same checkpoint" in file.getvalue()
    assert result.ok
