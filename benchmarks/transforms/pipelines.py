"""Rows: nnU-Net's default pipelines, mean time per sample.

The gates make one sample cost ten times another. So params are drawn first, many of them; samples are chosen from
these such that each gate opens as often as its probability says; and batchgeneratorsv2 applies the same transforms to
the same samples: those whose gate opened, to as many channels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.measure import Ratio
from benchmarks.report import Row, ratio_check
from benchmarks.transforms import inputs, peers
from benchmarks.transforms.timing import Settings, one_thread

BGV2 = "batchgeneratorsv2"
SAMPLES = 50
CANDIDATES, CHOICES = 1000, 400
SPATIAL = 1 - 0.8 * 0.8  # it rotates, scales or both

LITTLE, MUCH = math.radians(30), math.radians(180)
SCALES = [1 / 2**level for level in range(5)]

Gates = tuple[int, ...]


def measure_pipeline_3d(settings: Settings) -> Row:
    """205³ → 128³, 1 channel, labels -1, 0, 1, 2."""
    return _measure("nnU-Net's 3-D pipeline", inputs.volume(inputs.ENLARGED), inputs.PATCH, LITTLE, 7.0, settings)


def measure_pipeline_3d_four_channels(settings: Settings) -> Row:
    """The same with 4 channels."""
    volume = inputs.volume(inputs.ENLARGED, channels=4)
    return _measure("nnU-Net's 3-D pipeline, 4 channels", volume, inputs.PATCH, LITTLE, 5.0, settings)


def measure_pipeline_2d(settings: Settings) -> Row:
    """822×602 → 512×512, 1 channel."""
    volume = inputs.slice_of_volume(inputs.FLAT_ENLARGED)
    return _measure("nnU-Net's 2-D pipeline", volume, inputs.FLAT_PATCH, MUCH, 3.0, settings)


def measure_extended_pipeline_3d(settings: Settings) -> Row:
    """`nnUNetTrainerDetAugExt`'s pipeline, 205³ → 128³, 1 channel, against nnU-Net's default; each with its own draws."""
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    from detaug import SeedTree
    from detaug.nnunet import extended_transforms

    one_thread()
    image, labels = inputs.volume(inputs.ENLARGED)
    arguments = (inputs.PATCH, (-LITTLE, LITTLE), [[s] * 3 for s in SCALES], (0, 1, 2), False)
    ours, theirs = extended_transforms(*arguments), nnUNetTrainer.get_training_transforms(*arguments)
    generator = SeedTree(peers.SEED).generator
    seconds: dict[str, list[float]] = {"detaug": [], BGV2: []}
    rounds, per_round = (1, 4) if settings.quick else (5, 40)
    ours.warm_up()
    for number in range(rounds):
        for system in ("detaug", BGV2) if number % 2 else (BGV2, "detaug"):
            total = 0.0
            for draw in range(number * per_round, (number + 1) * per_round):
                own = {"image": image.clone(), "segmentation": labels.clone()}
                torch.manual_seed(draw)
                begin = time.perf_counter()
                if system == "detaug":
                    ours(**own, rng=generator(1, draw))
                else:
                    theirs(**own)
                total += time.perf_counter() - begin
            seconds[system].append(total / per_round)
    return Row(
        name="nnUNetTrainerDetAugExt's pipeline",
        unit="ms",
        ours=1e3 * median(seconds["detaug"]),
        checks=[
            ratio_check(
                f"{BGV2}, nnU-Net's default",
                1e3 * median(seconds[BGV2]),
                Ratio.of(seconds[BGV2], seconds["detaug"]),
                ">=",
                1.0,
            )
        ],
        repeats=rounds,
        details={"seconds_per_sample": seconds},
    )


def _measure(
    name: str,
    sample: tuple[torch.Tensor, torch.Tensor],
    patch: Sequence[int],
    angle: float,
    bound: float,
    settings: Settings,
) -> Row:
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    from detaug import SeedTree
    from detaug.nnunet import training_transforms

    one_thread()
    arrays = {"image": sample[0], "segmentation": sample[1]}
    dims = len(patch)
    arguments = (tuple(patch), (-angle, angle), [[s] * dims for s in SCALES], tuple(range(dims)), False)
    ours, theirs = training_transforms(*arguments), nnUNetTrainer.get_training_transforms(*arguments)
    generator = SeedTree(peers.SEED).generator
    count = 4 if settings.quick else SAMPLES
    draws, gates = _balanced(ours, arrays, generator, count)
    seconds: dict[str, list[float]] = {"detaug": [], BGV2: []}
    per_sample: dict[str, list[list[float]]] = {"detaug": [], BGV2: []}
    for draw, open_gates in list(zip(draws, gates, strict=True))[:8]:  # compiling, and the choice of a blur by timing
        ours(**arrays, rng=generator(0, draw))
        _Same(theirs, open_gates)({key: value.clone() for key, value in arrays.items()}, draw)
    rounds, began = 0, time.perf_counter()
    while rounds == 0 or (not settings.quick and (rounds < 3 or time.perf_counter() - began < settings.seconds)):
        times: dict[str, list[float]] = {"detaug": [], BGV2: []}
        for number, (draw, open_gates) in enumerate(zip(draws, gates, strict=True)):
            order = ("detaug", BGV2) if (number + rounds) % 2 == 0 else (BGV2, "detaug")
            for system in order:
                own = {key: value.clone() for key, value in arrays.items()}
                if system == "detaug":
                    rng = generator(0, draw)
                    begin = time.perf_counter()
                    result = ours(**own, rng=rng)
                    times[system].append(time.perf_counter() - begin)
                else:
                    elapsed, result = _Same(theirs, open_gates)(own, draw)
                    times[system].append(elapsed)
                del result, own
        for system, values in times.items():
            seconds[system].append(sum(values) / len(values))
            per_sample[system].append(values)
        rounds += 1
    return Row(
        name=f"{name}, mean per sample",
        unit="ms",
        ours=1e3 * median(seconds["detaug"]),
        checks=[
            ratio_check(BGV2, 1e3 * median(seconds[BGV2]), Ratio.of(seconds[BGV2], seconds["detaug"]), ">=", bound)
        ],
        repeats=rounds,
        settings={"samples": count, "shape": list(sample[0].shape), "patch": list(patch)},
        details={"seconds": seconds, "seconds_per_sample": per_sample, "draws": draws},
    )


def _balanced(
    pipeline: Any, arrays: Mapping[str, torch.Tensor], generator: Callable[[int, int], np.random.Generator], count: int
) -> tuple[list[int], list[Gates]]:
    """Draws, and their gates, in which each gate is open as often as in all candidates together."""
    shapes = {key: tuple(value.shape) for key, value in arrays.items()}
    gates = [_gates(pipeline.sample(generator(0, draw), shapes)) for draw in range(CANDIDATES)]
    table = np.array([[min(value, 1) for value in each] for each in gates])
    expected = table.mean(0)
    expected[0] = SPATIAL
    pick = np.random.Generator(np.random.PCG64(peers.SEED))
    best, best_distance = [], math.inf
    for _ in range(CHOICES):
        chosen = pick.choice(CANDIDATES, count, replace=False)
        distance = float(((table[chosen].mean(0) - expected) ** 2 / np.maximum(expected, 0.01)).sum())
        # the spatial transform is most of the time: it must be right to one sample
        if abs(table[chosen, 0].sum() - SPATIAL * count) < 1 and distance < best_distance:
            best, best_distance = [int(draw) for draw in chosen], distance
    return best, [gates[draw] for draw in best]


def _gates(params: Any) -> Gates:
    """For each transform: 0 where nothing happens, else the number of channels (the spatial transform: 1)."""
    found = []
    for own in params["transforms"]:
        if "apply_transform" in own:
            inner = own.get("params", {})
            found.append(int(own["apply_transform"]) * _count(inner.get("apply_to_channel")))
        else:
            found.append(int(own.get("affine") is not None) if "affine" in own else 1)
    return tuple(found)


def _count(channels: Any) -> int:
    """How many channels are meant by their numbers or by one truth value for each; one if there are none to choose."""
    if channels is None:
        return 1
    values = np.asarray(channels)
    return int(values.sum()) if values.dtype == bool else len(values)


class _Same:
    """batchgeneratorsv2's pipeline with these gates open."""

    def __init__(self, pipeline: Any, gates: Gates) -> None:
        self.transforms = list(zip(pipeline.transforms, gates, strict=True))

    def __call__(self, arrays: Mapping[str, torch.Tensor], draw: int) -> tuple[float, dict[str, Any]]:
        """Seconds, and the result."""
        np.random.seed(draw)
        torch.manual_seed(draw)
        sample, elapsed = dict(arrays), 0.0
        for transform, wanted in self.transforms:
            inner = getattr(transform, "transform", transform)
            if type(inner).__name__ == "SpatialTransform":
                inner.p_rotation = inner.p_scaling = float(wanted)
            elif inner is not transform and wanted == 0:
                continue
            params: dict[str, Any] = {}
            for _ in range(1000):  # until as many channels as ours are drawn
                begin = time.perf_counter()
                params = inner.get_parameters(**sample)
                drawing = time.perf_counter() - begin
                if "apply_to_channel" not in params or _count(params["apply_to_channel"]) == wanted:
                    break
            else:
                raise RuntimeError(f"{type(inner).__name__} never chose {wanted} channels")
            begin = time.perf_counter()
            sample = inner.apply(sample, **params)
            elapsed += drawing + time.perf_counter() - begin
        return elapsed, sample
