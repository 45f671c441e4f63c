"""The package's README and URLs, with the repository's address from `DETAUG_REPO_URL`.

A package index shows README without the repository, so that links and pictures need the whole
address. hatchling runs this hook when it builds the package (see `pyproject.toml`).
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
    """Return the page with absolute links.

    Args:
        markdown: a page in the repository's root folder.
        repository: the repository's address, without a slash at the end; "": change nothing.
    """
    if not repository:
        return markdown

    def absolute(link: re.Match[str]) -> str:
        mark, text, path = link.groups()
        # The address of a picture is that of its bytes.
        view = "raw" if mark else "blob"
        return f"{mark}[{text}]({repository}/{view}/main/{path})"

    return _LINK.sub(absolute, markdown)


class PackageMetadata(MetadataHookInterface):
    """The values of the fields that `pyproject.toml` lists as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README, and the URLs if the address is known."""
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
