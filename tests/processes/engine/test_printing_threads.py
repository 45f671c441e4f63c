"""A thread of the parent that was printing when the workers were forked does not leave them waiting."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.processes import Script

pytestmark = pytest.mark.timeout(60)

BODY = """
    import logging, threading
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    terminal, STREAM = STREAM, open(writing, "w")
    logging.basicConfig(stream=STREAM)
    held = threading.Thread(target=lambda: (STREAM.write("y" * 100_000), STREAM.flush()), daemon=True)
    held.start()
    while "pipe_write" not in open(f"/proc/self/task/{held.native_id}/wchan").read():
        time.sleep(0.01)
    with augmenter() as aug:
        assert os.getpid() not in {next(aug)["pid"] for _ in range(6)}
        aug.close()
    os.write(2 if terminal is sys.__stderr__ else 1, b"end\\n")
    os.read(reading, 2**20)
    os.close(reading)
    os._exit(0)
"""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_workers_forked_while_a_thread_prints_work_and_end(script: Callable[..., Script], stream: str) -> None:
    run = script(BODY.replace("STREAM", f"sys.{stream}"), "fork")
    run.finish()
    assert (run.lines == ["end"]) if stream == "stdout" else ("end" in run.err)
    run.assert_nobody_left()


def test_what_the_parent_had_not_written_out_is_written_once(script: Callable[..., Script]) -> None:
    run = script(
        """
        sys.stdout = open(1, "w", buffering=100_000, closefd=False)
        print("once")
        with augmenter() as aug:
            for _ in range(4):
                next(aug)
        sys.stdout.flush()
        """,
        "fork",
    )
    run.finish()
    assert run.lines == ["once"]
