"""Is a training on the CPU reproducible at a fixed number of torch's threads? `python -m benchmarks.cpu_threads`.

For every number of threads a small U-Net of nnU-Net's parts is trained for three steps, each time in a process of its own, while
other processes keep the cores busy; the weights' bytes are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import time
from collections.abc import Sequence

import torch
from torch import nn

#: Shape of a patch, and features of the stages.
CASES = (((16, 16, 16), (8, 16)), ((24, 24, 24), (8, 16, 32)))


def trained(threads: int, shape: Sequence[int], features: Sequence[int]) -> str:
    """A fingerprint of the weights after three steps."""
    from dynamic_network_architectures.architectures.unet import PlainConvUNet

    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    stages = len(features)
    network = PlainConvUNet(
        1, stages, list(features), nn.Conv3d, 3, [1] + [2] * (stages - 1), [2] * stages, 3, [2] * (stages - 1),
        conv_bias=True, norm_op=nn.InstanceNorm3d, norm_op_kwargs={"affine": True}, nonlin=nn.LeakyReLU,
        nonlin_kwargs={"inplace": True}, deep_supervision=True,
    )  # fmt: skip
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.99, nesterov=True)
    data, target = torch.randn(2, 1, *shape), torch.randint(0, 3, (2, *shape))
    for _ in range(3):
        optimizer.zero_grad()
        output, *others = network(data)
        loss = nn.functional.cross_entropy(output, target) + sum(
            (each**2).mean() for each in others
        )
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 12)
        optimizer.step()
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in network.parameters())
    return hashlib.sha256(weights).hexdigest()


def in_a_fork(*arguments: object) -> str:
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.write(writing, trained(*arguments).encode())  # type: ignore[arg-type]
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        found = answer.read()
    os.waitpid(process, 0)
    return found


def busy() -> int:
    """A process that keeps a core busy."""
    parent = os.getpid()
    process = os.fork()
    if process == 0:
        while os.getppid() == parent:
            sum(range(10**5))
        os._exit(0)
    return process


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10, help="of each (10)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 3, 4, 8, 16])
    parser.add_argument(
        "--busy",
        type=int,
        default=os.cpu_count(),
        help="processes that keep the cores busy (all cores)",
    )
    chosen = parser.parse_args()
    others = [busy() for _ in range(chosen.busy)]
    equal = True
    try:
        for threads in chosen.threads:
            for shape, features in CASES:
                began = time.perf_counter()
                found = [in_a_fork(threads, shape, features) for _ in range(chosen.runs)]
                seconds = (time.perf_counter() - began) / chosen.runs
                same = len(set(found)) == 1 and bool(found[0])
                equal &= same
                size = "x".join(map(str, shape))
                print(f"{threads:3} threads, {size}: {len(set(found))} result(s) in {chosen.runs} runs, {found[0][:8]}, "
                      f"{seconds:.2f} s a run, load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    finally:
        for process in others:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
