"""The kernel's own out-of-memory killer, let loose in a control group with little memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import RandomLoader
from tests.support.processes import Script

pytestmark = pytest.mark.timeout(90)

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
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            below, name, swap = Path("/sys/fs/cgroup/memory") / path.lstrip("/"), "memory.limit_in_bytes", ""
        elif controllers == "" and Path("/sys/fs/cgroup/cgroup.controllers").exists():
            below, name, swap = Path("/sys/fs/cgroup") / path.lstrip("/"), "memory.max", "memory.swap.max"
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
    pytest.skip("no control group for memory can be made here (it takes root, and a writable /sys/fs/cgroup)")


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


def test_workers_are_killed_before_the_process_that_trains(make: Maker) -> None:
    mine = int(Path("/proc/self/oom_score_adj").read_text())
    augmenter = make(RandomLoader(), None, 2, seed=3)
    assert prints(take(augmenter, 2))
    engine = augmenter._engine
    assert engine is not None
    for pid in engine.worker_pids():
        assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) == min(1000, mine + 500)
