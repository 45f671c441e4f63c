"""A reader who follows a walk passes through few of detaug's files: `python -m tests.walks` prints them.

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
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import detaug
from detaug import Check, DeterministicAugmenter, LocalProcesses
from detaug.transforms import GaussianBlur

_PACKAGE = os.path.dirname(detaug.__file__) + os.sep
#: A walk's parts, and its files at most. A commit that raises one says why.
MOST = {("a draw of one transform",): 15, ("a batch's worker", "a batch's training"): 18, ("a worker's death",): 15}


class Walks:
    """For each part the files of the package whose functions were called, in the order in which they were entered."""

    def __init__(self) -> None:
        self.files: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.now = ""

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function."""
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if (self.now, name) == ("a batch's worker", "_take_messages"):
            self.now = ""  # the batch has been sent
        if self.now and event == "call" and file.startswith(_PACKAGE) and not name.startswith("<"):
            self.files[self.now][file.removeprefix(_PACKAGE)] = None


_WALKS = Walks()


class Made:
    """A part of a batch: the worker's walk begins when it is pickled."""

    def __reduce__(self) -> Any:
        _WALKS.now = "a batch's worker"
        return dict, ()


class Loader:
    """A loader of large arrays. What its worker walks through until the fifth batch is asked for is written to a file."""

    stateless = True

    def __init__(self, file: Path) -> None:
        self.file, self.made = file, 0

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> dict[str, Any]:
        self.made += 1
        if self.made == 1:
            sys.setprofile(_WALKS.note)
        if self.made == 5:
            self.file.write_text("\n".join(_WALKS.files["a batch's worker"]))
        time.sleep(0.05)
        return {"made": Made(), "image": np.zeros((64, 64, 64), np.float32)}


def walk(folder: str) -> None:
    """A draw, a batch and a death."""
    transform = GaussianBlur((0.5, 1.0))
    image = np.random.default_rng(0).random((1, 16, 16, 16), dtype=np.float32)
    transform(image=image, rng=np.random.default_rng(1))  # compiles
    file, local = Path(folder, "worker"), LocalProcesses("fork")
    threading.setprofile(_WALKS.note)
    sys.setprofile(_WALKS.note)
    _WALKS.now = "a draw of one transform"
    transform(image=image, rng=np.random.default_rng(1))
    _WALKS.now = ""
    with DeterministicAugmenter(Loader(file), None, 1, seed=1, check=Check(0), executor=local) as augmenter:
        for part in ("", "a batch's training"):
            _WALKS.now = part
            for _ in range(8):
                next(augmenter)
        _WALKS.now = ""
        _WALKS.files["a batch's worker"] = dict.fromkeys(file.read_text().split("\n"))
        engine: Any = augmenter._engine
        (pid,) = engine.worker_pids()
        _WALKS.now = "a worker's death"
        os.kill(pid, signal.SIGKILL)
        while engine.worker_pids() in ([], [pid]):
            time.sleep(0.01)
        _WALKS.now = ""
    sys.setprofile(None)
    threading.setprofile(None)


def main() -> None:
    """Print them; fails where a walk has too many, or none."""
    with tempfile.TemporaryDirectory() as folder:
        walk(folder)
    short = True
    for parts, most in MOST.items():
        found = {part: _WALKS.files[part] for part in parts}
        count = len({file for files in found.values() for file in files})
        short = short and all(found.values()) and count <= most
        print(f"{' and '.join(parts)}: {count} files, {most} at most", *map(" ".join, found.values()), sep="\n    ")
    sys.exit(not short)


if __name__ == "__main__":
    main()
