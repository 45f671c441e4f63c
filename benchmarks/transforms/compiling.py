"""Rows: how long kernels take to compile where none is in the cache, on all cores."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from statistics import median

from benchmarks.report import Check, Row
from benchmarks.transforms import inputs
from benchmarks.transforms.timing import Settings

ROUNDS = 3
ALL, DEFAULT = 45.0, 25.0  # seconds, on two idle cores

_WARMUP = "from detaug.cli import main; main(['warmup'], prog_name='detaug')"
#: Prints how long compiling takes; the imports are those of every training.
_PIPELINES = f"""
import time
from detaug.kernels.ahead import compile_ahead
from detaug.nnunet import TRAINING_TRANSFORMS

kernels = []
for patch in ({inputs.PATCH!r}, {inputs.FLAT_PATCH!r}):
    scales, axes = [[1 / 2**level] * len(patch) for level in range(5)], tuple(range(len(patch)))
    kernels += TRAINING_TRANSFORMS["nnUNetTrainer"](tuple(patch), (-0.5, 0.5), scales, axes, False).kernels
began = time.perf_counter()
assert compile_ahead(kernels)
print(time.perf_counter() - began)
"""


def measure_all(settings: Settings) -> Row:
    """`detaug warmup`, from the start of the process to its end."""
    return _measure("detaug warmup", _WARMUP, ALL, settings)


def measure_default_pipelines(settings: Settings) -> Row:
    """The kernels of nnU-Net's default 3-D and 2-D pipelines, once the process has imported what it needs."""
    return _measure("kernels of nnU-Net's default pipelines", _PIPELINES, DEFAULT, settings)


def _measure(name: str, program: str, bound: float, settings: Settings) -> Row:
    seconds, cpu = [], []
    for _ in range(1 if settings.quick else ROUNDS):
        with tempfile.TemporaryDirectory() as cache:
            before, began = _cpu_of_children(), time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "NUMBA_CACHE_DIR": cache},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
            whole = time.perf_counter() - began
            seconds.append(float(done.stdout) if program is _PIPELINES else whole)
            cpu.append(_cpu_of_children() - before)
    return Row(
        name=f"{name}, compiled",
        unit="s",
        ours=median(seconds),
        checks=[
            Check(
                "the target, on two idle cores",
                None,
                median(seconds),
                (min(seconds), max(seconds)),
                "<=",
                bound,
            ),
            Check(
                "nothing: CPU time of the whole process, s",
                None,
                median(cpu),
                (min(cpu), max(cpu)),
                "<=",
            ),
        ],
        repeats=len(seconds),
        details={"seconds": seconds, "cpu_seconds": cpu, "cores": len(os.sched_getaffinity(0))},
    )


def _cpu_of_children() -> float:
    """Of those that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
