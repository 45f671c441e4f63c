"""Lines of a ledger's header do not depend on the machine's folders."""

from __future__ import annotations

import pytest

from detaug.ledger.header import portable


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "data_loader.folder = Path('/home/somebody/data/Dataset001')",
            "data_loader.folder = Path('.../Dataset001')",
        ),
        ("data_loader.file = '/data/a.npy'", "data_loader.file = '.../a.npy'"),
        (
            "data_loader.files = ['/data/a.npy', \"/b's.npy\", 'c/d.npy']",
            "data_loader.files = ['.../a.npy', \".../b's.npy\", 'c/d.npy']",
        ),
        ("data_loader.folder = 'C:\\\\data\\\\cases\\\\'", "data_loader.folder = '.../cases'"),
        ("data_loader.folder = '~/cases/'", "data_loader.folder = '.../cases'"),
        ("transform.separator = '/'", "transform.separator = '/'"),
        ("transform.rate = 1/2", "transform.rate = 1/2"),
    ],
)
def test_absolute_paths_are_their_last_names(line: str, expected: str) -> None:
    assert portable([line]) == [expected]
