"""The package's README and URLs, by the one variable for the repository's address:
`DETAUG_REPO_URL`.

A package index shows README without the repository around it, so that links and pictures need the
whole address. hatchling runs this when it builds; `pyproject.toml` names it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: A link or picture in Markdown whose target is a file of the repository.
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def with_addresses(markdown: str, repository: str) -> str:
    """Return the page with whole addresses.

    Args:
        markdown: a page at the repository's root.
        repository: its address, without a slash at the end; "": nothing is changed.
    """
    if not repository:
        return markdown

    def whole(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"
        return f"{link[1]}[{link[2]}]({repository}/{kind}/main/{link[3]})"

    return _LINK.sub(whole, markdown)


class PackageMetadata(MetadataHookInterface):
    """Fills in what `pyproject.toml` lists as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README, and the URLs where the address is known."""
        repository = os.environ.get("DETAUG_REPO_URL", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_addresses(text, repository),
        }
        metadata["urls"] = {}
        if repository:
            metadata["urls"] = {
                "Repository": repository,
                "Documentation": f"{repository}/blob/main/docs/README.md",
                "Changelog": f"{repository}/blob/main/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
