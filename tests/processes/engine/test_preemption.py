"""Signals to the whole process group are the trainer's: it can still take batches, and save."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

from tests.support.processes import Script

pytestmark = pytest.mark.timeout(120)

TRAINER = """
    import json
    from detaug import fingerprint
    asked = []
    for name in ("SIGTERM", "SIGUSR1", "SIGHUP"):
        signal.signal(getattr(signal, name), lambda number, frame: asked.append(number))
    aug = augmenter()
    pids, fingerprints = set(), []
    def step():
        batch = next(aug)
        pids.add(batch.pop("pid"))
        fingerprints.append(fingerprint(batch))
    if os.path.exists("state"):
        aug.load_state_dict(json.load(open("state")))
        for _ in range(10):
            step()
        print(json.dumps(fingerprints))
        sys.exit()
    print("starting")
    step()
    print("ready")
    while not asked:
        step()
    for _ in range(30):  # the checkpoint falls due
        step()
    with open("state", "w") as file:
        json.dump(aug.state_dict(), file)
    for _ in range(10):
        step()
    print(json.dumps(fingerprints[-10:]), len(pids))
"""


@pytest.mark.parametrize(
    "name",
    [
        "SIGTERM",
        pytest.param("SIGUSR1", marks=pytest.mark.slow),
        pytest.param("SIGHUP", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("moment", ["starting", "ready"])
def test_trainer_goes_on_saves_and_resumes_after_a_signal_to_the_group(
    script: Callable[..., Script], name: str, moment: str
) -> None:
    run = script(TRAINER, "fork")
    while run.read_line() != moment:
        pass
    os.killpg(run.pid, getattr(signal, name))
    run.finish()
    assert run.err == "", "no worker was lost"
    fingerprints, pids = run.lines[-1].rsplit(" ", 1)
    assert int(pids) == 2
    run.assert_nobody_left()
    resumed = script(TRAINER, "fork")
    resumed.finish()
    assert json.loads(resumed.lines[-1]) == json.loads(fingerprints)


@pytest.mark.parametrize(
    "after",
    [0.05, pytest.param(0.0, marks=pytest.mark.slow), pytest.param(0.15, marks=pytest.mark.slow)],
)
def test_interrupt_while_workers_start_leaves_nobody(
    script: Callable[..., Script], start_method: str, after: float
) -> None:
    run = script(
        f"""
        import threading
        print("ready")
        try:
            threading.Timer({after}, lambda: os.killpg(0, signal.SIGINT)).start()
            with augmenter() as aug:
                while True:
                    next(aug)
        except KeyboardInterrupt:
            print("interrupted")
        """,
        start_method,
    )
    run.finish()
    assert run.err == ""
    assert run.lines == ["ready", "interrupted"]
    run.assert_nobody_left()
