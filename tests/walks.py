"""How many of detaug's files a walk enters: `python -m tests.walks` prints them, by process.

- a draw: one transform draws its params and changes an image;
- a batch: from where a worker has made it until the loop has it; in the training's process with the next task;
- a death: from SIGKILL of a worker until another has taken its place.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import detaug
from detaug import Check, DeterministicAugmenter, LocalProcesses
from detaug.transforms import GaussianBlur

_PACKAGE = os.path.dirname(detaug.__file__) + os.sep


class Walk:
    """Files of the package whose functions were called, in the order in which they were entered."""

    def __init__(self, until: str = "") -> None:
        self.files: dict[str, None] = {}
        self.on = False
        self._until = until  # the name of a function that ends it

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function."""
        name = frame.f_code.co_filename
        self.on = self.on and frame.f_code.co_name != self._until
        if self.on and event == "call" and name.startswith(_PACKAGE) and not frame.f_code.co_name.startswith("<"):
            self.files[name.removeprefix(_PACKAGE)] = None

    @contextmanager
    def going(self) -> Iterator[None]:
        """Inside, calls are noted."""
        self.on = True
        try:
            yield
        finally:
            self.on = False


class Made:
    """A part of a batch: its process's walk begins when it is pickled."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk

    def __reduce__(self) -> Any:
        self.walk.on = True
        return dict, ()


class Loader:
    """A loader of large arrays. What its process walks through until the fifth batch is asked for is written to a file."""

    stateless = True

    def __init__(self, folder: str) -> None:
        self.folder, self.walk, self.made = folder, Walk(until="_take_messages"), 0

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> dict[str, Any]:
        self.made += 1
        if self.made == 1:
            sys.setprofile(self.walk.note)
        if self.made == 5:
            Path(self.folder, f"{os.getpid()}").write_text("\n".join(self.walk.files))
        time.sleep(0.05)
        return {"made": Made(self.walk), "image": np.zeros((64, 64, 64), np.float32)}


def draw() -> list[str]:
    """The files of one draw."""
    transform = GaussianBlur((0.5, 1.0))
    image = np.random.default_rng(0).random((1, 16, 16, 16), dtype=np.float32)
    transform(image=image, rng=np.random.default_rng(1))  # compiles
    walk = Walk()
    sys.setprofile(walk.note)
    try:
        with walk.going():
            transform(image=image, rng=np.random.default_rng(1))
    finally:
        sys.setprofile(None)
    return list(walk.files)


def batch_and_death() -> tuple[dict[str, list[str]], list[str]]:
    """The files of a batch, by process, and those of a death in the training's process."""
    walk, death = Walk(), Walk()

    def note(frame: FrameType, event: str, value: Any) -> None:
        walk.note(frame, event, value)
        death.note(frame, event, value)

    threading.setprofile(note)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            DeterministicAugmenter(
                Loader(folder), None, 1, seed=1, check=Check(0), executor=LocalProcesses("fork")
            ) as augmenter,
        ):
            for _ in range(8):
                next(augmenter)
            sys.setprofile(note)
            with walk.going():
                for _ in range(8):
                    next(augmenter)
            (file,) = Path(folder).iterdir()
            worker = file.read_text().split("\n")
            engine: Any = augmenter._engine
            (pid,) = engine.worker_pids()
            with death.going():
                os.kill(pid, signal.SIGKILL)
                while engine.worker_pids() in ([], [pid]):
                    time.sleep(0.01)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {"worker": worker, "training": list(walk.files)}, list(death.files)


def main() -> None:
    """Print them."""
    batch, death = batch_and_death()
    walks = {"a draw of one transform": {"": draw()}, "a batch": batch, "a worker's death": {"training": death}}
    for name, processes in walks.items():
        print(f"{name}: {len({file for files in processes.values() for file in files})} files")
        for process, files in processes.items():
            print(f"    {process}: {' '.join(files)}")


if __name__ == "__main__":
    main()
