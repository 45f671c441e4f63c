"""`python -m docs.badges`: draw README's badges from `pyproject.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "docs" / "images" / "badges"

#: Average width of a letter, and the space around a text, in pixels.
LETTER = 6.6
MARGIN = 12

BADGE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" \
aria-label="{left}: {right}">
<rect width="{width}" height="20" rx="3" fill="#3b4bc0"/>
<rect width="{middle}" height="20" rx="3" fill="#444b55"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{left_at}" y="14">{left}</text>
<text x="{right_at}" y="14">{right}</text>
</g>
</svg>
"""


def badges() -> dict[str, str]:
    """Return the SVG of each badge, by file name."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: "
    classifiers = [text.removeprefix(prefix) for text in project["classifiers"]]
    versions = [text for text in classifiers if text.startswith("3.")]
    texts = {
        "python": ("python", f"{versions[0]} to {versions[-1]}"),
        "licence": ("licence", project["license"]),
    }
    if "Typing :: Typed" in project["classifiers"]:
        texts["typed"] = ("types", "mypy --strict")
    return {f"{name}.svg": _badge(left, right) for name, (left, right) in texts.items()}


def _badge(left: str, right: str) -> str:
    """Return the SVG of a badge with a dark and a coloured half."""
    middle = round(LETTER * len(left)) + MARGIN
    width = middle + round(LETTER * len(right)) + MARGIN
    return BADGE.format(
        left=left,
        right=right,
        width=width,
        middle=middle,
        left_at=middle / 2,
        right_at=(middle + width) / 2,
    )


def main() -> None:
    """Write the badges."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in badges().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
