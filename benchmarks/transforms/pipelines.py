"""Rows: nnU-Net's pipelines, mean CPU time per sample, against batchgeneratorsv2's.

The gates make one sample cost ten times another. So many params are drawn first, and samples are
chosen from these such that each gate opens as often as its probability says. batchgeneratorsv2
applies the same transforms to the same samples: those whose gate opened, to as many channels.

The two take turns batch by batch. nnU-Net's loader transforms the samples of a batch one after
another, so that code and memory are in the caches for all but the first of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.calls import Stopwatch, Work, alternate, draws_until
from benchmarks.report import OURS, Row, row_of
from benchmarks.settings import SEED, Settings
from benchmarks.transforms import inputs
from detaug import SeedTree
from detaug.nnunet import training_transforms
from detaug.nnunet.compatibility import trainer_class
from detaug.system.threads import keep_one_thread

BGV2 = "batchgeneratorsv2"

LITTLE = math.radians(30)
MUCH = math.radians(180)
#: Levels of deep supervision.
LEVELS = 5

#: The least seconds of a row, both systems together.
SECONDS = 10.0

#: Draws from which samples are chosen, and how many choices are tried.
CANDIDATES = 1000
CHOICES = 400

#: batchgeneratorsv2 draws again until it has chosen as many channels; more draws than this are a
#: fault of the benchmark.
MOST_DRAWS = 5000

generator = SeedTree(SEED).generator

Arrays = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Contest:
    """A pipeline with what it is given.

    Attributes:
        name: as pages and results have it.
        sample: makes image and segmentation.
        patch: voxels of the result.
        angle: radians; rotations are drawn from ``-angle`` to ``angle``.
        batch: samples; nnU-Net's batch size for its references with such a patch.
        samples: how many are measured in a round.
    """

    name: str
    sample: Callable[[], tuple[torch.Tensor, torch.Tensor]]
    patch: tuple[int, ...]
    angle: float
    batch: int
    samples: int

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of nnU-Net's ``get_training_transforms``."""
        axes = len(self.patch)
        scales = [[1 / 2**level] * axes for level in range(LEVELS)]
        rotation = (-self.angle, self.angle)
        return self.patch, rotation, scales, tuple(range(axes)), False


def _volume() -> tuple[torch.Tensor, torch.Tensor]:
    return inputs.volume(inputs.ENLARGED)


def _plane() -> tuple[torch.Tensor, torch.Tensor]:
    return inputs.slice_of_volume(inputs.FLAT_ENLARGED)


IN_3D = Contest("nnU-Net's 3-D pipeline", _volume, inputs.PATCH, LITTLE, batch=2, samples=50)
IN_2D = Contest("nnU-Net's 2-D pipeline", _plane, inputs.FLAT_PATCH, MUCH, batch=12, samples=48)


def measure(contest: Contest, settings: Settings) -> Row:
    """Measure detaug's pipeline and batchgeneratorsv2's on the same samples."""
    keep_one_thread()
    image, segmentation = contest.sample()
    arrays = {"image": image, "segmentation": segmentation}
    ours = training_transforms(*contest.arguments())
    theirs = trainer_class().get_training_transforms(*contest.arguments())
    ours.warm_up()
    count = contest.samples
    if settings.quick:
        count = 2 * contest.batch
    draws, params = balanced_draws(ours, arrays, count)
    works = {
        OURS: _our_work(ours, arrays, draws, contest.batch),
        BGV2: _their_work(theirs, arrays, draws, params, contest.batch),
    }
    batches = range(count // contest.batch)
    # The blur of batchgeneratorsv2 times its algorithms at first.
    alternate(works, batches[:4])
    seconds: dict[str, list[float]] = {OURS: [], BGV2: []}
    least_rounds = 3
    least_seconds = SECONDS
    if settings.quick:
        least_rounds = 1
        least_seconds = 0.0
    for _ in draws_until(least_rounds, least_seconds):
        for system, timed in alternate(works, batches).items():
            seconds[system].append(sum(batch.cpu for batch in timed) / count)
    return row_of(
        f"{contest.name}, mean per sample",
        "ms",
        seconds,
        {
            "samples": count,
            "batch": contest.batch,
            "shape": list(image.shape),
            "patch": list(contest.patch),
        },
    )


def _our_work(pipeline: Any, arrays: Arrays, draws: Sequence[int], batch: int) -> Work:
    """Return work whose draws are numbers of batches."""

    def work(number: int, stopwatch: Stopwatch) -> None:
        for draw in draws[number * batch : (number + 1) * batch]:
            own = _copied(arrays)
            rng = generator(0, draw)
            with stopwatch:
                result = pipeline(**own, rng=rng)
            del result

    return work


def _their_work(
    pipeline: Any, arrays: Arrays, draws: Sequence[int], params: Sequence[Any], batch: int
) -> Work:
    def work(number: int, stopwatch: Stopwatch) -> None:
        for index in range(number * batch, (number + 1) * batch):
            _apply_as(pipeline, params[index], _copied(arrays), draws[index], stopwatch)

    return work


def _copied(arrays: Arrays) -> Arrays:
    return {key: value.clone() for key, value in arrays.items()}


# --- the same work for both -----------------------------------------------------------------------


def balanced_draws(pipeline: Any, arrays: Arrays, count: int) -> tuple[list[int], list[Any]]:
    """Return draws and their params, in which each gate opens as often as in all candidates."""
    shapes = {key: tuple(value.shape) for key, value in arrays.items()}
    params = [pipeline.sample(generator(0, draw), shapes) for draw in range(CANDIDATES)]
    gates = np.array([_gates(own) for own in params])
    expected = gates.mean(0)
    rng = np.random.Generator(np.random.PCG64(SEED))
    best: list[int] = []
    least = math.inf
    for _ in range(CHOICES):
        chosen = rng.choice(CANDIDATES, count, replace=False)
        # The spatial transform is most of the time: it must be right to one sample.
        if abs(gates[chosen, 0].sum() - expected[0] * count) >= 1:
            continue
        errors = (gates[chosen].mean(0) - expected) ** 2 / np.maximum(expected, 0.01)
        if errors.sum() < least:
            least = float(errors.sum())
            best = [int(draw) for draw in chosen]
    return best, [params[draw] for draw in best]


def _gates(params: Any) -> list[float]:
    """Return for each transform whether it does anything, 1 or 0."""
    gates: list[float] = []
    for own in params["transforms"]:
        if "apply_transform" in own:
            gates.append(float(_is_open(own)))
        elif "affine" in own:
            gates.append(float(own["affine"] is not None))
        else:
            gates.append(1.0)
    return gates


def _is_open(own: Any) -> bool:
    return bool(own["apply_transform"]) and _num_channels(own["params"]) != 0


def _num_channels(params: Any) -> int | None:
    """Return how many channels params are for; None if they say nothing about channels."""
    for name in ("apply_to_channel", "apply_channel"):
        if params.get(name) is not None:
            channels = np.asarray(params[name])
            return int(channels.sum()) if channels.dtype == bool else len(channels)
    return None


def _apply_as(
    pipeline: Any, params: Any, sample: dict[str, Any], draw: int, stopwatch: Stopwatch
) -> None:
    """Apply batchgeneratorsv2's pipeline with the gates of detaug's params open, and time that."""
    np.random.seed(draw)
    torch.manual_seed(draw)
    for transform, own in zip(pipeline.transforms, params["transforms"], strict=True):
        if "apply_transform" in own:
            if not own["apply_transform"]:
                continue
            transform = transform.transform
            own = own["params"]
        if "affine" in own:
            transform.p_rotation = transform.p_scaling = float(own["affine"] is not None)
        _restore_drawing_of(transform, own, sample)
        with stopwatch:
            sample = transform.apply(sample, **transform.get_parameters(**sample))


def _restore_drawing_of(transform: Any, own: Mapping[str, Any], sample: dict[str, Any]) -> None:
    """Put the generators where the transform draws as many channels as these params have."""
    for _ in range(MOST_DRAWS):
        numpy_state = np.random.get_state()
        torch_state = torch.get_rng_state()
        params = transform.get_parameters(**sample)
        if _num_channels(params) in (None, _num_channels(own)):
            np.random.set_state(numpy_state)
            torch.set_rng_state(torch_state)
            return
    raise RuntimeError(f"{type(transform).__name__} never chose as {own}")
