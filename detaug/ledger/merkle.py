"""The Merkle tree of RFC 6962, section 2.1, and the chain of its roots.

Leaves and nodes are hashed with other first bytes (0x00 and 0x01), so that none can be passed off as the other; links of the
chain and its beginning with two more (0x02, 0x03).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

EMPTY = sha256(b"").digest()


def leaf(data: bytes) -> bytes:
    """The hash of an entry, 32 bytes."""
    return sha256(b"\x00" + data).digest()


def node(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    return sha256(b"\x01" + left + right).digest()


def beginning(data: bytes) -> bytes:
    """Where a chain begins: of what its entries are about."""
    return sha256(b"\x03" + data).digest()


def chained(before: bytes, epoch: int, size: int, root: bytes) -> bytes:
    """The chain behind a tree of that many entries: it commits to all trees before it, too."""
    return sha256(b"\x02" + before + b"%d %d " % (epoch, size) + root).digest()


class Tree:
    """A tree that grows: of n entries it keeps at most log2(n) + 1 hashes.

    Attributes:
        size: how many entries it has.
    """

    def __init__(self) -> None:
        self.size = 0
        self._full: list[bytes] = []  # roots of full subtrees, the largest first: one for each bit of the size

    def add(self, hashed: bytes) -> None:
        """Append an entry, by its `leaf` hash."""
        number = self.size
        while number & 1:
            hashed = node(self._full.pop(), hashed)
            number >>= 1
        self._full.append(hashed)
        self.size += 1

    def root(self) -> bytes:
        """The root as it is now."""
        if not self._full:
            return EMPTY
        *rest, hashed = self._full
        while rest:
            hashed = node(rest.pop(), hashed)
        return hashed


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root over leaf hashes."""
    tree = Tree()
    for each in leaves:
        tree.add(each)
    return tree.root()


def path(number: int, leaves: Sequence[bytes]) -> list[bytes]:
    """What is hashed with entry `number`, from the bottom up, to get the root (RFC 6962, section 2.1.1).

    Raises:
        IndexError: there is no such entry.
    """
    if not 0 <= number < len(leaves):
        raise IndexError(f"there is no entry {number}: the tree has entries 0 ... {len(leaves) - 1}")
    if len(leaves) == 1:
        return []
    half = 1 << (len(leaves) - 1).bit_length() - 1
    if number < half:
        return [*path(number, leaves[:half]), root_of(leaves[half:])]
    return [*path(number - half, leaves[half:]), root_of(leaves[:half])]


def root_by_path(hashed: bytes, number: int, size: int, siblings: Sequence[bytes]) -> bytes:
    """The root of a tree with `size` entries that leads from an entry's leaf hash along its path; of a wrong entry, number or
    path it is another one (RFC 9162, section 2.1.3.2).

    Raises:
        ValueError: a path of another length.
    """
    last = size - 1
    for sibling in siblings:
        if last == 0:
            raise ValueError("the path is longer than the tree is high")
        if number & 1 or number == last:
            hashed = node(sibling, hashed)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            hashed = node(hashed, sibling)
        number, last = number >> 1, last >> 1
    if last:
        raise ValueError("the path is shorter than the tree is high")
    return hashed
