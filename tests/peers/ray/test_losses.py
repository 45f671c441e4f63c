"""Batches that are lost with actors, nodes or object stores of a cluster are rebuilt."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batchgenerators.dataloading.data_loader import DataLoader

from detaug import DeterministicAugmenter, WorkerDied, current, fingerprint
from detaug.ray import RayExecutor
from tests.support.processes import wait_until
from tests.support.waiting import run_program

EPOCH = 40


class Slow(DataLoader):
    """A loader of batches of 0.5 MB.

    Args:
        deadly: the step whose every worker kills itself, or None.
        delay: time that a batch takes, in seconds.
    """

    def __init__(self, deadly: int | None = None, delay: float = 0.05) -> None:
        super().__init__(None, 1, infinite=True)
        self.deadly = deadly
        self.delay = delay

    def generate_train_batch(self) -> dict[str, Any]:
        time.sleep(self.delay)
        position = current()
        if position.step == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return {
            "at": (position.epoch, position.step),
            "data": position.generator.random((1, 2, 64, 32, 32), np.float32),
            "host": 0,
        }


class Counting(DataLoader):
    """A loader of twelve batches that keeps its position."""

    def __init__(self) -> None:
        super().__init__(list(range(24)), 2, infinite=False)
        self.count = 0

    def reset(self) -> None:
        self.count = 0

    def generate_train_batch(self) -> dict[str, Any]:
        if self.count >= 12:
            raise StopIteration
        self.count += 1
        time.sleep(0.02)
        data = np.full((1, 1, 8, 8), self.count) + np.random.random()
        return {"data": data, "at": self.count}


class DiesAtACheck(Slow):
    """A loader whose process kills itself at the first check of a batch.

    Files in a folder say what happened: "EPOCH STEP" was made, "again EPOCH STEP" was checked, and
    "died" names the batch at whose check the process died.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def generate_train_batch(self) -> dict[str, Any]:
        name = f"{current().epoch} {current().step}"
        made = self.folder / name
        died = self.folder / "died"
        if not made.exists():
            made.touch()
        elif not died.exists():
            died.write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            (self.folder / f"again {name}").touch()
        return super().generate_train_batch()


def expected(loader: DataLoader, epoch: int = 0) -> list[str]:
    """Return the fingerprints of an epoch's batches, made in this process."""
    with DeterministicAugmenter(
        loader, None, 0, seed=5, batches_per_epoch=EPOCH, check=False
    ) as augmenter:
        augmenter.set_epoch(epoch)
        return [fingerprint(batch) for batch in augmenter]


def in_cluster(
    loader: DataLoader,
    num_processes: int = 0,
    actors: int = 2,
    limits: dict[str, Any] | None = None,
    **options: Any,
) -> DeterministicAugmenter:
    """Return an augmenter whose batches are made in the cluster.

    Args:
        loader: the loader.
        num_processes: of the augmenter: the actors that it needs at least.
        actors: of the executor.
        limits: further arguments of the executor.
        options: of the augmenter.
    """
    options = {"batches_per_epoch": EPOCH, "check": False, **options}
    executor = RayExecutor(actors, **(limits or {}))
    return DeterministicAugmenter(
        loader, None, num_processes, 4, seed=5, executor=executor, **options
    )


def pids_of(augmenter: DeterministicAugmenter) -> list[int]:
    """Return the process ids of the actors on this machine."""
    engine: Any = augmenter._engine
    return list(engine._pids_here())


def take(augmenter: DeterministicAugmenter, count: int) -> list[str]:
    """Return the fingerprints of the next batches."""
    return [fingerprint(next(augmenter)) for _ in range(count)]


def take_rest(augmenter: DeterministicAugmenter) -> list[str]:
    """Return the fingerprints of the rest of the epoch."""
    return [fingerprint(batch) for batch in augmenter]


def assert_replacement_is_logged(text: str) -> None:
    """Check that the log says that an actor was lost, with or without a batch."""
    is_rebuilding = "another worker is rebuilding the batch" in text
    assert is_rebuilding or "another takes its place" in text


@pytest.mark.usefixtures("cluster")
class TestOneNode:
    def test_a_killed_actor_is_replaced(self, caplog: pytest.LogCaptureFixture) -> None:
        with in_cluster(Slow()) as augmenter:
            begun = take(augmenter, 5)
            killed = pids_of(augmenter)[0]
            os.kill(killed, signal.SIGKILL)
            rest = take_rest(augmenter)

            def is_replaced() -> bool:
                return len(set(pids_of(augmenter)) - {killed}) == 2

            wait_until(is_replaced, "another takes its place")
        assert begun + rest == expected(Slow(delay=0))
        assert_replacement_is_logged(caplog.text)

    @pytest.mark.slow
    def test_a_stream_goes_on_in_another_actor(self) -> None:
        with in_cluster(Counting(), actors=1, batches_per_epoch=None) as augmenter:
            begun = take(augmenter, 5)
            os.kill(pids_of(augmenter)[0], signal.SIGKILL)
            rest = take_rest(augmenter)
        with DeterministicAugmenter(Counting(), None, 0, seed=5, check=False) as in_process:
            assert begun + rest == take_rest(in_process)

    @pytest.mark.slow
    def test_a_batch_that_kills_its_actors_fails(self) -> None:
        with in_cluster(Slow(deadly=3), actors=1, limits={"max_restarts": 2}) as augmenter:
            take(augmenter, 3)
            message = r"epoch 0, step 3 .* ended 2 workers in a row"
            with pytest.raises(WorkerDied, match=message) as error:
                next(augmenter)
        assert error.value.exitcode is None

    def test_batches_can_be_written_to_and_outlive_the_engine(self) -> None:
        with in_cluster(Slow(), actors=1) as augmenter:
            first = next(augmenter)
            second = next(augmenter)
            next(augmenter)
            fingerprint_before = fingerprint(first)
            second["data"][:] = 0
        assert fingerprint(first) == fingerprint_before
        assert not second["data"].any()

    @pytest.mark.slow
    def test_an_actor_that_dies_at_a_check_leaves_that_check_out(
        self, caplog: pytest.LogCaptureFixture, tmp_path: Path
    ) -> None:
        loader = DiesAtACheck(tmp_path)
        with in_cluster(loader, actors=2, batches_per_epoch=12, check=1) as augmenter:
            fingerprints = take_rest(augmenter)
            stats = augmenter.stats()
        assert fingerprints == expected(Slow(delay=0))[:12]
        assert stats["checked"] > 0
        assert stats["mismatches"] == 0
        not_checked = (tmp_path / "died").read_text()
        assert not (tmp_path / f"again {not_checked}").exists()
        assert_replacement_is_logged(caplog.text)


#: Arguments of a node.
NODE = {"num_cpus": 2, "object_store_memory": 200 * 2**20}


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start a cluster to which nodes can be added."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.slow
class TestSeveralNodes:
    def test_nodes_come_and_go(self, nodes: Any) -> None:
        second = nodes.add_node(**NODE)
        nodes.add_node(**NODE)
        nodes.wait_for_nodes()
        nodes.connect()
        with in_cluster(Slow(), num_processes=1, actors=3) as augmenter:
            fingerprints = take(augmenter, 8)
            nodes.remove_node(second, allow_graceful=False)
            fingerprints += take(augmenter, 8)
            nodes.add_node(**NODE)
            fingerprints += take_rest(augmenter)
            next_epoch = take_rest(augmenter)
        assert fingerprints == expected(Slow(delay=0))
        assert next_epoch == expected(Slow(delay=0), 1)

    def test_nodes_without_memory_for_any_actor_are_an_error_that_names_them(self) -> None:
        done = run_program([sys.executable, "-m", "tests.peers.ray.without_memory"])
        assert "RuntimeError: 3 actors in a row could not start" in done.stderr
        assert "running low on memory. Memory on the node (IP: " in done.stderr
        assert "the engine's thread failed" not in done.stderr
