"""Deterministic, crash-proof, fast data augmentation for 3-D medical images.

`DeterministicAugmenter` replaces batchgenerators' NonDetMultiThreadedAugmenter. The same seed gives
the same batches, in the same order, for any number and timing of worker processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detaug.lazy_exports import lazily
from detaug.versions import __version__

if TYPE_CHECKING:
    from detaug import nnunet, ray, training, transforms  # noqa: F401
    from detaug.augmenter.augmenter import DeterministicAugmenter
    from detaug.augmenter.data_loader import DataLoader
    from detaug.engine.arguments import Check, Skip
    from detaug.engine.in_process import InThisProcess
    from detaug.engine.local.coordinator import LocalProcesses
    from detaug.errors import BatchError, ReproducibilityError, StateMismatch, WorkerDied
    from detaug.objects.fingerprints import fingerprint
    from detaug.seeding.current import current
    from detaug.seeding.reseeders import register_reseeder
    from detaug.seeding.tree import SeedTree
    from detaug.tools.previews import preview
    from detaug.training.seeding import seed_everything
    from detaug.verification import verify

__all__ = [
    "BatchError",
    "Check",
    "DataLoader",
    "DeterministicAugmenter",
    "InThisProcess",
    "LocalProcesses",
    "ReproducibilityError",
    "SeedTree",
    "Skip",
    "StateMismatch",
    "WorkerDied",
    "__version__",
    "current",
    "fingerprint",
    "preview",
    "register_reseeder",
    "seed_everything",
    "verify",
]

# Imported on first use: torch takes seconds to import, and neither `detaug --help` nor the engine's
# helper process needs it.
__getattr__, __dir__ = lazily(
    __name__,
    {
        "detaug.augmenter.augmenter": ("DeterministicAugmenter",),
        "detaug.augmenter.data_loader": ("DataLoader",),
        "detaug.engine.in_process": ("InThisProcess",),
        "detaug.engine.local.coordinator": ("LocalProcesses",),
        "detaug.engine.arguments": ("Check", "Skip"),
        "detaug.errors": ("BatchError", "ReproducibilityError", "StateMismatch", "WorkerDied"),
        "detaug.objects.fingerprints": ("fingerprint",),
        "detaug.nnunet": ("nnunet",),
        "detaug.tools.previews": ("preview",),
        "detaug.ray": ("ray",),
        "detaug.seeding.current": ("current",),
        "detaug.seeding.reseeders": ("register_reseeder",),
        "detaug.seeding.tree": ("SeedTree",),
        "detaug.training": ("training",),
        "detaug.training.seeding": ("seed_everything",),
        "detaug.transforms": ("transforms",),
        "detaug.verification": ("verify",),
    },
)
