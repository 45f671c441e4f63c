"""What is lost in a cluster is made again: actors, nodes, object stores."""

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
    """Batches of 1 MB that take their time; `deadly`: at that step its process ends itself, in
    every making.
    """

    def __init__(self, deadly: int | None = None, delay: float = 0.05) -> None:
        super().__init__(None, 1, infinite=True)
        self.deadly = deadly
        self.delay = delay

    def generate_train_batch(self) -> dict[str, Any]:
        time.sleep(self.delay)
        now = current()
        if now.step == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return {
            "at": (now.epoch, now.step),
            "data": now.generator.random((1, 2, 64, 32, 32), np.float32),
            "host": 0,
        }


class Counting(DataLoader):
    """A loader with state: finite, batch by batch."""

    def __init__(self) -> None:
        super().__init__(list(range(24)), 2, infinite=False)
        self.at = 0

    def reset(self) -> None:
        self.at = 0

    def generate_train_batch(self) -> dict[str, Any]:
        if self.at >= 12:
            raise StopIteration
        self.at += 1
        time.sleep(0.02)
        return {"data": np.full((1, 1, 8, 8), self.at) + np.random.random(), "at": self.at}


class DiesAtACheck(Slow):
    """The first time that a batch is made for the second time, its process ends itself."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def generate_train_batch(self) -> dict[str, Any]:
        name = f"{current().epoch} {current().step}"
        try:
            (self.folder / name).touch(exist_ok=False)
        except FileExistsError:
            if not (self.folder / "died").exists():
                (self.folder / "died").write_text(name)
                os.kill(os.getpid(), signal.SIGKILL)
            (self.folder / f"again {name}").touch()
        return super().generate_train_batch()


def expected(loader: DataLoader, epoch: int = 0, **options: Any) -> list[str]:
    with DeterministicAugmenter(
        loader, None, 0, seed=5, batches_per_epoch=EPOCH, check=False, **options
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
    options = {"batches_per_epoch": EPOCH, "check": False, **options}
    executor = RayExecutor(actors, **(limits or {}))
    return DeterministicAugmenter(
        loader, None, num_processes, 4, seed=5, executor=executor, **options
    )


def pids_of(augmenter: DeterministicAugmenter) -> list[int]:
    engine: Any = augmenter._engine
    return list(engine._pids_here())


@pytest.mark.usefixtures("cluster")
class TestOneNode:
    def test_a_killed_actor_is_replaced(self, caplog: pytest.LogCaptureFixture) -> None:
        with in_cluster(Slow()) as augmenter:
            found = [fingerprint(next(augmenter)) for _ in range(5)]
            killed = pids_of(augmenter)[0]
            os.kill(killed, signal.SIGKILL)
            found += [fingerprint(batch) for batch in augmenter]
            wait_until(
                lambda: len({*pids_of(augmenter)} - {killed}) == 2, "another takes its place"
            )
        assert found == expected(Slow(delay=0))
        assert (
            "another worker is rebuilding the batch" in caplog.text
            or "another takes its place" in caplog.text
        )

    @pytest.mark.slow
    def test_a_stream_goes_on_in_another_actor(self) -> None:
        with in_cluster(Counting(), actors=1, batches_per_epoch=None) as augmenter:
            found = [fingerprint(next(augmenter)) for _ in range(5)]
            os.kill(pids_of(augmenter)[0], signal.SIGKILL)
            found += [fingerprint(batch) for batch in augmenter]
        with DeterministicAugmenter(Counting(), None, 0, seed=5, check=False) as alone:
            assert found == [fingerprint(batch) for batch in alone]

    @pytest.mark.slow
    def test_a_batch_that_kills_its_actors_fails(self) -> None:
        with in_cluster(Slow(deadly=3), actors=1, limits={"max_restarts": 2}) as augmenter:
            for _ in range(3):
                next(augmenter)
            with pytest.raises(
                WorkerDied, match=r"epoch 0, step 3 .* ended 2 workers in a row"
            ) as caught:
                next(augmenter)
        assert caught.value.exitcode is None

    def test_batches_can_be_written_to_and_outlive_the_engine(self) -> None:
        with in_cluster(Slow(), actors=1) as augmenter:
            batches = [next(augmenter) for _ in range(3)]
            before = fingerprint(batches[0])
            batches[1]["data"][:] = 0
        assert fingerprint(batches[0]) == before
        assert not batches[1]["data"].any()

    @pytest.mark.slow
    def test_an_actor_that_dies_at_a_check_leaves_that_check_out(
        self, caplog: pytest.LogCaptureFixture, tmp_path: Path
    ) -> None:
        with in_cluster(
            DiesAtACheck(tmp_path), actors=2, batches_per_epoch=12, check=1
        ) as augmenter:
            found = [fingerprint(batch) for batch in augmenter]
            stats = augmenter.stats()
        assert found == expected(Slow(delay=0))[:12]
        assert stats["checked"] > 0
        assert stats["mismatches"] == 0
        left_out = (tmp_path / "died").read_text()
        assert not (tmp_path / f"again {left_out}").exists()
        assert (
            "another takes its place" in caplog.text
            or "another worker is rebuilding the batch" in caplog.text
        )


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of its own, with a head that has no CPUs to give."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray.shutdown()
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 200 * 2**20}
    )
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.mark.slow
class TestSeveralNodes:
    def test_nodes_come_and_go(self, nodes: Any) -> None:
        others = [nodes.add_node(num_cpus=2, object_store_memory=200 * 2**20) for _ in range(2)]
        nodes.wait_for_nodes()
        nodes.connect()
        with in_cluster(Slow(), num_processes=1, actors=3) as augmenter:
            found = [fingerprint(next(augmenter)) for _ in range(8)]
            nodes.remove_node(others[0], allow_graceful=False)
            found += [fingerprint(next(augmenter)) for _ in range(8)]
            nodes.add_node(num_cpus=2, object_store_memory=200 * 2**20)
            found += [fingerprint(batch) for batch in augmenter]
            found += [fingerprint(batch) for batch in augmenter]
        assert found == expected(Slow(delay=0)) + expected(Slow(delay=0), 1)

    def test_nodes_without_memory_for_any_actor_are_an_error_that_names_them(self) -> None:
        done = run_program([sys.executable, "-m", "tests.peers.ray.without_memory"])
        assert "RuntimeError: 3 actors in a row could not start" in done.stderr
        assert "running low on memory. Memory on the node (IP: " in done.stderr
        assert "the engine's thread failed" not in done.stderr
