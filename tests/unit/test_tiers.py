"""The command `python -m tests` runs all tests."""

from __future__ import annotations

from pathlib import Path

from tests.__main__ import TIERS

TESTS = Path(__file__).parents[1]


def test_every_folder_of_tests_is_in_one_tier() -> None:
    folders = {f"tests/{file.relative_to(TESTS).parts[0]}" for file in TESTS.rglob("test_*.py")}
    folders_of_tiers = []
    for tier in TIERS.values():
        folders_of_tiers += tier.folders
    assert sorted(folders_of_tiers) == sorted(folders)
