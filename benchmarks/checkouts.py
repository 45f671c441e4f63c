"""Is this checkout slower than another one? `python -m benchmarks.checkouts OTHER --data FOLDER`.

nnU-Net's patches are read and augmented on one thread by the code of both checkouts in turn, batch by batch, with rotation and
scaling as often as nnU-Net's gates open: CPU time, and whether all bytes are equal. Both use this interpreter with its packages.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

HERE = Path(__file__).resolve().parents[1]
NAMES = {
    (False, False): "neither",
    (True, False): "rotated",
    (False, True): "scaled",
    (True, True): "both",
}


def serve(configuration: str, data: Path) -> None:
    """Make the batches that standard input asks for, by the code in the working folder."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nnU-Net prints
    import numpy as np

    from benchmarks.nnunet.dataset import ONE_CHANNEL, preprocessed
    from benchmarks.nnunet.loaders import DETAUG, IN_2D, IN_3D, batch_maker, gates_set, make_loader
    from benchmarks.transforms.timing import one_thread

    one_thread()
    task = {"3d": IN_3D, "2d": IN_2D}[configuration]
    loader = make_loader(DETAUG, task, preprocessed(data, ONE_CHANNEL, task.configuration))
    make = batch_maker(DETAUG, loader)
    for line in sys.stdin:
        number, *gates = json.loads(line)
        with gates_set(loader, *gates):
            began = time.process_time()
            batch = make(number)
            seconds = time.process_time() - began
        bytes_ = hashlib.sha256()
        for array in (batch["data"], *batch["target"]):
            bytes_.update(np.ascontiguousarray(array))
        print(json.dumps([seconds, bytes_.hexdigest()]), file=answers, flush=True)


def start(checkout: Path, configuration: str, data: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--serve", configuration, str(data)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(side: subprocess.Popen[str], number: int, gates: tuple[bool, bool]) -> tuple[float, str]:
    """CPU seconds of a batch, and the digest of its bytes."""
    assert side.stdin is not None
    assert side.stdout is not None
    print(json.dumps([number, *gates]), file=side.stdin, flush=True)
    line = side.stdout.readline()
    if not line:
        sys.exit("a process ended: see above")
    seconds, digest = json.loads(line)
    return seconds, digest


def compare(sides: Sequence[Any], blocks: int) -> bool:
    """Print how the second one compares with the first; whether all bytes were equal."""
    from benchmarks.nnunet.speed import GATES

    for gates in NAMES:
        for side in sides:
            ask(side, 0, gates)  # the first batches compile kernels and fill caches
    taken: dict[tuple[bool, bool], list[tuple[float, float]]] = {gates: [] for gates in NAMES}
    ratios, equal = [], 0
    for block in range(blocks):
        seconds: tuple[list[float], list[float]] = [], []
        for place, gates in enumerate(GATES):
            number = 1 + block * len(GATES) + place
            answers = {
                which: ask(sides[which], number, gates)
                for which in ((0, 1) if place % 2 else (1, 0))
            }
            for which, (spent, _) in answers.items():
                seconds[which].append(spent)
            taken[gates].append((answers[0][0], answers[1][0]))
            equal += answers[0][1] == answers[1][1]
        ratios.append(fmean(seconds[1]) / fmean(seconds[0]))
    print("            other       this  ratio")
    for gates, pairs in taken.items():
        other, this = (1000 * median(pair[which] for pair in pairs) for which in (0, 1))
        print(
            f"{NAMES[gates]:8} {other:6.1f} ms  {this:6.1f} ms  {median(b / a for a, b in pairs):.2f}"
        )
    total = blocks * len(GATES)
    print(
        f"{'all':8} {median(ratios):.2f} times the other's CPU time ({min(ratios):.2f} to {max(ratios):.2f}, {blocks} blocks)"
    )
    print(f"equal bytes in {equal} of {total} batches")
    return equal == total


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--configuration", choices=["3d", "2d"], default="3d", help="(3d)")
    parser.add_argument("--blocks", type=int, default=5, help="of 25 batches (5)")
    parser.add_argument(
        "--data", type=Path, required=True, help="where data sets are, or are made first (minutes)"
    )
    chosen = parser.parse_args()
    from benchmarks.nnunet.dataset import ONE_CHANNEL, preprocessed

    data = chosen.data.resolve()
    preprocessed(data, ONE_CHANNEL, {"3d": "3d_fullres", "2d": "2d"}[chosen.configuration])
    sides = [
        start(checkout, chosen.configuration, data) for checkout in (chosen.other.resolve(), HERE)
    ]
    try:
        return 0 if compare(sides, chosen.blocks) else 1
    finally:
        for side in sides:
            side.kill()
            side.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], Path(sys.argv[3]))
    else:
        sys.exit(main())
