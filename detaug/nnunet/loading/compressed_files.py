"""nnU-Net's compressed arrays (``.b2nd``), opened: a slice of one decompresses the blocks that it touches."""

from __future__ import annotations

import os
from typing import Any

from detaug.nnunet.loading.recently_used import RecentlyUsed
from detaug.nnunet.loading.unreadable import reading

#: How many compressed files a process keeps open: opening one takes as long as reading a plane of it.
OPEN_FILES = 64


def _load(file: str) -> tuple[Any, int]:
    import blosc2

    if not os.path.isfile(file):
        raise FileNotFoundError(f"there is no {file}")
    mapped = {} if os.name == "nt" else {"mmap_mode": "r"}
    with reading(file):
        return blosc2.open(urlpath=file, mode="r", dparams={"nthreads": 1}, **mapped), 1


#: By their paths.
compressed_files: RecentlyUsed[str, Any] = RecentlyUsed(_load, OPEN_FILES)
