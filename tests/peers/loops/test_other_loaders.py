"""The table of other loaders in docs/loops.md says what they do.

`python -m tests.peers.loops.other_loaders` prints it.
"""

from __future__ import annotations

import pytest

from tests.peers.loops.other_loaders import LIBRARIES, MODULES, measure
from tests.peers.loops.pages import table_of


def test_the_table_has_all_libraries() -> None:
    for row in table_of(*LIBRARIES).values():
        assert list(row) == list(LIBRARIES)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_column_of_the_table(library: str) -> None:
    pytest.importorskip(MODULES.get(library, "detaug"))
    expected = {claim: row[library] for claim, row in table_of(*LIBRARIES).items()}
    assert measure(library) == expected
