"""Train every faulty trainer twice, in this one process, and print as JSON where its trainings parted.

    python -m tests.peers.nnunet.verification.compare_faults FOLDER TRAINER ...

nnU-Net's folders are in the environment. A trainer's name with a plus before it is trained in two parts the second time.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from detaug.ledger.receipt import sha256_of
from detaug.nnunet.verification import recording
from detaug.nnunet.verification.recording import TRACE, Part
from detaug.nnunet.verification.settings import Settings
from detaug.nnunet.verification.traces import bookkeeping_origin, first_origin, read
from detaug.nnunet.verification.verifying import environment_of


class Killed(Exception):
    """In place of SIGKILL, which would end this process."""


def killed() -> None:
    raise Killed


def train(parts: list[Part], folder: Path) -> Path:
    for part in parts:
        os.environ.update(environment_of(part))
        with contextlib.suppress(Killed):
            recording.train(part, folder / TRACE)
    return next((folder / "results").glob("*/*/fold_0/checkpoint_final.pth"))


def compare(trainer: str, root: Path, resumed: bool) -> dict[str, object] | None:
    settings = Settings("1", "3d_fullres", 0, trainer, device="cpu", iterations=1, validation_iterations=1)
    folders = [root / trainer / name for name in ("first", "second")]
    checkpoints = []
    for number, folder in enumerate(folders):
        (folder / "results").mkdir(parents=True)
        whole = Part(settings, 0, results=str(folder / "results"))
        halves = [replace(whole, kill_at=settings.moments_of_an_epoch + 1), replace(whole, resume=True)]
        checkpoints.append(train(halves if resumed and number else [whole], folder))
    found = first_origin(*(read(folder / TRACE) for folder in folders), resumed_at=1 if resumed else None)
    if found is None and sha256_of(checkpoints[0]) != sha256_of(checkpoints[1]):
        found = bookkeeping_origin(*checkpoints)
    return None if found is None else vars(found)


if __name__ == "__main__":
    recording.kill_all = killed
    root, names = Path(sys.argv[1]), sys.argv[2:]
    with contextlib.redirect_stdout(sys.stderr):
        found = {name: compare(name.removeprefix("+"), root, name.startswith("+")) for name in names}
    print(json.dumps(found))
