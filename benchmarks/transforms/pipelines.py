"""Rows: nnU-Net's default pipelines, mean time per sample.

The gates make one sample cost ten times another. So params are drawn first, many of them; samples are chosen from
these such that each gate opens as often as its probability says; and batchgeneratorsv2 applies the same transforms to
the same samples: those whose gate opened, to as many channels.

The two take turns batch by batch: nnU-Net's loader transforms the samples of a batch one after another, so that code and
memory are in the caches for all but the first of them. `measure_pipeline_2d_by_turns` shows what that is worth.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.report import Row, ratio_check
from benchmarks.transforms import inputs, peers
from benchmarks.transforms.timing import Settings, clock, one_thread
from detaug.bench.measuring import Ratio

BGV2 = "batchgeneratorsv2"
SAMPLES = 50
CANDIDATES, CHOICES = 1000, 400
#: nnU-Net's batch sizes for the patches that it plans its references with (`UNet_reference_val_corresp_bs_3d`, `_2d`).
BATCH_3D, BATCH_2D = 2, 12

LITTLE, MUCH = math.radians(30), math.radians(180)
SCALES = [1 / 2**level for level in range(5)]


def measure_pipeline_3d(settings: Settings) -> Row:
    """205³ → 128³, 1 channel, labels -1, 0, 1, 2."""
    volume = inputs.volume(inputs.ENLARGED)
    return _measure(
        "nnU-Net's 3-D pipeline", "nnUNetTrainer", volume, inputs.PATCH, LITTLE, 18.0, settings
    )


def measure_pipeline_3d_four_channels(settings: Settings) -> Row:
    """The same with 4 channels."""
    volume = inputs.volume(inputs.ENLARGED, channels=4)
    name = "nnU-Net's 3-D pipeline, 4 channels"
    return _measure(name, "nnUNetTrainer", volume, inputs.PATCH, LITTLE, 12.0, settings)


def measure_pipeline_3d_nearest_labels(settings: Settings) -> Row:
    """205³ → 128³, labels resampled to the nearest voxel's."""
    volume = inputs.volume(inputs.ENLARGED)
    return _measure(
        "DASegOrd0's pipeline",
        "nnUNetTrainer_DASegOrd0",
        volume,
        inputs.PATCH,
        LITTLE,
        12.0,
        settings,
    )


def measure_small_da5(settings: Settings) -> Row:
    """93³ → 48³."""
    volume = inputs.volume(inputs.SMALL_ENLARGED)
    name = "DA5's pipeline, small patches"
    return _measure(
        name, "nnUNetTrainerDA5", volume, inputs.SMALL_PATCH, LITTLE, 8.0, settings, 4 * SAMPLES
    )


def measure_small_da5_nearest(settings: Settings) -> Row:
    """The same, resampled to the nearest voxel."""
    volume = inputs.volume(inputs.SMALL_ENLARGED)
    name = "DA5ord0's pipeline, small patches"
    return _measure(
        name, "nnUNetTrainerDA5ord0", volume, inputs.SMALL_PATCH, LITTLE, 6.0, settings, 4 * SAMPLES
    )


def measure_pipeline_2d(settings: Settings) -> Row:
    """822×602 → 512×512, 1 channel."""
    volume = inputs.slice_of_volume(inputs.FLAT_ENLARGED)
    return _measure(
        "nnU-Net's 2-D pipeline", "nnUNetTrainer", volume, inputs.FLAT_PATCH, MUCH, 7.0, settings
    )


def measure_pipeline_2d_by_turns(settings: Settings) -> Row:
    """The same, one sample of each at a time: every sample finds the caches full of the other's code and arrays."""
    volume = inputs.slice_of_volume(inputs.FLAT_ENLARGED)
    name = "nnU-Net's 2-D pipeline, by turns"
    return _measure(name, "nnUNetTrainer", volume, inputs.FLAT_PATCH, MUCH, None, settings, batch=1)


def measure_extended_pipeline_3d(settings: Settings) -> Row:
    """`nnUNetTrainerDetAugExt`'s pipeline, 205³ → 128³, 1 channel, against nnU-Net's default; each with its own draws."""
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    from detaug import SeedTree
    from detaug.nnunet import extended_transforms

    one_thread()
    image, labels = inputs.volume(inputs.ENLARGED)
    arguments = (inputs.PATCH, (-LITTLE, LITTLE), [[s] * 3 for s in SCALES], (0, 1, 2), False)
    ours, theirs = (
        extended_transforms(*arguments),
        nnUNetTrainer.get_training_transforms(*arguments),
    )
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
                begin = clock()
                if system == "detaug":
                    ours(**own, rng=generator(1, draw))
                else:
                    theirs(**own)
                total += clock() - begin
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
    trainer: str,
    sample: tuple[torch.Tensor, torch.Tensor],
    patch: Sequence[int],
    angle: float,
    bound: float | None,
    settings: Settings,
    samples: int = SAMPLES,
    batch: int | None = None,
) -> Row:
    from detaug import SeedTree
    from detaug.nnunet import TRAINING_TRANSFORMS
    from detaug.nnunet.compatibility import find_trainer

    one_thread()
    arrays = {"image": sample[0], "segmentation": sample[1]}
    dims = len(patch)
    batch = batch or (BATCH_2D if dims == 2 else BATCH_3D)
    arguments = (
        tuple(patch),
        (-angle, angle),
        [[s] * dims for s in SCALES],
        tuple(range(dims)),
        False,
    )
    ours: Any = TRAINING_TRANSFORMS[trainer](*arguments)
    theirs = find_trainer(trainer).get_training_transforms(*arguments)
    generator = SeedTree(peers.SEED).generator
    count = 4 if settings.quick else samples
    draws, params = _balanced(ours, arrays, generator, count)
    seconds: dict[str, list[float]] = {"detaug": [], BGV2: []}
    per_sample: dict[str, list[list[float]]] = {"detaug": [], BGV2: []}
    ours.warm_up()
    for draw, own in list(zip(draws, params, strict=True))[:8]:  # the choice of a blur by timing
        ours(**arrays, rng=generator(0, draw))
        _Same(theirs, own)({key: value.clone() for key, value in arrays.items()}, draw)
    rounds, began = 0, time.perf_counter()
    while rounds == 0 or (
        not settings.quick and (rounds < 3 or time.perf_counter() - began < settings.seconds)
    ):
        times: dict[str, list[float]] = {"detaug": [], BGV2: []}
        for first in range(0, count, batch):
            order = ("detaug", BGV2) if (first // batch + rounds) % 2 == 0 else (BGV2, "detaug")
            for system in order:
                for draw, own in zip(
                    draws[first : first + batch], params[first : first + batch], strict=True
                ):
                    given = {key: value.clone() for key, value in arrays.items()}
                    if system == "detaug":
                        rng = generator(0, draw)
                        begin = clock()
                        result = ours(**given, rng=rng)
                        times[system].append(clock() - begin)
                    else:
                        elapsed, result = _Same(theirs, own)(given, draw)
                        times[system].append(elapsed)
                    del result, given
        for system, values in times.items():
            seconds[system].append(sum(values) / len(values))
            per_sample[system].append(values)
        rounds += 1
    return Row(
        name=f"{name}, mean per sample",
        unit="ms",
        ours=1e3 * median(seconds["detaug"]),
        checks=[
            ratio_check(
                BGV2,
                1e3 * median(seconds[BGV2]),
                Ratio.of(seconds[BGV2], seconds["detaug"]),
                ">=",
                bound,
            )
        ],
        repeats=rounds,
        settings={
            "samples": count,
            "batch": batch,
            "shape": list(sample[0].shape),
            "patch": list(patch),
        },
        details={"seconds": seconds, "seconds_per_sample": per_sample, "draws": draws},
    )


def _balanced(
    pipeline: Any,
    arrays: Mapping[str, torch.Tensor],
    generator: Callable[[int, int], np.random.Generator],
    count: int,
) -> tuple[list[int], list[Any]]:
    """Draws, and their params, in which each gate is open as often as in all candidates together."""
    shapes = {key: tuple(value.shape) for key, value in arrays.items()}
    params = [pipeline.sample(generator(0, draw), shapes) for draw in range(CANDIDATES)]
    table = np.array([_gates(each) for each in params])
    expected = table.mean(0)
    pick = np.random.Generator(np.random.PCG64(peers.SEED))
    best, best_distance = [], math.inf
    for _ in range(CHOICES):
        chosen = pick.choice(CANDIDATES, count, replace=False)
        distance = float(
            ((table[chosen].mean(0) - expected) ** 2 / np.maximum(expected, 0.01)).sum()
        )
        # the spatial transform is most of the time: it must be right to one sample
        if abs(table[chosen, 0].sum() - expected[0] * count) < 1 and distance < best_distance:
            best, best_distance = [int(draw) for draw in chosen], distance
    return best, [params[draw] for draw in best]


def _gates(params: Any) -> list[float]:
    """For each transform, or each one to choose from, whether it does anything."""
    found: list[float] = []
    for own in params["transforms"]:
        if "chosen" in own:
            inner = own["params"]
            works = inner["apply_transform"] and _channels(inner["params"]) != 0
            found += [float(works and own["chosen"] == number) for number in range(2)]
        elif "apply_transform" in own:
            found.append(float(own["apply_transform"] and _channels(own["params"]) != 0))
        else:
            found.append(float(own.get("affine") is not None) if "affine" in own else 1.0)
    return found


def _channels(params: Any) -> int | None:
    """How many channels params are for; None where they say nothing about channels."""
    for name in ("apply_to_channel", "apply_channel"):
        if params.get(name) is not None:
            values = np.asarray(params[name])
            return int(values.sum()) if values.dtype == bool else len(values)
    return None


class _Same:
    """batchgeneratorsv2's pipeline with the gates of these params open, for as many channels, with filters as large."""

    def __init__(self, pipeline: Any, params: Any) -> None:
        self.transforms = list(zip(pipeline.transforms, params["transforms"], strict=True))

    def __call__(
        self, arrays: Mapping[str, torch.Tensor], draw: int
    ) -> tuple[float, dict[str, Any]]:
        """Seconds, and the result."""
        np.random.seed(draw)
        torch.manual_seed(draw)
        sample, elapsed = dict(arrays), 0.0
        for transform, own in self.transforms:
            if "chosen" in own:
                transform, own = transform.list_of_transforms[own["chosen"]], own["params"]
            if "apply_transform" in own:
                if not own["apply_transform"]:
                    continue
                transform, own = transform.transform, own["params"]
            if "affine" in own:
                transform.p_rotation = transform.p_scaling = float(own["affine"] is not None)
            params: dict[str, Any] = {}
            for _ in range(5000):
                begin = clock()
                params = transform.get_parameters(**sample)
                drawing = clock() - begin
                if _channels(params) in (None, _channels(own)) and _sizes(params) == _sizes(own):
                    break
            else:
                raise RuntimeError(f"{type(transform).__name__} never chose as {own}")
            begin = clock()
            sample = transform.apply(sample, **params)
            elapsed += drawing + clock() - begin
        return elapsed, sample


def _sizes(params: Any) -> list[int] | None:
    """The sizes of a median filter, on which its time depends more than on all else."""
    sizes = params.get("filter_sizes")
    return None if sizes is None else [int(size) for size in sizes]
