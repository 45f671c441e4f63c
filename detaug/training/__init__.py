"""What makes a training reproducible besides its batches: seeds, switches, random state, splits, layers, audit, verify.

docs/training.md compares it with MMEngine, Lightning, Determined and PyTorch's notes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detaug.lazy_exports import lazily

if TYPE_CHECKING:
    from detaug.doctor.machine import environment
    from detaug.training import layers
    from detaug.training.auditing.runs import audit
    from detaug.training.data_loading import EpochSampler, generator, worker_init_fn
    from detaug.training.layers.redirection import deterministic_functions
    from detaug.training.layers.swapping import make_deterministic, swap_layers
    from detaug.training.random_state import isolate_rng, rng_state, set_rng_state
    from detaug.training.seeding import seed_everything
    from detaug.training.splits import Split, kfold, train_val_split
    from detaug.training.switches.modes import deterministic_mode, set_deterministic_mode
    from detaug.training.verifying import verify

__all__ = [
    "EpochSampler",
    "Split",
    "audit",
    "deterministic_functions",
    "deterministic_mode",
    "environment",
    "generator",
    "isolate_rng",
    "kfold",
    "layers",
    "make_deterministic",
    "rng_state",
    "seed_everything",
    "set_deterministic_mode",
    "set_rng_state",
    "swap_layers",
    "train_val_split",
    "verify",
    "worker_init_fn",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "detaug.doctor.machine": ("environment",),
        "detaug.training.auditing.runs": ("audit",),
        "detaug.training.data_loading": ("EpochSampler", "generator", "worker_init_fn"),
        "detaug.training.layers": ("layers",),
        "detaug.training.layers.redirection": ("deterministic_functions",),
        "detaug.training.layers.swapping": ("make_deterministic", "swap_layers"),
        "detaug.training.random_state": ("isolate_rng", "rng_state", "set_rng_state"),
        "detaug.training.seeding": ("seed_everything",),
        "detaug.training.splits": ("Split", "kfold", "train_val_split"),
        "detaug.training.switches.modes": ("deterministic_mode", "set_deterministic_mode"),
        "detaug.training.verifying": ("verify",),
    },
)
