"""What makes the rest of a training reproducible: seeds, switches, random state, splits, layers, audit, environment.

The batches are `DeterministicAugmenter`'s; this package is for everything else between a seed and a checkpoint.
docs/training.md sets it beside what MMEngine, Lightning, Determined and PyTorch's notes have.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detaug.doctor.machine import environment
    from detaug.training import layers
    from detaug.training.auditing.runs import audit
    from detaug.training.data_loading import EpochSampler, generator, worker_init_fn
    from detaug.training.layers.functions import deterministic_functions
    from detaug.training.layers.swapping import make_deterministic, swap_layers
    from detaug.training.random_state import isolate_rng, rng_state, set_rng_state
    from detaug.training.seeding import seed_everything
    from detaug.training.splits import Split, kfold, train_val_split
    from detaug.training.switches import deterministic_mode, set_deterministic_mode
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

_HOMES = {
    "EpochSampler": "data_loading",
    "Split": "splits",
    "audit": "auditing.runs",
    "deterministic_functions": "layers.functions",
    "deterministic_mode": "switches",
    "environment": "detaug.doctor.machine",
    "generator": "data_loading",
    "isolate_rng": "random_state",
    "kfold": "splits",
    "make_deterministic": "layers.swapping",
    "rng_state": "random_state",
    "seed_everything": "seeding",
    "set_deterministic_mode": "switches",
    "set_rng_state": "random_state",
    "swap_layers": "layers.swapping",
    "train_val_split": "splits",
    "verify": "verifying",
    "worker_init_fn": "data_loading",
}


def __getattr__(name: str) -> Any:
    if name == "layers":
        return importlib.import_module("detaug.training.layers")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'detaug.training' has no attribute {name!r}")
    value = getattr(importlib.import_module(home if home.startswith("detaug.") else f"detaug.training.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
