"""Nodes that differ from the driver's are refused, or a warning names the difference."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from detaug.ray import RayExecutor, engine
from detaug.ray.nodes import NodeReport, remark, why_unusable
from tests.peers.ray.test_losses import Slow, in_cluster, pids_of
from tests.support.preloaded import run_code

HERE = NodeReport(
    "a", "here", 1, ("0.1.0", 2, 1), {"numpy": "2.1", "torch": "2.6", "processor": "x86_64 AVX2"}
)


def test_another_numerics_version_is_refused_with_the_nodes_name() -> None:
    other = replace(HERE, name="gpu-2", detaug=("0.2.0", 2, 2))
    reason = why_unusable(other, HERE)
    assert "gpu-2" in reason
    assert "0.2.0" in reason
    assert why_unusable(replace(HERE, node_id="b"), HERE) == ""


def test_another_version_that_makes_the_same_batches_is_taken() -> None:
    other = replace(HERE, name="gpu-2", detaug=("0.2.0", 2, 1))
    assert why_unusable(other, HERE) == ""


def test_other_libraries_and_processors_are_warned_of() -> None:
    facts = {"numpy": "2.0", "processor": "aarch64 ASIMD"}
    warning = remark(replace(HERE, name="gpu-2", facts=facts), HERE)
    differences = (
        "numpy 2.0 (here 2.1), torch none (here 2.6), processor aarch64 ASIMD (here x86_64 AVX2)"
    )
    assert f"gpu-2 differs: {differences}" in warning
    assert remark(replace(HERE, node_id="b"), HERE) == ""


@pytest.mark.usefixtures("cluster")
def test_this_node_is_as_it_says() -> None:
    report = NodeReport.here()
    assert report.node_id
    assert report.facts["numpy"]
    options = RayExecutor(1).options(report.node_id)
    assert options["scheduling_strategy"].node_id == report.node_id


@pytest.mark.usefixtures("cluster")
def test_actors_without_a_place_are_told_of_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_PATIENCE", 1.0)
    message = "of 2 actors some still start, or wait for a place: each wants 5 CPUs"
    with in_cluster(Slow(), limits={"num_cpus": 5}, batches_per_epoch=None) as augmenter:
        while message not in caplog.text:
            next(augmenter)
        assert len(pids_of(augmenter)) == 1


def test_an_unreachable_cluster_is_named_at_once(tmp_path: Path) -> None:
    program = "from detaug.ray.executor import connect; connect('127.0.0.1:1')"
    error = run_code(program, folder=tmp_path, environment=os.environ).stderr
    assert "ConnectionError: no connection to the Ray cluster at '127.0.0.1:1'" in error
    assert "ray start --head" in error


class Opens(Slow):
    """A loader that opens a file when it is unpickled, and fails in an actor."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if os.getpid() != self.driver:
            open("/no/such/folder/dataset.json").close()


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_path_that_is_missing_when_an_actor_starts_is_named_with_the_node() -> None:
    with in_cluster(Opens(), actors=1) as augmenter, pytest.raises(RuntimeError) as error:
        next(augmenter)
    message = str(error.value)
    assert "3 actors in a row could not start" in message
    assert f"ip={ray.util.get_node_ip_address()}" in message
    assert "No such file or directory: '/no/such/folder/dataset.json'" in message
    assert "\x1b" not in message, "the message has no colours"
