"""What a ledger's lines add up to: the tree of the epoch that is going on, and the chain of the epochs before it."""

from __future__ import annotations

from typing import Any

from detaug.ledger import merkle
from detaug.ledger.header import identity
from detaug.ledger.lines import Key, Record, leaf_of


class Course:
    """Where a ledger stands after some of its lines. O(log n) memory.

    Args:
        header: the ledger's.

    Attributes:
        chain: over the epochs that have ended.
        epochs: how many these are.
        batches: in all, those of the epoch that is going on included.
        epoch: which one is going on; None: none is.
        last: of the last batch or epoch's end; None: there was none.
    """

    def __init__(self, header: Record) -> None:
        self.chain = merkle.beginning(identity(header))
        self.epochs = self.batches = 0
        self.epoch: int | None = None
        self.last: Key | None = None
        self._tree = merkle.Tree()

    def add(self, record: Record, key: Key) -> None:
        """A batch, of the epoch that is going on or of another, where none is.

        Raises:
            Damaged: it has no fingerprints.
        """
        self._tree.add(leaf_of(record))
        self.batches += 1
        self.epoch, self.last = key.epoch, key

    def end_epoch(self) -> Record:
        """The epoch that is going on has ended; the line that says so."""
        assert self.epoch is not None
        root, size = self._tree.root(), self._tree.size
        chain = merkle.chained(self.chain, self.epoch, size, root)
        record: dict[str, Any] = {"kind": "epoch", "epoch": self.epoch, "batches": size}
        record.update(root=root.hex(), chain=chain.hex())
        self.chain, self.last = chain, Key(self.epoch, float("inf"))
        self.epochs += 1
        self.epoch, self._tree = None, merkle.Tree()
        return record

    def head(self) -> str:
        """The chain as if the epoch that is going on ended here."""
        if self.epoch is None:
            return self.chain.hex()
        return merkle.chained(self.chain, self.epoch, self._tree.size, self._tree.root()).hex()
