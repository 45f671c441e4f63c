"""Seeds, their children, and the generators that are seeded with them."""

from __future__ import annotations

from detaug.seeding.tree import SeedTree

__all__ = ["SeedTree"]
