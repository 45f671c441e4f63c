"""Who sees a batch's memory, for how long, and what it costs to keep a part of it: nothing that
lives is overwritten.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase

import detaug
from detaug.system.shared_memory import create
from tests.support.augmenters import Maker
from tests.support.comparing import take
from tests.support.processes import Script, descendants, wait_until
from tests.support.waiting import exit_code, join, receive, result_of
from tests.support.witness import WITNESS, assert_made_by_workers, witness

FORK = multiprocessing.get_context("fork")
MEGABYTE = 2**20


class Steps(SlimDataLoaderBase):
    """An array of `size(step)` bytes filled with the step, and small ones beside it."""

    def __init__(self, size: int = MEGABYTE, small: int = 0) -> None:
        super().__init__(None, 1)
        self.size = size
        self.small = small

    def generate_train_batch(self) -> dict[str, Any]:
        step = detaug.current().step
        small = [np.full(self.small // 8, step) for _ in range(3)] if self.small else []
        return {"data": np.full(self.size // 8, step), "small": small}


def mapped_blocks(pid: int) -> dict[str, int]:
    """Inode → bytes of the shared memory that a process has mapped; none of one that is gone."""
    try:
        with open(f"/proc/{pid}/maps") as maps:
            lines = [line.split() for line in maps if "/memfd:detaug" in line]
    except (FileNotFoundError, ProcessLookupError):
        return {}
    ranges = {line[4]: [int(number, 16) for number in line[0].split("-")] for line in lines}
    return {inode: end - begin for inode, (begin, end) in ranges.items()}


@pytest.fixture
def own_blocks() -> Callable[..., dict[str, int]]:
    """Give inode → bytes of the blocks of this test that a process has mapped, or all of ours."""

    def mapped_by(pids: list[int]) -> dict[str, int]:
        return {inode: size for pid in pids for inode, size in mapped_blocks(pid).items()}

    def ours() -> list[int]:
        return [os.getpid(), *(process.pid for process in descendants())]

    if not Path("/proc/self/maps").exists():
        pytest.skip("what a process has mapped is read in /proc")
    gc.collect()
    earlier = mapped_by(ours())  # batches that an earlier test holds

    def blocks(pid: int | None = None) -> dict[str, int]:
        found = mapped_by(ours() if pid is None else [pid])
        return {inode: size for inode, size in found.items() if inode not in earlier}

    return blocks


def report_what_is_seen(batch: Any, ask: Connection, tell: Connection) -> None:
    tell.send(set(np.unique(batch["data"]).tolist()))
    receive(ask, "the child is asked again")
    tell.send(set(np.unique(batch["data"]).tolist()))


def test_forked_child_sees_the_batch_it_was_given_and_no_later_one(make: Maker) -> None:
    augmenter = make(Steps(), None, 2, 1, seed=1)
    take(augmenter, 4)
    children = []
    for _ in range(6):
        batch = next(augmenter)
        (asked, ask), (hear, told) = FORK.Pipe(False), FORK.Pipe(False)
        child = FORK.Process(target=report_what_is_seen, args=(batch, asked, told))
        child.start()
        children.append((child, ask, hear, int(batch["data"][0])))
        assert receive(hear, "the child has seen its batch") == {int(batch["data"][0])}
    del batch
    take(augmenter, 60)  # every slot that may be used again is, many times
    for child, ask, hear, step in children:
        ask.send(None)
        assert receive(hear, "the child has seen its batch again") == {step}
        join(child, "the child has ended")


def test_child_that_was_forked_between_batches_does_not_keep_their_slots(
    make: Maker, own_blocks: Callable[..., dict[str, int]]
) -> None:
    augmenter = make(Steps(), None, 2, 4, seed=1)
    held = take(augmenter, 20)[-1]
    (asked, ask), (hear, told) = FORK.Pipe(False), FORK.Pipe(False)
    child = FORK.Process(target=report_what_is_seen, args=(held, asked, told))
    child.start()
    receive(hear, "the child has seen its batch")
    mapped = len(own_blocks(child.pid))
    ask.send(None)
    join(child, "the child has ended")
    assert mapped == 1, "what the user holds and nothing else"


def in_a_child(count: Callable[[], int]) -> int:
    """Fork, and return what the child counts."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, str(count()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        counted = int(result_of(pipe.read, "the child has counted"))
    assert exit_code(pid, "the child has ended") == 0
    return counted


def test_fork_while_another_thread_maps_memory_does_not_keep_it(
    own_blocks: Callable[..., dict[str, int]],
) -> None:
    def count() -> int:
        return len(own_blocks(os.getpid()))

    forked_enough = threading.Event()

    def map_and_unmap() -> None:
        while not forked_enough.is_set():
            descriptor, _mapping = create(65_536, inherited=False)
            os.close(descriptor)

    threads = [threading.Thread(target=map_and_unmap) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        inherited = sum(in_a_child(count) for _ in range(40))
    finally:
        forked_enough.set()
        for thread in threads:
            join(thread, "the thread has ended")
    assert inherited == 0


@pytest.mark.parametrize("other", [False, True])
def test_memory_of_prefetched_batches_is_given_back_at_close(
    make: Maker, other: bool, own_blocks: Callable[..., dict[str, int]]
) -> None:
    def held() -> int:
        return sum(own_blocks().values())

    augmenter = make(Steps(8 * MEGABYTE), None, 2, 10, seed=1)
    take(augmenter, 3)
    wait_until(lambda: held() >= 10 * 8 * MEGABYTE, "the window is full")
    gc.disable()
    try:
        if other:  # its helper and its workers are forked while the first one's batches wait
            second = make(Steps(1000), None, 2, 1, seed=1)
            take(second, 3)
        augmenter.close()
        # A worker that the kernel has been told to end may be there for a moment longer.
        wait_until(lambda: held() <= MEGABYTE, "their memory is given back")
    finally:
        gc.enable()


#: With two batches cached each of two workers keeps (2 + 2) / 2 + 2 slots; there are half as many
#: again for a while, those of the window, and the user's.
MOST_OF_TWO_WORKERS = 8 + 4 + 4 + 1


def test_small_part_of_a_batch_does_not_keep_its_slot(
    make: Maker, own_blocks: Callable[..., dict[str, int]]
) -> None:
    augmenter = make(Steps(4 * MEGABYTE, small=1600), None, 2, 2, seed=1)
    kept = [next(augmenter)["small"][1] for _ in range(60)]
    assert [int(label[0]) for label in kept] == list(range(60))
    assert all(label.flags.writeable for label in kept)
    assert len(own_blocks(os.getpid())) <= MOST_OF_TWO_WORKERS, "the slots were used again"


class Stuck(SlimDataLoaderBase):
    """Makes no batch before it is let go."""

    def __init__(self, may_go_on: Any) -> None:
        super().__init__(None, 1)
        self.may_go_on = may_go_on

    def generate_train_batch(self) -> dict[str, Any]:
        os.read(self.may_go_on, 1)
        return {"data": np.zeros(1)}


def test_all_threads_that_wait_for_a_batch_end_at_close(make: Maker) -> None:
    never, _kept_open = os.pipe()
    augmenter = make(Stuck(never), None, 2, seed=1, stateless=True)
    augmenter._start()
    ends: list[BaseException] = []

    def wait() -> None:
        try:
            next(augmenter)
        except BaseException as error:
            ends.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    engine: Any = augmenter._engine
    wait_until(lambda: len(engine._waiting) == 3, "all wait")
    augmenter.close()
    for thread in threads:
        thread.join(30)
    assert [type(error) for error in ends] == [RuntimeError] * 3
    assert all("closed" in str(error) for error in ends)


class Filled(SlimDataLoaderBase):
    """Arrays filled with the number of the step."""

    def __init__(self, shape: tuple[int, ...] = (64, 64)) -> None:
        super().__init__(None, 1)
        self.shape = shape

    def generate_train_batch(self) -> dict[str, Any]:
        step = detaug.current().step
        return {
            "array": np.full(self.shape, step, np.float64),
            "tensor": torch.full(self.shape, float(step)),
            "list": [np.full(self.shape, step, np.int64), {"deep": torch.full(self.shape, step)}],
            WITNESS: witness(),
        }


HOLD = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    class Filled(Loader):
        count = 0
        def __next__(self):
            from detaug import current
            step = current().step
            return {"a": np.full((64, 64), step), "b": [np.full(20000, step, np.float32)], "pid": os.getpid()}
    with augmenter(Filled(), num_processes=2) as aug:
        held = [next(aug) for _ in range(2000)]
        pids = {batch.pop("pid") for batch in held}
        assert os.getpid() not in pids
        for step, batch in enumerate(held):
            assert (batch["a"] == step).all() and (batch["b"][0] == step).all(), step
        print(len(os.listdir("/dev/fd")))
        del held, batch
        gc.collect()
        for step in range(2000, 2050):
            assert (next(aug)["a"] == step).all()
    print(len(os.listdir("/dev/fd")))
"""


@pytest.mark.timeout(120)
def test_two_thousand_batches_can_be_held_with_a_thousand_descriptors(
    script: Callable[..., Script],
) -> None:
    held = script(HOLD, "fork")
    held.finish()
    assert held.err == ""
    assert held.process.returncode == 0
    while_held, after = map(int, held.lines)
    assert while_held < 100, "descriptors do not grow with the batches held"
    assert after <= while_held


KEEPERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a corner of the array": (lambda b: b["array"][3:5, ::2], lambda k: k),
    "its memoryview": (lambda b: memoryview(b["array"]), np.asarray),
    "a tensor of the array": (lambda b: torch.from_numpy(b["array"]), lambda k: k.numpy()),
    "a detached view": (lambda b: b["tensor"].detach().view(-1), lambda k: k.numpy()),
    "the tensor's storage": (
        lambda b: b["tensor"].untyped_storage(), lambda k: np.frombuffer(bytes(k.tolist()), np.float32)),
    "one element of a list": (lambda b: b["list"][0], lambda k: k),
    "a tensor deep inside": (lambda b: b["list"][1]["deep"], lambda k: k.numpy()),
}  # fmt: skip


def test_any_view_keeps_its_batch_alive(make: Maker, mark: str) -> None:
    augmenter = make(Filled(), None, 2, seed=1)
    batches = take(augmenter, 2)
    assert_made_by_workers("fork", batches)
    del batches
    kept = [(what, keep(next(augmenter))) for _ in range(5) for what, (keep, _) in KEEPERS.items()]
    gc.collect()
    take(augmenter, 60)
    for step, (what, each) in enumerate(kept, start=2):
        assert (np.asarray(KEEPERS[what][1](each)) == step).all(), what


def test_writing_into_a_batch_reaches_no_other_batch(make: Maker) -> None:
    augmenter = make(Filled(), None, 2, seed=1)
    held = []
    for step in range(40):
        batch = next(augmenter)
        assert (batch["array"] == step).all()
        assert (batch["tensor"] == step).all()
        assert (batch["list"][0] == step).all()
        batch["array"][...] = -1
        batch["tensor"].fill_(-1)
        batch["list"][0][...] = -1
        held = [*held[-3:], batch]
    assert all((batch["array"] == -1).all() for batch in held)
