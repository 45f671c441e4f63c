"""The graphics card: what figures depend on, and how busy it is."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from benchmarks.gpu.bench import Finding

SMI = "nvidia-smi"

#: Milliseconds between two readings of the counter.
SAMPLE_EVERY = 200


def card() -> Iterator[Finding]:
    """Yield name, memory, driver and cuDNN of the card; nothing where torch finds no GPU.

    To be called in a child, since asking starts CUDA.
    """
    if not torch.cuda.is_available():
        return
    properties = torch.cuda.get_device_properties(0)
    driver = None
    if shutil.which(SMI) is not None:
        command = [SMI, "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        driver = answer.stdout.strip() or None
    values = {
        "card": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "capability": f"{properties.major}.{properties.minor}",
        "cudnn": torch.backends.cudnn.version(),
        "driver": driver,
    }
    yield Finding("card", properties.name, values)


@contextmanager
def utilisation(device: str) -> Iterator[list[float]]:
    """Give a list that has the card's utilisation, in percent, once the block has ended.

    It is that of ``nvidia-smi``'s own counter; the list stays empty where there is none.
    """
    readings: list[float] = []
    if device != "cuda" or shutil.which(SMI) is None:
        yield readings
        return
    options = ("--format=csv,noheader,nounits", "--id=0", f"--loop-ms={SAMPLE_EVERY}")
    with tempfile.TemporaryFile("w+") as output:
        sampler = subprocess.Popen(
            [SMI, "--query-gpu=utilization.gpu", *options],
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield readings
        finally:
            sampler.terminate()
            sampler.wait()
        output.seek(0)
        readings += [float(line) for line in output if line.strip().isdigit()]
