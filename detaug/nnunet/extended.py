"""A stronger pipeline for MRI: nnU-Net's default, and artefacts that scanners make."""

from __future__ import annotations

import math
from collections.abc import Sequence

from detaug.nnunet.transforms import Arguments, default_pipeline
from detaug.nnunet.variants import as_builder
from detaug.transforms import (
    Anisotropy,
    BiasField,
    CoarseDropout,
    Compose,
    Ghosting,
    GibbsNoise,
    HistogramShift,
    Motion,
    OneOf,
    RandomApply,
    Spikes,
    Transform,
)

_MODERATELY = math.radians(5)


@as_builder
def extended_transforms(given: Arguments) -> Compose:
    """``nnUNetTrainerDetAugExt``: nnU-Net's default pipeline, between whose spatial part and intensities come a bias field
    (probability 0.2), thick slices (0.1), one artefact of k-space (0.2: motion, ghosting, spikes or ringing, each as likely),
    and after which come a shifted histogram (0.1) and coarse dropout (0.1).

    Probabilities and ranges are ours; they are weaker than the originals' defaults where these make images that no scanner
    would pass. Arguments as for `training_transforms`.
    """
    later = [
        RandomApply(HistogramShift((5, 10), synchronize_channels=False), 0.1),
        RandomApply(_dropout(given.patch_size), 0.1),
    ]
    return default_pipeline(given, 0.5, earlier=_scanner_artefacts(given.do_dummy_2d), later=later)


def _scanner_artefacts(do_dummy_2d: bool) -> list[Transform]:
    # a volume that is deformed in its planes alone has thick slices along the first axis already
    axes = range(1, 3) if do_dummy_2d else None
    k_space = OneOf(
        [
            Motion(rotation=(-_MODERATELY, _MODERATELY), translation=(-5, 5)),
            Ghosting(num_ghosts=(4, 10), intensity=(0.1, 0.6)),
            Spikes(num_spikes=(1, 2), intensity=(0.1, 0.6)),
            GibbsNoise((0.2, 0.7)),
        ]
    )
    return [
        RandomApply(BiasField((-0.4, 0.4), synchronize_channels=False), 0.2),
        RandomApply(Anisotropy(axes, downsampling=(1.5, 4), profile="box"), 0.1),
        RandomApply(k_space, 0.2),
    ]


def _dropout(patch_size: Sequence[int]) -> Transform:
    size = [int(n) for n in patch_size]
    return CoarseDropout(
        1,
        [max(1, n // 16) for n in size],
        max_holes=6,
        max_spatial_size=[max(2, n // 5) for n in size],
    )
