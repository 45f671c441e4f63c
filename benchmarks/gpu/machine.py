"""What a GPU's figures depend on, and how busy it is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from statistics import fmean
from types import TracebackType
from typing import Any

import torch

from benchmarks.command import environment_record
from benchmarks.gpu.children import Send

#: Milliseconds between two readings of the counter.
SAMPLE_EVERY = 200


def record(device: str) -> dict[str, Any]:
    """Return date, commit, versions, CPU, and of the GPU what can be asked without starting it."""
    result = environment_record()
    result["device"] = device
    result["torch_cuda"] = torch.version.cuda
    if device == "cuda":
        result["driver"] = _asked("driver_version")
    return result


def card(send: Send) -> None:
    """Send the name of the card, its memory and cuDNN's version; None where torch finds no GPU.

    To be called in a child, since asking starts CUDA.
    """
    if not torch.cuda.is_available():
        send(None)
        return
    properties = torch.cuda.get_device_properties(0)
    send(
        {
            "card": properties.name,
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "capability": f"{properties.major}.{properties.minor}",
            "cudnn": torch.backends.cudnn.version(),
        }
    )


def _asked(field: str) -> str | None:
    """Return what ``nvidia-smi`` says of the first card; None where there is no such program."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    done = subprocess.run(
        [program, f"--query-gpu={field}", "--format=csv,noheader", "--id=0"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None


class Utilisation:
    """The card's utilisation during a ``with`` block, by ``nvidia-smi``'s own counter.

    Attributes:
        percent: the mean; None where there is no counter.
    """

    def __init__(self, device: str) -> None:
        self.percent: float | None = None
        self._program = shutil.which("nvidia-smi") if device == "cuda" else None

    def __enter__(self) -> Utilisation:
        if self._program is not None:
            self._readings = tempfile.TemporaryFile("w+")
            self._sampler = subprocess.Popen(
                [
                    self._program,
                    "--query-gpu=utilization.gpu",
                    "--format=csv,noheader,nounits",
                    "--id=0",
                    f"--loop-ms={SAMPLE_EVERY}",
                ],
                stdout=self._readings,
                stderr=subprocess.DEVNULL,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._program is None:
            return
        os.kill(self._sampler.pid, signal.SIGTERM)
        self._sampler.wait()
        self._readings.seek(0)
        readings = [float(line) for line in self._readings if line.strip().isdigit()]
        self._readings.close()
        if readings:
            self.percent = fmean(readings)
