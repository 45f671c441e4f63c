"""Batches from a Ray cluster whose nodes read the cases through fsspec: the same bytes as from this
process.

A cluster's nodes need not share a folder: what the data set opens is an address. Here it is a ZIP
archive that each process copies to its own disk on first use (``simplecache``); other places, such
as ``s3://``, are addressed in the same way. A case that is not there is an error that names the
node.

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
NAMES = [f"case_{number:03}" for number in range(12)]


class Cases:
    """A map-style data set of volumes (C, D, H, W), each of which is read when it is asked for,
    mirrored at random.

    Args:
        archive: where the ZIP archive with the cases is, as fsspec has it.
        names: of the cases.
    """

    def __init__(self, archive: str, names: list[str]) -> None:
        self.archive = archive
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        with fsspec.open(f"zip://{self.names[index]}.npy::simplecache::{self.archive}") as file:
            volume = np.load(file)
        flipped = [axis for axis in (1, 2, 3) if current().generator.random() < 0.5]
        return np.flip(volume, flipped)


def write_archive(path: Path) -> str:
    """Cases of random numbers, for want of better ones. Returns the archive's address."""
    generator = np.random.default_rng(0)
    with zipfile.ZipFile(path, "w") as archive:
        for name in NAMES:
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(
                    file, generator.standard_normal((1, 16, 24, 24), np.float32)
                )
    return path.as_uri()


def augmenter_of(
    archive: str, names: list[str], num_processes: int = 0, **options: Any
) -> DeterministicAugmenter:
    """Batches (N, C, D, H, W)."""
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

    # One for this program alone; yours has the head's address.
    cluster = RayExecutor(num_actors=2, address="local", num_cpus=0.5)
    with tempfile.TemporaryDirectory() as folder:
        archive = write_archive(Path(folder) / "cases.zip")
        with augmenter_of(archive, NAMES) as here:
            expected = [fingerprint(batch) for batch in here]
        with augmenter_of(archive, NAMES, executor=cluster) as there:
            assert [fingerprint(batch) for batch in there] == expected
        with augmenter_of(archive, [*NAMES, "case_012"], executor=cluster) as incomplete:
            try:
                list(incomplete)
            except BatchError as error:
                print(
                    "as expected:",
                    next(line for line in str(error).splitlines() if "on node" in line),
                )
    print(
        f"{len(expected)} batches through fsspec, the same from this process and from a Ray cluster"
    )


if __name__ == "__main__":
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    main()
