"""Whoever meets a limit of the system, or its out-of-memory killer, is told which, its value, and
what to do.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import detaug
from detaug.engine.local import pool
from detaug.errors import BatchError
from detaug.system.limits import LimitReached, lines
from tests.processes.engine.misbehaving import MeetsALimit
from tests.support.augmenters import Maker
from tests.support.comparing import fingerprints_of, take
from tests.support.loaders import RandomLoader
from tests.support.processes import (
    Script,
    open_descriptors,
    own_processes,
    wait_until,
    worker_pids,
)
from tests.support.witness import WITNESS

pytestmark = pytest.mark.timeout(90)


class Kilobytes(RandomLoader):
    """Batches that are too large for a message."""

    def generate_train_batch(self) -> dict[str, Any]:
        return {"data": np.random.random((100, 100)), "step": detaug.current().step}


@pytest.mark.parametrize(
    ("which", "words"),
    [
        (
            "array",
            [
                "MemoryError",
                "limited to 4096 MiB (ulimit -v)",
                "free on the machine",
                "num_processes",
            ],
        ),
        ("batch", ["bytes of shared memory for a batch", "(ulimit -v)", "smaller batches"]),
        ("descriptors", ["bytes of shared memory for a batch", "open files", "ulimit -n"]),
    ],
)
def test_batch_that_meets_a_limit_in_its_worker_says_so(
    make: Maker, which: str, words: list[str]
) -> None:
    augmenter = make(MeetsALimit(which), None, 1, seed=1)
    take(augmenter, 2)
    with pytest.raises(BatchError, match="epoch 0, step 2") as caught:
        next(augmenter)
    for word in words:
        assert word in str(caught.value)


@contextmanager
def descriptors_left(number: int) -> Iterator[None]:
    """This process may open so many more files."""
    # what earlier tests left is not to give descriptors back meanwhile
    gc.collect()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, open_descriptors())) + 40, before[1]))
    try:
        while True:
            try:
                held.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        for _ in range(number):
            os.close(held.pop())
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("left", [0, 1, 2, 3, 4, 5])
def test_start_without_descriptors_says_so_and_leaves_nothing(make: Maker, left: int) -> None:
    make(RandomLoader(), None, 1, seed=1)._start()
    make.close()
    before, here = open_descriptors(), set(own_processes())
    with descriptors_left(left):
        augmenter = make(RandomLoader(), None, 2, seed=1)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        with pytest.raises(
            (LimitReached, RuntimeError), match=rf"limited to {limit} here \(ulimit -n"
        ):
            next(augmenter)
        augmenter.close()
    # An earlier test's batches may have been collected meanwhile, and their memory closed.
    assert open_descriptors().items() <= before.items()
    assert set(own_processes()) <= here


def test_parent_without_descriptors_says_so_and_goes_on_when_there_are_some(make: Maker) -> None:
    options = {"seed": 1, "batches_per_epoch": 20, "check": False}
    expected = fingerprints_of(make(Kilobytes(), None, 0, **options))
    augmenter = make(Kilobytes(), None, 2, **options)
    first = next(augmenter)
    # The engine gives back what it started with, in its own thread: none of that is to be free
    # later on.
    seen, now = None, open_descriptors()
    while seen != now:
        time.sleep(0.5)
        seen, now = now, open_descriptors()
    held: list[object] = []
    with (
        descriptors_left(0),
        pytest.raises(BatchError, match=r"taken over from its worker.* open files"),
    ):
        # The slots that are there already carry some batches; holding them all takes new ones.
        held += [next(augmenter) for _ in range(19)]
    del first, held
    augmenter.set_epoch(0)
    assert fingerprints_of(augmenter) == expected


def test_no_processes_left_is_said_with_the_limit(script: Callable[..., Script]) -> None:
    if os.geteuid() != 0:
        pytest.skip("another user without processes takes root")
    run = script(
        """
        import resource
        os.setgid(65534)
        os.setuid(65534)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        try:
            with augmenter() as aug:
                next(aug)
        except (OSError, RuntimeError) as error:
            print("ulimit -u" in str(error), "limited to 1" in str(error))
        """,
        "fork",
    )
    run.finish()
    assert run.lines == ["True True"]
    run.assert_nobody_left()


@pytest.mark.parametrize("stateless", [True, False])
def test_the_others_go_on_without_a_worker_that_cannot_be_started(
    make: Maker,
    stateless: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fork, full = os.fork, tmp_path / "full"

    def fork_if_there_is_room() -> int:
        if full.exists():
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", fork_if_there_is_room)
    monkeypatch.setattr(pool, "_START_PAUSE", 0.1)
    options = {"seed": 1, "stateless": stateless, "num_streams": 2}
    expected = fingerprints_of(take(make(RandomLoader(), None, 0, **options), 30))
    augmenter = make(RandomLoader(), None, 2, **options)
    batches = take(augmenter, 4)
    full.touch()
    os.kill(batches[-1][WITNESS]["pid"], signal.SIGKILL)
    assert fingerprints_of([*batches, *take(augmenter, 20)]) == expected[:24]
    wait_until(lambda: "The other workers continue" in caplog.text, "a worker is given up")
    full.unlink()
    assert fingerprints_of(take(augmenter, 6)) == expected[24:]


LIMIT = 1536 << 20

RUN = """
    import logging
    logging.basicConfig(format="%(message)s")
    # what holds for this process holds for those that it starts
    open(sys.argv[2] + "/cgroup.procs", "w").write(str(os.getpid()))
    from detaug import current, fingerprint

    class Greedy(Loader):
        def __next__(self):
            if current().step == 3 and not os.path.exists("flag"):
                open("flag", "w").close()
                taken = []
                while True:
                    taken.append(np.ones(10_000_000, np.uint8))
            return super().__next__()

    most = np.ones(700_000_000, np.uint8)  # more than a worker has of its own until nothing is left
    with augmenter(Greedy(), executor=LocalProcesses(START_METHOD, max_restarts=2), stateless=True) as aug:
        for _ in range(6):
            print(next(aug)["data"].sum())
"""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Path]:
    """A control group that may have 1.5 GiB of memory."""
    for line in lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            below, name, swap = (
                Path("/sys/fs/cgroup/memory") / path.lstrip("/"),
                "memory.limit_in_bytes",
                "",
            )
        elif controllers == "" and Path("/sys/fs/cgroup/cgroup.controllers").exists():
            below, name, swap = (
                Path("/sys/fs/cgroup") / path.lstrip("/"),
                "memory.max",
                "memory.swap.max",
            )
        else:
            continue
        made = below / f"detaug-test-{os.getpid()}"
        try:
            made.mkdir()
            (made / name).write_text(str(LIMIT))
            if swap and (made / swap).exists():
                (made / swap).write_text("0")
        except OSError:
            if made.exists():
                made.rmdir()
            continue
        yield made
        made.rmdir()
        return
    pytest.skip(
        "no control group for memory can be made here (it takes root, and a writable "
        "/sys/fs/cgroup)"
    )


def test_worker_that_the_kernel_kills_for_want_of_memory_is_recognised_and_its_batch_made_again(
    script: Callable[..., Script], group: Path
) -> None:
    run = script(RUN, "fork", str(group))
    run.finish(80)
    assert run.process.returncode == 0, run.err
    assert len(run.lines) == 6
    assert run.err.count("ended with signal 9 (SIGKILL)") == 1
    assert "killed by the system's out-of-memory killer" in run.err
    assert f"its control group is limited to {LIMIT >> 20} MiB" in run.err
    assert "epoch 0, step 3" in run.err


@pytest.mark.skipif(
    not Path("/proc/self/oom_score_adj").exists(), reason="the kernel's order is read in /proc"
)
def test_workers_are_killed_before_the_process_that_trains(make: Maker) -> None:
    mine = int(Path("/proc/self/oom_score_adj").read_text())
    augmenter = make(RandomLoader(), None, 2, seed=3)
    assert fingerprints_of(take(augmenter, 2))
    pids = worker_pids()
    assert len(pids) == 2
    for pid in pids:
        score = Path(f"/proc/{pid}/oom_score_adj")
        wait_until(
            lambda score=score: int(score.read_text()) == min(1000, mine + 500), "it has set it"
        )
