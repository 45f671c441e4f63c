"""What the site has beyond the Markdown of `docs/`: tutorial, examples and changelog as pages, and
links out of `docs/`.

`DETAUG_REPO_URL`, the address of the repository, makes such links lead there, and gives every page
its edit link.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from posixpath import join, normpath
from typing import Any

from mkdocs.structure.files import File, Files

from detaug.versions import __version__

_REPOSITORY = Path(__file__).parents[1]
_TREE = os.environ.get("DETAUG_REPO_URL", "").rstrip("/")

#: Files of the repository that are pages: where they lie in `docs/` for the site.
_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
    "examples/tutorial.ipynb": "tutorial.md",
}

#: A line of links alone, with dots between them.
_BUTTONS = re.compile(r"^\[[^\]]+\]\(\S+\)(?: · \[[^\]]+\]\(\S+\))+$", re.MULTILINE)

_LINK = re.compile(r"\[([^\]]*)\]\(((?!https?:|#)[^)\s]+)\)")


def on_config(config: Any) -> Any:
    """The version, and the links to the repository that the theme makes."""
    config.copyright = f"detaug {__version__}"
    if _TREE:
        config.repo_url, config.edit_uri = _TREE, "edit/main/docs/"
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of other files."""
    for path, page in _PAGES.items():
        file = _REPOSITORY / path
        text = (
            _notebook(file, files, config)
            if path.endswith(".ipynb")
            else file.read_text(encoding="utf-8")
        )
        made = File.generated(
            config, page, content=_LINK.sub(lambda link, path=path: _from_docs(link, path), text)
        )
        made.edit_uri = None
        files.append(made)
    return files


def _notebook(file: Path, files: Files, config: Any) -> str:
    """The notebook with its outputs as Markdown; its pictures become files of the site."""
    from nbconvert import MarkdownExporter

    text, resources = MarkdownExporter().from_filename(str(file))
    for name, picture in resources["outputs"].items():
        files.append(File.generated(config, name, content=picture))
    return re.sub(r"```python\n%%(?:writefile (\S+)|bash)\n", _titled, text)


def _titled(cell: re.Match[str]) -> str:
    """A cell's magic as the block's language and title."""
    return f'```python title="{cell[1]}"\n' if cell[1] else "```bash\n"


def _from_docs(link: re.Match[str], path: str) -> str:
    """A link of a file of the repository, as `docs/` would have it."""
    target = normpath(join(path, "..", link[2]))
    inside = target.removeprefix("docs/")
    found = (_REPOSITORY / target.partition("#")[0]).exists()
    return f"[{link[1]}]({inside if inside != target else f'../{target}'})" if found else link[0]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links out of `docs/` to the repository, and make buttons of the home page's first
    links.

    Without an address `[a test](../tests/x.py)` becomes: a test (`tests/x.py`).
    """
    text = _LINK.sub(_outside, markdown)
    if page.file.src_uri == "README.md":
        text = _BUTTONS.sub(_as_buttons, text, count=1)
    return text


def _as_buttons(line: re.Match[str]) -> str:
    links = line[0].split(" · ")
    buttons = [f"{link}{{ .md-button }}" for link in links]
    buttons[0] = f"{links[0]}{{ .md-button .md-button--primary }}"
    return " ".join(buttons)


def _title(target: str) -> str:
    """Of a page of `docs/`: its first heading, or the heading that the link names."""
    page, _, anchor = target.partition("#")
    headings = re.findall(
        r"^#+ (.+)$", (_REPOSITORY / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    named = [
        each
        for each in headings
        if re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") == anchor
    ]
    return str((named or headings)[0])


def _outside(link: re.Match[str]) -> str:
    text, target = link[1], link[2]
    if not target.startswith("../"):
        return f"[{_title(target)}]({target})" if text == target.partition("#")[0] else link[0]
    path = target.removeprefix("../")
    if path in _PAGES:
        return f"[{text}]({_PAGES[path]})"
    if _TREE:
        return f"[{text}]({_TREE}/blob/main/{path})"
    return f"`{path}`" if text.strip("`").rstrip("/") == path.rstrip("/") else f"{text} (`{path}`)"
