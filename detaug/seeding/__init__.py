"""The source of all randomness: seeds, their children, and the generators seeded with them."""

from __future__ import annotations

from detaug.seeding.tree import SeedTree

__all__ = ["SeedTree"]
