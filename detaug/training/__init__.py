"""Parts that make a training reproducible besides its batches.

They are seeds, switches, random state, layers and an audit.

docs/training.md compares it with MMEngine, Lightning, Determined and PyTorch's notes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detaug.lazy_exports import lazily

if TYPE_CHECKING:
    from detaug.training.auditing import audit
    from detaug.training.layers.swapping import deterministic_functions, make_deterministic
    from detaug.training.machine import environment
    from detaug.training.random_state import isolate_rng, rng_state, set_rng_state
    from detaug.training.seeding import seed_everything
    from detaug.training.switches import deterministic_mode

__all__ = [
    "audit",
    "deterministic_functions",
    "deterministic_mode",
    "environment",
    "isolate_rng",
    "make_deterministic",
    "rng_state",
    "seed_everything",
    "set_rng_state",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "detaug.training.machine": ("environment",),
        "detaug.training.auditing": ("audit",),
        "detaug.training.layers.swapping": (
            "deterministic_functions",
            "make_deterministic",
        ),
        "detaug.training.random_state": ("isolate_rng", "rng_state", "set_rng_state"),
        "detaug.training.seeding": ("seed_everything",),
        "detaug.training.switches": ("deterministic_mode",),
    },
)
