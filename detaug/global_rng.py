"""Python's, NumPy's and torch's global random number generators: reseeding them per batch, and putting them back.

Code that draws from global state (nnU-Net's loader, batchgenerators, batchgeneratorsv2, MONAI, TorchIO) becomes a pure
function of the batch when all three are reseeded from the batch's SeedSequence child before it runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def reseed_global_rngs(sequence: np.random.SeedSequence) -> None:
    """Seed `random`, `numpy.random` and torch's default CPU generator from eight disjoint words each of one child.

    `torch.default_generator` is used and not `torch.manual_seed`, which would reach for CUDA in every worker.
    """
    words = sequence.generate_state(18, np.uint32)
    random.seed(int.from_bytes(words[:8].astype("<u4").tobytes(), "little"))
    _seed_numpy(words[8:16])
    # 63 bits: torch takes a signed 64-bit number.
    torch.default_generator.manual_seed(int(words[16]) | (int(words[17]) & 0x7FFFFFFF) << 32)


def _seed_numpy(words: np.ndarray) -> None:
    np.random.seed(words)
    if not isinstance(np.random.get_bit_generator(), np.random.MT19937):  # type: ignore[attr-defined]
        # numpy.random.set_bit_generator put another kind in place; `seed` then keeps the cached second normal.
        np.random.set_state({**np.random.get_state(legacy=False), "has_gauss": 0, "gauss": 0.0})


@contextmanager
def preserved_global_rngs() -> Iterator[None]:
    """Whatever happens inside, the caller finds its own global random state again afterwards."""
    python_state = random.getstate()
    numpy_state = np.random.get_state(legacy=False)
    torch_state = torch.default_generator.get_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.default_generator.set_state(torch_state)
