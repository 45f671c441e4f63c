"""What processes would share: open files and memory. None of it is shared silently."""

from __future__ import annotations

import ast
import gzip
import io
import logging
import mmap
import multiprocessing
import re
import socket
import sqlite3
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batchgenerators.dataloading.data_loader import DataLoader

from detaug import fingerprint
from tests.processes.purity.ways import items_of, making, making_from, run_all_ways, with_workers

ITEMS, BATCH = 26, 3


# --- what cannot be copied
# ----------------------------------------------------------------------------------------------


class FromAFile:
    """Records of a file that is opened when the data set is made."""

    def __init__(self, folder: Path) -> None:
        path = folder / "records"
        path.write_bytes(b"".join(int(item).to_bytes(8, "little") for item in range(ITEMS)))
        self.file: Any = path.open("rb", buffering=0)

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> int:
        self.file.seek(8 * index)
        return int.from_bytes(self.file.read(8), "little")


class FromAnArchive(FromAFile):
    def __init__(self, folder: Path) -> None:
        with zipfile.ZipFile(folder / "items.zip", "w") as archive:
            for item in range(ITEMS):
                archive.writestr(str(item), str(item) * 400)
        self.archive = zipfile.ZipFile(folder / "items.zip")

    def __getitem__(self, index: int) -> int:
        return int(self.archive.read(str(index))[: len(str(index))])


class InATransform:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __call__(self, batch: Any) -> Any:
        return batch


class Holding(FromAFile):
    """A data set with something of the process in an attribute."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def __getitem__(self, index: int) -> int:
        return index


def database(folder: Path) -> Any:
    return sqlite3.connect(folder / "items.sqlite")


HELD: dict[str, Callable[[Path], Any]] = {
    "a file": lambda folder: FromAFile(folder).file,
    "an archive": lambda folder: FromAnArchive(folder).archive,
    "a compressed file": lambda folder: gzip.open(folder / "x.gz", "wb"),
    "a file in a closure": lambda folder: (lambda file: lambda: file.read())(
        FromAFile(folder).file
    ),
    "a socket": lambda _: socket.socket(),
    "a database": database,
    "a lock of several processes": lambda _: multiprocessing.Lock(),
}


@pytest.mark.parametrize("what", HELD)
@pytest.mark.parametrize("num_processes", [0, 2])
def test_what_forks_would_share_is_not_kept(what: str, num_processes: int, tmp_path: Path) -> None:
    holding = Holding(HELD[what](tmp_path))
    for make in (
        making_from(holding, BATCH, keep=("made",)),
        making_from(list(range(ITEMS)), BATCH, transform=InATransform(holding), keep=("made",)),
    ):
        with pytest.raises(TypeError, match=r"\.made cannot be kept: .*first use") as raised:
            make(num_processes=num_processes)
        assert "to None until then" in str(raised.value)


@pytest.mark.parametrize("num_processes", [0, 2])
@pytest.mark.parametrize("what", ["a file", "an archive", "a socket", "a database", "a generator"])
def test_what_cannot_be_copied_is_refused_with_advice(
    what: str, num_processes: int, tmp_path: Path
) -> None:
    holding = Holding(HELD[what](tmp_path) if what in HELD else (number for number in range(9)))
    with pytest.raises(
        TypeError, match=r"data_loader\.made \(.*cannot be copied.*first use"
    ) as raised:
        making_from(holding, BATCH)(num_processes=num_processes)
    assert ("keep=('made',)" in str(raised.value)) == (what == "a generator")
    assert "~" not in str(raised.value)


def closed(file: Any) -> Any:
    file.close()
    return file


def mapped(folder: Path) -> Any:
    file = FromAFile(folder).file
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


KEPT: dict[str, Callable[[Path], Any]] = {
    "a closed file": lambda folder: closed(FromAFile(folder).file),
    "a file in memory": lambda _: io.BytesIO(b"abc"),
    "a mapped file": mapped,
    "a free lock": lambda _: {"lock": threading.RLock()},
    "a logger": lambda _: logging.getLogger("detaug.tests"),
    "the standard streams": lambda _: [sys.stdout, sys.stderr],
    "nothing yet": lambda _: None,
}


@pytest.mark.parametrize("what", KEPT)
def test_what_forks_do_not_share_is_kept(what: str, tmp_path: Path) -> None:
    with making_from(Holding(KEPT[what](tmp_path)), BATCH, keep=("made",))(
        num_processes=0
    ) as augmenter:
        assert items_of(list(augmenter)) == list(range(ITEMS))


class Doubling:
    def __init__(self) -> None:
        self.f, self.g = ((number for number in range(9)) for _ in range(2))

    def __call__(self, batch: Any) -> Any:
        return 2 * np.asarray(batch)


def test_advice_names_the_users_attributes_and_works_when_it_is_followed() -> None:
    advised: tuple[str, ...] = ()
    for name in ("f", "g"):
        with pytest.raises(TypeError, match=rf"^transform\.{name} ") as raised:
            making_from(list(range(ITEMS)), BATCH, transform=Doubling(), keep=advised)(
                num_processes=2
            )
        advised = ast.literal_eval(re.search(r"keep=(\(.*?\))", str(raised.value)).group(1))  # type: ignore[union-attr]
    assert advised == ("f", "g")
    make = making_from(list(range(ITEMS)), BATCH, transform=Doubling(), keep=advised)
    found = run_all_ways(make, (0, 2), kill=False)
    found.assert_right()
    assert items_of(found.epoch("2 workers", 0)) == list(range(0, 2 * ITEMS, 2))


class OpensOnFirstUse(FromAFile):
    """As the advice has it, one file for each process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.file.close()
        self.path, self.file = folder / "records", None

    def __getitem__(self, index: int) -> int:
        if self.file is None:
            self.file = self.path.open("rb", buffering=0)
        return super().__getitem__(index)


class FromAMemmap(FromAFile):
    mode: Any = "r"

    def __init__(self, folder: Path) -> None:
        self.rows = np.memmap(folder / "rows", np.int64, "w+", shape=(ITEMS, 2000))
        self.rows[:] = np.arange(ITEMS)[:, None]
        self.rows.flush()
        self.rows = np.memmap(folder / "rows", np.int64, self.mode, shape=(ITEMS, 2000))
        self.views = {index: self.rows[index] for index in range(ITEMS)}

    def __getitem__(self, index: int) -> int:
        return int(self.rows[index, 1999] + self.views[index][0]) // 2


class OnDemand(FromAMemmap):
    mode = "c"


@pytest.mark.parametrize("kind", [OpensOnFirstUse, FromAMemmap, OnDemand])
def test_what_is_opened_by_each_process_is_right(kind: Any, tmp_path: Path) -> None:
    processes = with_workers(kind, (OpensOnFirstUse, OnDemand))
    found = run_all_ways(making_from(kind(tmp_path), BATCH), processes)
    found.assert_right()
    for number in processes:
        assert items_of(found.epoch(f"{number} workers", 2)) == list(range(ITEMS))


# --- memory
# -------------------------------------------------------------------------------------------------------------


class Views(DataLoader):
    """Hands out views of its data."""

    def __init__(self, values: int) -> None:
        super().__init__(None, 1, infinite=True)
        self.volume, self.indices = np.arange(float(values)), [0]

    def generate_train_batch(self) -> dict[str, Any]:
        start = int(np.random.randint(5))
        return {"data": self.volume[start : start + 200]}


class Doubles:
    """In place."""

    def __call__(self, data: Any) -> dict[str, Any]:
        data *= 2
        data[0] = -1
        return {"data": data}


@pytest.mark.parametrize(
    ("values", "processes"), [(300, (0,)), (30_000, (0, 2))]
)  # workers share the large one
def test_a_transform_may_write_to_what_a_loader_lends_it(
    values: int, processes: tuple[int, ...]
) -> None:
    loader = Views(values)
    run_all_ways(making(loader, Doubles()), processes, kill=False).assert_right()
    with making(loader, Doubles(), check=False)(num_processes=0) as augmenter:
        first = augmenter.replay(0, 3)
        first_print = fingerprint(first)
        Doubles()(**first)
        assert fingerprint(augmenter.replay(0, 3)) == first_print
    assert np.array_equal(loader.volume, np.arange(float(values)))
    assert loader.volume.flags.writeable


class InItself(Views):
    """The loader's own transforms write in place."""

    def __init__(self) -> None:
        super().__init__(30_000)
        self.transforms = Doubles()

    def generate_train_batch(self) -> dict[str, Any]:
        return self.transforms(**super().generate_train_batch())


def test_a_loader_that_writes_to_its_own_data_is_told_of() -> None:
    loader = InItself()
    before = fingerprint(loader.volume)
    found = run_all_ways(making(loader), processes=(0, 2), kill=False)
    assert found.words
    assert fingerprint(loader.volume) == before
