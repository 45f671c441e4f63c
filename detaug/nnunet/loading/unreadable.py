"""Errors of reading that say which file of which case it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any


class UnreadableCase(OSError):
    """A file of a preprocessed case cannot be read; the message names both."""


@contextmanager
def reading(file: str | Path) -> Iterator[None]:
    """Inside, a case's file is read; its name is that of the case.

    Raises:
        UnreadableCase: instead of what the library raises. FileNotFoundError: the file is not there.
    """
    try:
        yield
    except (FileNotFoundError, UnreadableCase, MemoryError):
        raise
    except Exception as error:  # damaged bytes lead blosc2, pickle, NumPy and zlib to errors of any kind
        case = Path(file).name.partition(".")[0].removesuffix("_seg")
        raise UnreadableCase(
            f"case {case}: {file} cannot be read ({type(error).__name__}: {error}). If its bytes are damaged, preprocess the "
            "case again (nnUNetv2_preprocess) or restore the file, and continue the training from its last checkpoint"
        ) from error


def file_of(array: Any) -> str:
    """Where an opened array is stored."""
    schunk = getattr(array, "schunk", None)
    return str(getattr(schunk, "urlpath", None) or getattr(array, "filename", None) or "a file")


class NamesCases:
    """`generate_train_batch` of nnU-Net's loader, whose errors say at which case they came.

    Args:
        loader: any of batchgenerators' kind, with the names of its cases as `indices`.
    """

    def __init__(self, loader: Any) -> None:
        self._loader, self._make = loader, loader.generate_train_batch

    def __call__(self) -> Any:
        try:
            return self._make()
        except Exception as error:
            names = set(map(str, self._loader.indices))
            for frame, _ in walk_tb(error.__traceback__):
                found = [each for each in frame.f_locals.values() if isinstance(each, str) and each in names]
                if found and frame.f_locals.get("self") is self._loader:
                    error.add_note(f"while a patch of case {found[-1]} was made")
                    break
            raise
