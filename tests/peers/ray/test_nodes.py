"""Nodes that differ."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from detaug.ray import RayExecutor
from detaug.ray.nodes import NodeReport, remarks, why_unusable

OURS = NodeReport("a", "here", 1, ("0.1.0", 2, 1), (("numpy", "2.1"), ("torch", "2.6")), "x86_64 AVX2")


def test_equal_nodes_are_not_remarked_on() -> None:
    assert why_unusable(replace(OURS, node_id="b"), OURS) == ""
    assert remarks(replace(OURS, node_id="b"), OURS) == []


def test_another_numerics_version_is_refused_with_the_nodes_name() -> None:
    said = why_unusable(replace(OURS, name="gpu-2", detaug=("0.2.0", 2, 2)), OURS)
    assert "gpu-2" in said
    assert "0.2.0" in said


def test_other_libraries_and_processors_are_warned_of() -> None:
    said = remarks(replace(OURS, name="gpu-2", libraries=(("numpy", "2.0"),), processor="aarch64 ASIMD"), OURS)
    assert len(said) == 2
    assert "numpy 2.0 (here 2.1), torch none (here 2.6)" in said[0]
    assert "aarch64 ASIMD" in said[1]
    assert all("gpu-2" in each for each in said)


@pytest.mark.usefixtures("cluster")
def test_this_node_is_as_it_says() -> None:
    here = NodeReport.here()
    assert here.node_id
    assert dict(here.libraries)["numpy"]
    assert RayExecutor(1).options(here.node_id)["scheduling_strategy"].node_id == here.node_id


def test_an_unreachable_cluster_is_named_at_once() -> None:
    program = "from detaug.ray.executor import connect; connect('127.0.0.1:1')"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    ).stderr
    assert "ConnectionError: no connection to the Ray cluster at '127.0.0.1:1'" in said
    assert "ray start --head" in said
