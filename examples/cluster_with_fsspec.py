"""Batches from a Ray cluster whose nodes read the cases through fsspec.

They have the same bytes as batches from this process.

The nodes of a cluster need not share a folder, since the data set opens an address. Here it is a
ZIP archive that each process copies to its own disk on first use (``simplecache``). Others, such as
``s3://``, work in the same way. If a case is missing, the error names the node.

Needs ``pip install '.[ray]'``.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from detaug import BatchError, DeterministicAugmenter, current, fingerprint

try:
    import fsspec
except ImportError:
    raise SystemExit("this example needs fsspec and Ray: pip install fsspec 'ray>=2.40'") from None

BATCH_SIZE = 2
NAMES = [f"case_{index:03}" for index in range(12)]


class Cases:
    """A map-style data set of volumes (C, D, H, W), read on request and mirrored at random.

    Args:
        archive: address of the ZIP archive with the cases, for fsspec.
        names: names of the cases.
    """

    def __init__(self, archive: str, names: list[str]) -> None:
        self.archive = archive
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        with fsspec.open(f"zip://{self.names[index]}.npy::simplecache::{self.archive}") as file:
            volume = np.load(file)
        mirrored_axes = [axis for axis in (1, 2, 3) if current().generator.random() < 0.5]
        return np.flip(volume, mirrored_axes)


def write_archive(path: Path) -> str:
    """Write cases of random numbers, and return the archive's address."""
    generator = np.random.default_rng(0)
    with zipfile.ZipFile(path, "w") as archive:
        for name in NAMES:
            volume = generator.standard_normal((1, 16, 24, 24), np.float32)
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, volume)
    return path.as_uri()


def augmenter_of(
    archive: str, names: list[str], num_processes: int = 0, **options: Any
) -> DeterministicAugmenter:
    """Return an augmenter with batches (N, C, D, H, W)."""
    return DeterministicAugmenter.from_dataset(
        Cases(archive, names),
        BATCH_SIZE,
        collate_fn=np.stack,
        num_processes=num_processes,
        seed=1234,
        **options,
    )


def main() -> None:
    from detaug.ray import RayExecutor

    # A cluster for this program alone. For a real one, pass the address of its head.
    cluster = RayExecutor(num_actors=2, address="local", num_cpus=0.5)
    with tempfile.TemporaryDirectory() as folder:
        archive = write_archive(Path(folder) / "cases.zip")
        with augmenter_of(archive, NAMES) as local:
            expected = [fingerprint(batch) for batch in local]
        with augmenter_of(archive, NAMES, executor=cluster) as remote:
            assert [fingerprint(batch) for batch in remote] == expected
        with augmenter_of(archive, [*NAMES, "case_012"], executor=cluster) as incomplete:
            try:
                list(incomplete)
            except BatchError as error:
                lines = str(error).splitlines()
                print("as expected:", next(line for line in lines if "on node" in line))
    print(
        f"{len(expected)} batches through fsspec, the same from this process and from a Ray cluster"
    )


if __name__ == "__main__":
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    main()
