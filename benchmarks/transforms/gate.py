"""Rows: what it costs to check params before they reach a kernel, as a part of nnU-Net's default pipelines."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

from benchmarks.report import Row, ratio_check
from benchmarks.transforms import inputs, peers
from benchmarks.transforms.pipelines import LITTLE, MUCH, SCALES
from benchmarks.transforms.timing import Settings, one_thread
from detaug.bench.measuring import Ratio


def measure_gate_3d(settings: Settings) -> Row:
    """205³ → 128³."""
    return _measure(
        "the gate in nnU-Net's 3-D pipeline",
        inputs.volume(inputs.ENLARGED),
        inputs.PATCH,
        LITTLE,
        settings,
    )


def measure_gate_2d(settings: Settings) -> Row:
    """822×602 → 512×512."""
    sample = inputs.slice_of_volume(inputs.FLAT_ENLARGED)
    return _measure("the gate in nnU-Net's 2-D pipeline", sample, inputs.FLAT_PATCH, MUCH, settings)


def _measure(
    name: str,
    sample: tuple[torch.Tensor, torch.Tensor],
    patch: Sequence[int],
    angle: float,
    settings: Settings,
) -> Row:
    """Checks and whole samples by turns, each the fastest of several times."""
    from detaug import SeedTree
    from detaug.nnunet import training_transforms
    from detaug.transforms.building import gate

    one_thread()
    dims = len(patch)
    pipeline = training_transforms(
        tuple(patch), (-angle, angle), [[s] * dims for s in SCALES], tuple(range(dims)), False
    )
    arrays = {"image": sample[0], "segmentation": sample[1]}
    shapes = {key: tuple(value.shape) for key, value in arrays.items()}
    generator = SeedTree(peers.SEED).generator
    checked, calls = gate.checked, []

    def noted(*arguments: Any) -> Any:
        calls.append(arguments)
        return checked(*arguments)

    seconds: dict[str, list[float]] = {"checks": [], "samples": []}
    pipeline.warm_up()
    for number in range(2 if settings.quick else 8):
        checks, samples = 0.0, 0.0
        for draw in range(number * 10, number * 10 + 10):
            params = pipeline.sample(generator(0, draw), shapes)
            calls.clear()
            gate.checked = noted
            pipeline.apply(arrays, params)
            gate.checked = checked
            checks += _fastest(lambda: [checked(*each) for each in calls], 20)
            samples += _fastest(lambda draw=draw: pipeline(**arrays, rng=generator(0, draw)), 4)
        seconds["checks"].append(checks / 10)
        seconds["samples"].append(samples / 10)
    whole = 1e3 * median(seconds["samples"])
    return Row(
        name=f"{name}, mean per sample",
        unit="ms",
        ours=1e3 * median(seconds["checks"]),
        checks=[
            ratio_check(
                "the sample", whole, Ratio.of(seconds["checks"], seconds["samples"]), "<=", 0.01
            )
        ],
        repeats=len(seconds["checks"]),
        details={"seconds": seconds},
    )


def _fastest(function: Callable[[], Any], times: int) -> float:
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        function()
        found.append(time.perf_counter() - begin)
    return min(found)
