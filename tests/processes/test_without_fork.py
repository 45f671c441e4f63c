"""A system that can neither fork nor pass descriptors, as Windows: all but worker processes works.

On such a system these tests run as they are; anywhere else an interpreter's modules lose the names
that Windows' have not, after the libraries have been imported, and before detaug is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.waiting import run_program

TAKEN_AWAY = r"""
import ctypes, mmap, os, select, signal, socket, sys
import batchgenerators.dataloading.data_loader, cloudpickle, multiprocessing, numba, numpy, psutil
import scipy.fft, scipy.ndimage, scipy.special, subprocess, tempfile, threadpoolctl, torch, xxhash
import torch.utils.data

MISSING = {
    os: '''fork forkpty register_at_fork memfd_create MFD_CLOEXEC getuid geteuid getgid getegid getsid
        setsid getpgid setpgid getpgrp killpg wait wait3 wait4 waitid WNOHANG WNOWAIT WEXITED pidfd_open
        sched_getaffinity sched_yield posix_fallocate posix_spawn sysconf statvfs getloadavg nice uname
        mkfifo chown fchown pipe2 eventfd O_NOFOLLOW O_CLOEXEC O_NONBLOCK O_DIRECTORY getrandom''',
    signal: '''SIGKILL SIGCHLD SIGHUP SIGUSR1 SIGUSR2 SIGQUIT SIGALRM SIGBUS SIGPIPE SIGXFSZ SIGSTOP
        SIGCONT pthread_sigmask sigwait SIG_BLOCK SIG_UNBLOCK SIG_SETMASK setitimer alarm''',
    socket: '''AF_UNIX SOCK_SEQPACKET SOCK_CLOEXEC send_fds recv_fds SCM_RIGHTS CMSG_LEN CMSG_SPACE
        MSG_DONTWAIT MSG_CMSG_CLOEXEC''',
    select: "poll epoll",
    mmap: '''MAP_SHARED MAP_PRIVATE MAP_ANONYMOUS PROT_READ PROT_WRITE MADV_DONTFORK MADV_DOFORK''',
}
if sys.platform != "win32":
    for module, names in MISSING.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in ("fcntl", "resource", "pwd", "grp", "termios"):
        sys.modules[name] = None  # importing it is an ImportError

    class CDLL(ctypes.CDLL):
        def __init__(self, name, *arguments, **options):
            if name is None:
                raise TypeError("there is no C library by no name")
            super().__init__(name, *arguments, **options)

    ctypes.CDLL = CDLL
"""

PUBLIC_NAMES = r"""
import tests.processes.conftest  # there pytest imports it before it finds these tests
import detaug
for name in detaug.__all__:
    assert getattr(detaug, name) is not None
from detaug import transforms, training
for name in transforms.__all__:
    assert getattr(transforms, name) is not None
"""

TRANSFORMS = r"""
import numpy as np
from detaug import SeedTree, fingerprint
from tests.support.transforms.every_transform import EVERY
from tests.support.transforms.golden import sample

with np.errstate(all="ignore"):
    for name, make in EVERY.items():
        given = sample(1, (18, 18, 14))
        made = make(3)(**given, rng=SeedTree(1).generator(0, 0))
        again = make(3)(**given, rng=SeedTree(1).generator(0, 0))
        assert fingerprint(made) == fingerprint(again), name
"""

BATCHES = r"""
import json, logging, numpy as np, torch
from batchgenerators.dataloading.data_loader import DataLoader, SlimDataLoaderBase
from detaug import Check, DataLoader as TorchsLoader, DeterministicAugmenter, fingerprint, transforms
from detaug.engine.recheck import policy

policy.LONG_RUN = 0.0  # what a run does after a while, it does at once

class Cases(DataLoader):
    def __init__(self):
        super().__init__(np.random.default_rng(1).random((20, 1, 30, 30), np.float32), 2, infinite=True)
        self.indices = list(range(20))
    def generate_train_batch(self):
        return {"data": self._data[self.get_indices()].copy()}

class Walks(SlimDataLoaderBase):
    # it keeps a place, so that copies of it are made, and they share large arrays
    def __init__(self):
        super().__init__(np.random.default_rng(2).random((20, 1, 80, 80), np.float32), 2)
        self.place = 0
    def generate_train_batch(self):
        self.place = (self.place + 3) % 18
        self._data[self.place] += 0.5
        return {"data": self._data[self.place : self.place + 2].copy()}

class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return {"image": torch.rand(1, 8, 8), "index": index}

noise = transforms.Compose([transforms.Mirror((0, 1)), transforms.GaussianNoise(0.1)])

def of_loader(kind, **options):
    return lambda: DeterministicAugmenter(
        kind(), noise, 0, seed=1, batches_per_epoch=6, check=Check(every=1), **options)

def of_data():
    return DeterministicAugmenter.from_dataset(
        Images(), 2, num_processes=0, seed=1, check=Check(every=1))

for make in (of_loader(Cases), of_loader(Walks, num_streams=2), of_data):
    with make() as whole:
        expected = [fingerprint(batch) for _ in range(2) for batch in whole]
        assert len(expected) == 12
        assert fingerprint(whole.replay(1, 2)) == expected[8]
        assert whole.stats()["checked"] > 0 and whole.stats()["mismatches"] == 0
    with make() as first, make() as second:
        for _ in range(4):
            next(first)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        second.set_epoch(0)
        rest = [fingerprint(batch) for _ in range(2) for batch in second]
    assert rest == expected[4:]
passes = TorchsLoader(Images(), 2, shuffle=True, seed=1)
assert [len(list(passes)), len(list(passes))] == [6, 6]
with of_loader(Cases, ledger="run.jsonl")() as written:
    assert len(list(written)) == 6
with open("run.jsonl") as ledger:
    assert sum(json.loads(line)["kind"] == "batch" for line in ledger) == 6
"""

WORKERS = r"""
from detaug import DataLoader, DeterministicAugmenter, LocalProcesses, verify
from torch.utils.data import TensorDataset
import torch

data = TensorDataset(torch.arange(6))
for make in (
    lambda: DeterministicAugmenter([1, 2], None, 2, seed=1),
    lambda: DeterministicAugmenter.from_dataset(data, 2, seed=1),
    lambda: DeterministicAugmenter([1, 2], None, 1, seed=1, executor=LocalProcesses("spawn")),
    lambda: list(DataLoader(data, 2, num_workers=1, seed=1)),
    lambda: verify(lambda: ([1, 2], None)),
):
    try:
        make()
    except RuntimeError as error:
        assert "num_processes=0" in str(error) and sys.platform in str(error), error
    else:
        raise AssertionError("it went on without workers")
"""


PARTS = {
    "public names, and workers are an error": PUBLIC_NAMES + WORKERS,
    "transforms": TRANSFORMS,
    "batches of this process": BATCHES,
}

#: Runs every part, whichever fails, and prints what was raised.
ALL_PARTS = r"""
import json, traceback
raised = {}
for name, code in json.loads(sys.argv[1]).items():
    try:
        exec(code, globals())
    except BaseException:
        raised[name] = traceback.format_exc()
print(json.dumps(raised))
"""


@pytest.fixture(scope="module")
def raised(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each part has raised, by its name: one interpreter, for each imports for seconds."""
    root = Path(__file__).parents[2]
    importable = f"import sys; sys.path.insert(0, {str(root)!r})\n"
    done = run_program(
        [sys.executable, "-c", importable + TAKEN_AWAY + ALL_PARTS, json.dumps(PARTS)],
        timeout=280,
        cwd=tmp_path_factory.mktemp("without_fork"),
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("part", PARTS)
def test_without_fork(part: str, raised: dict[str, str]) -> None:
    assert part not in raised, raised[part]
