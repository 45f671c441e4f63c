"""The tree is RFC 6962's: its reference implementation's entries and roots, and paths that prove one entry and no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detaug.ledger import merkle

#: Of Certificate Transparency's own tests.
ENTRIES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAVES = [merkle.leaf(bytes.fromhex(entry)) for entry in ENTRIES]


def test_roots_are_those_of_the_reference_implementation() -> None:
    tree = merkle.Tree()
    assert tree.root().hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    for size, (leaf, root) in enumerate(zip(LEAVES, ROOTS, strict=True), 1):
        tree.add(leaf)
        assert (tree.size, tree.root().hex(), merkle.root_of(LEAVES[:size]).hex()) == (size, root, root)


sizes = st.integers(1, 130)


@given(st.data())
def test_a_path_proves_its_entry_in_its_place_and_nothing_else(data: st.DataObject) -> None:
    size = data.draw(sizes)
    number, other = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size - 1))
    leaves = [merkle.leaf(b"%d" % each) for each in range(size)]
    root, path = merkle.root_of(leaves), merkle.path(number, leaves)
    assert merkle.root_by_path(leaves[number], number, size, path) == root
    if other != number:
        assert merkle.root_by_path(leaves[other], number, size, path) != root
        try:
            assert merkle.root_by_path(leaves[number], other, size, path) != root
        except ValueError:
            assert len(path) != len(merkle.path(other, leaves))


def test_paths_of_a_wrong_length_are_refused() -> None:
    path = merkle.path(2, LEAVES)
    with pytest.raises(ValueError, match="longer"):
        merkle.root_by_path(LEAVES[2], 2, len(LEAVES), [*path, path[0]])
    with pytest.raises(ValueError, match="shorter"):
        merkle.root_by_path(LEAVES[2], 2, len(LEAVES), path[:-1])
    with pytest.raises(IndexError, match=r"0 \.\.\. 7"):
        merkle.path(8, LEAVES)


def test_entries_nodes_links_and_beginnings_cannot_be_taken_for_each_other() -> None:
    both = LEAVES[0] + LEAVES[1]
    assert len({merkle.leaf(both), merkle.node(*LEAVES[:2]), merkle.beginning(both), merkle.EMPTY}) == 4


def test_a_tree_keeps_a_hash_for_each_bit_of_its_size() -> None:
    tree = merkle.Tree()
    for _ in range(1023):
        tree.add(LEAVES[0])
    assert len(tree._full) == 10
