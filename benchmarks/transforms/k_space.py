"""The rows of MRI's artefacts that arise in k-space: five times as fast as TorchIO's or MONAI's, whose formulas they are.

And 1.5 times as fast as the same with torch's transforms of real numbers, at lengths that are large primes as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.report import Row
from benchmarks.transforms import inputs, peers, plain_torch
from benchmarks.transforms.timing import Settings, alternating, one_thread, row_of

BOUND, TORCH_BOUND = 5.0, 1.5


def _measure(
    name: str,
    ours: str,
    settings: Settings,
    space: tuple[int, ...] = inputs.PATCH,
    torch: plain_torch.Transform | None = None,
    **theirs: Callable[[Any], Any],
) -> Row:
    """``theirs``: the peer's name and a function of its module; all with their defaults, which are the same."""
    from detaug import transforms

    one_thread()
    arrays = inputs.image(space)
    systems = {"detaug": peers.detaug(getattr(transforms, ours)(), arrays)}
    if "monai" in theirs and (library := peers.optional("monai.transforms")) is not None:
        systems["MONAI"] = peers.monai(theirs["monai"](library), arrays)
    if (
        len(space) == 3
        and "torchio" in theirs
        and (library := peers.optional("torchio")) is not None
    ):
        _keep_one_thread_in_simple_itk()
        systems["TorchIO"] = peers.torchio(theirs["torchio"](library), arrays)
    bounds: dict[str, float | None] = dict.fromkeys(systems, BOUND)
    if torch is not None:
        systems["torch"], bounds["torch"] = peers.plain(torch, arrays), TORCH_BOUND
    return row_of(
        inputs.sized(name, space), alternating(systems, settings), bounds, {"arguments": "defaults"}
    )


def _keep_one_thread_in_simple_itk() -> None:
    """TorchIO resamples with it."""
    if (library := peers.optional("SimpleITK")) is not None:
        library.ProcessObject.SetGlobalDefaultNumberOfThreads(1)


def measure_ghosting(settings: Settings, space: tuple[int, ...] = inputs.PATCH) -> Row:
    """Ghosts along one of the axes."""
    return _measure(
        "ghosting",
        "Ghosting",
        settings,
        space,
        plain_torch.ghosting,
        torchio=lambda t: t.RandomGhosting(),
    )


def measure_spikes(settings: Settings) -> Row:
    """One spike in k-space, 128³. MONAI sets a coefficient where TorchIO adds to it."""
    return _measure(
        "k-space spike",
        "Spikes",
        settings,
        monai=lambda m: m.RandKSpaceSpikeNoise(prob=1),
        torchio=lambda t: t.RandomSpike(),
    )


def measure_gibbs_noise(settings: Settings, space: tuple[int, ...] = inputs.PATCH) -> Row:
    """K-space cut off outside of a ball."""
    return _measure(
        "Gibbs ringing",
        "GibbsNoise",
        settings,
        space,
        plain_torch.gibbs_noise,
        monai=lambda m: m.RandGibbsNoise(prob=1),
    )


def measure_motion(settings: Settings) -> Row:
    """Two rigid movements, 128³."""
    return _measure(
        "rigid motion in k-space", "Motion", settings, torchio=lambda t: t.RandomMotion()
    )
