"""README's badges say what pyproject.toml says."""

from __future__ import annotations

import re

from docs import badges


def test_badges_are_those_of_the_project() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in badges.FOLDER.iterdir()}
    assert committed == badges.badges(), "run `python -m docs.badges`"


def test_the_readme_shows_every_badge() -> None:
    page = (badges.REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"images/badges/(\w+\.svg)", page)) == set(badges.badges())
