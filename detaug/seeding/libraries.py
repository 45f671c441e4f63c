"""Random number generators that libraries keep for the whole process (or thread), and that no seed of Python, NumPy or
torch reaches: OpenCV's, those inside Numba-compiled code, and the one that all MONAI transforms share.

Nothing is imported and nothing is touched for a library that the process has not loaded. torchvision, TorchIO and
Kornia draw from torch's generator; scikit-image, SciPy and scikit-learn from NumPy's. SimpleITK's noise filters take
their seed from the clock, one filter at a time: nothing can be set for all of them.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

_MT19937_WORDS = 624
#: OpenCV's four bytes and MONAI's 32 come before Numba's two states.
_NUMBA_NUMPY = slice(40, 40 + 4 * _MT19937_WORDS)
_NUMBA_PYTHON = slice(_NUMBA_NUMPY.stop, _NUMBA_NUMPY.stop + 4 * _MT19937_WORDS)
#: What `seed_libraries` takes.
LIBRARY_BYTES = _NUMBA_PYTHON.stop


def seed_libraries(words: bytes) -> None:
    """Seed their generators, in the calling thread. Which others are loaded changes no library's bytes."""
    opencv, numba, monai = _opencv(), _numba(), _monai()
    if opencv is not None:
        opencv.setRNGSeed(struct.unpack_from("=i", words)[0])  # 32 bits, signed: all that it takes
    if monai is not None:
        monai.seed(np.frombuffer(words, np.uint32, 8, offset=8))
    if numba is not None:
        for address, part in (
            (numba.rnd_get_np_state_ptr(), words[_NUMBA_NUMPY]),
            (numba.rnd_get_py_state_ptr(), words[_NUMBA_PYTHON]),
        ):
            numba.rnd_set_state(address, (_MT19937_WORDS, list(struct.unpack(f"={_MT19937_WORDS}I", part))))


@contextmanager
def preserved_libraries() -> Iterator[None]:
    """Put these generators back at the block's end.

    OpenCV's state cannot be read: its generator continues from a number drawn from it beforehand. The second of a pair of
    normals, which Numba keeps for the next call, is lost.
    """
    with ExitStack() as stack:
        numba, opencv, monai = _numba(), _opencv(), _monai()
        if numba is not None:
            for address in (numba.rnd_get_np_state_ptr(), numba.rnd_get_py_state_ptr()):
                stack.callback(numba.rnd_set_state, address, numba.rnd_get_state(address))
        if monai is not None:
            stack.callback(monai.set_state, monai.get_state(legacy=False))
        if opencv is not None:
            drawn = np.zeros(1, np.int32)
            opencv.randu(drawn, -(2**31), 2**31 - 1)
            stack.callback(opencv.setRNGSeed, int(drawn[0]))
        yield


def _opencv() -> Any:
    module = sys.modules.get("cv2")
    return module if hasattr(module, "setRNGSeed") else None


def _numba() -> Any:
    module = sys.modules.get("numba._helperlib")
    return module if hasattr(module, "rnd_set_state") else None


def _monai() -> Any:
    """The RandomState that every MONAI transform draws from until ``set_random_state`` gives it its own."""
    kind = getattr(sys.modules.get("monai.transforms.transform"), "Randomizable", None)
    shared = getattr(kind, "R", None)
    return shared if isinstance(shared, np.random.RandomState) else None
