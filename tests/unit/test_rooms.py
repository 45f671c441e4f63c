"""The package's folders stay small enough to be taken in at a glance."""

from __future__ import annotations

from pathlib import Path

import detaug

#: One file per transform and kernel, and what these are built from.
MANY_OF_A_KIND = ("kernels", "transforms")


def test_no_folder_has_more_than_fifteen_files_of_its_own() -> None:
    root = Path(detaug.__file__).parent
    folders = {file.parent.relative_to(root) for file in root.rglob("*.py")}
    crowded = {
        str(folder): number
        for folder in folders
        if not folder.parts or folder.parts[0] not in MANY_OF_A_KIND
        if (number := len(list((root / folder).glob("*.py")))) > 15
    }
    assert crowded == {}
