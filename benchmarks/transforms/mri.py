"""The rows of transforms that TorchIO or MONAI have and batchgeneratorsv2 has not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.report import Row
from benchmarks.transforms import peers
from benchmarks.transforms.others import image
from benchmarks.transforms.timing import Settings, alternating, one_thread, row_of

AS_ASKED = 5.0


@dataclass(frozen=True)
class Contest:
    """One transform of 128³.

    Attributes:
        ours: makes it from `detaug.transforms`.
        monai, torchio: the same from these libraries, where they have it.
    """

    ours: Callable[[Any], Any]
    monai: Callable[[Any], Any] | None = None
    torchio: Callable[[Any], Any] | None = None


_REGIONS = {"holes": 8, "spatial_size": 24, "max_spatial_size": 48}

CONTESTS: dict[str, Contest] = {
    "bias field": Contest(
        lambda t: t.BiasField(),
        lambda m: m.RandBiasField(prob=1, coeff_range=(-0.5, 0.5)),
        lambda t: t.RandomBiasField(),
    ),
    "anisotropy": Contest(lambda t: t.Anisotropy(), torchio=lambda t: t.RandomAnisotropy()),
    "histogram shift": Contest(
        lambda t: t.HistogramShift(), lambda m: m.RandHistogramShift(prob=1)
    ),
    "coarse dropout": Contest(
        lambda t: t.CoarseDropout(**_REGIONS), lambda m: m.RandCoarseDropout(**_REGIONS, prob=1)
    ),
    "coarse dropout with a number": Contest(
        lambda t: t.CoarseDropout(8, 16, fill_value=0.0),
        lambda m: m.RandCoarseDropout(8, 16, fill_value=0.0, prob=1),
    ),
    "coarse dropout of the rest": Contest(
        lambda t: t.CoarseDropout(**_REGIONS, dropout_holes=False),
        lambda m: m.RandCoarseDropout(**_REGIONS, dropout_holes=False, prob=1),
    ),
    "coarse shuffle": Contest(
        lambda t: t.CoarseShuffle(**_REGIONS), lambda m: m.RandCoarseShuffle(**_REGIONS, prob=1)
    ),
}


def measure(name: str) -> Callable[[Settings], Row]:
    """The function that measures this row."""

    def measured(settings: Settings) -> Row:
        from detaug import transforms

        one_thread()
        contest, arrays = CONTESTS[name], image()
        systems = {"detaug": peers.detaug(contest.ours(transforms), arrays)}
        for system, module, make, prepare in (
            ("MONAI", "monai.transforms", contest.monai, peers.monai),
            ("TorchIO", "torchio", contest.torchio, peers.torchio),
        ):
            if make is not None and (library := peers.optional(module)) is not None:
                systems[system] = prepare(make(library), arrays)
        return row_of(name, alternating(systems, settings), dict.fromkeys(systems, AS_ASKED), {})

    return measured
