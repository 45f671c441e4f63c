"""`import detaug` has every public name and room, and imports none of them before it is asked for."""

from __future__ import annotations

import sys

from tests.support.waiting import run_program

CODE = """
import sys
import numpy as np
import detaug

def loaded():
    return {"torch", "numba", "scipy", "nnunetv2", "ray"} & set(sys.modules)

rooms = {"transforms", "training", "nnunet", "ray"}
assert rooms <= set(dir(detaug)), "what completion offers"
detaug.SeedTree(1).child("train").generator(epoch=0, step=0)
without_torch = detaug.fingerprint({"data": np.full(3, np.nan), "label": [1, "a", None]})
assert not loaded(), loaded()
assert detaug.transforms.Mirror and detaug.training.rng_state and detaug.nnunet.training_transforms
assert "ray" not in sys.modules
import torch
assert detaug.fingerprint({"data": np.full(3, np.nan), "label": [1, "a", None]}) == without_torch
assert detaug.fingerprint(torch.ones(2)) != detaug.fingerprint(np.ones(2, np.float32))
assert detaug.fingerprint(torch.float32) != detaug.fingerprint("torch.float32x")
aug: detaug.DeterministicAugmenter[dict[str, torch.Tensor]]
aug = detaug.DeterministicAugmenter[dict[str, torch.Tensor]]([{"a": torch.ones(1)}], None, 0, seed=1)
assert next(aug)["a"] == 1
"""


def test_names_are_there_and_imported_on_first_use() -> None:
    done = run_program([sys.executable, "-c", CODE])
    assert done.returncode == 0, done.stderr
