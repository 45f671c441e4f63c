"""What the site's pages need beyond Markdown: links that leave `docs/` name a file of the repository, which is no page."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """`[a test](../tests/x.py)` becomes: a test (`tests/x.py`)."""
    return _OUTSIDE.sub(lambda link: _spelled(link[1], link[2]), markdown)


def _spelled(text: str, path: str) -> str:
    return f"`{path}`" if text.strip("`").rstrip("/") == path.rstrip("/") else f"{text} (`{path}`)"
