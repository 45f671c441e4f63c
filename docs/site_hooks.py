"""Hooks of mkdocs: pages made of files outside `docs/`, and links to such files.

The tutorial and the changelog become pages. If `DETAUG_REPO_URL` has the repository's address,
links to other files lead there, and every page gets its edit link.
"""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from posixpath import join, normpath
from typing import Any

from mkdocs.structure.files import File, Files

from detaug.versions import __version__

_REPOSITORY = Path(__file__).parents[1]
_REPOSITORY_URL = os.environ.get("DETAUG_REPO_URL", "").rstrip("/")

#: Files of the repository that become pages, and the pages' paths in `docs/`.
_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "examples/tutorial.ipynb": "tutorial.md",
}

#: A line that consists of links with dots between them.
_BUTTONS = re.compile(r"^\[[^\]]+\]\(\S+\)(?: · \[[^\]]+\]\(\S+\))+$", re.MULTILINE)

#: A link to a file.
_LINK = re.compile(r"\[([^\]]*)\]\(((?!https?:|#)[^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Set the version, and the repository's address from which the theme makes its links."""
    config.copyright = f"detaug {__version__}"
    if _REPOSITORY_URL:
        config.repo_url = _REPOSITORY_URL
        # mkdocs derives the name before it calls this hook.
        config.repo_name = _REPOSITORY_URL.rpartition("/")[2]
        config.edit_uri = "edit/main/docs/"
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of files outside `docs/`."""
    for path, page_path in _PAGES.items():
        file = _REPOSITORY / path
        if path.endswith(".ipynb"):
            text = _notebook(file, files, config)
        else:
            text = file.read_text(encoding="utf-8")
        content = _LINK.sub(partial(_relative_to_docs, path), text)
        page = File.generated(config, page_path, content=content)
        # A generated page has no source in `docs/` to edit.
        page.edit_uri = None
        files.append(page)
    return files


def _notebook(file: Path, files: Files, config: Any) -> str:
    """Return a notebook with its outputs as Markdown, and add its pictures to the site."""
    from nbconvert import MarkdownExporter

    text, resources = MarkdownExporter().from_filename(str(file))
    for name, picture in resources["outputs"].items():
        files.append(File.generated(config, name, content=picture))
    return re.sub(r"```python\n%%(?:writefile (\S+)|bash)\n", _code_fence, text)


def _code_fence(magic: re.Match[str]) -> str:
    """Return the first line of a code block, for a cell that begins with a magic."""
    file_name = magic[1]
    if file_name:
        return f'```python title="{file_name}"\n'
    return "```bash\n"


def _relative_to_docs(path: str, link: re.Match[str]) -> str:
    """Return a link of the file `path` as it would be in `docs/`."""
    target = normpath(join(path, "..", link[2]))
    if not (_REPOSITORY / target.partition("#")[0]).exists():
        return link[0]
    if target.startswith("docs/"):
        return f"[{link[1]}]({target.removeprefix('docs/')})"
    return f"[{link[1]}](../{target})"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite a page's links, and make buttons of the home page's first line of links.

    Links out of `docs/` lead to the repository. Without its address, `[a test](../tests/x.py)`
    becomes: a test (`tests/x.py`).
    """
    text = _LINK.sub(_rewrite_link, markdown)
    if page.file.src_uri == "README.md":
        text = _BUTTONS.sub(_as_buttons, text, count=1)
    return text


def _as_buttons(line: re.Match[str]) -> str:
    """Return a line of links as buttons; the first one stands out."""
    links = line[0].split(" · ")
    buttons = [f"{link}{{ .md-button }}" for link in links]
    buttons[0] = f"{links[0]}{{ .md-button .md-button--primary }}"
    return " ".join(buttons)


def _title(target: str) -> str:
    """Return the heading that a link to a page of `docs/` names, or else the page's first one."""
    page, _, anchor = target.partition("#")
    text = (_REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    headings: list[str] = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    for heading in headings:
        if re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") == anchor:
            return heading
    return headings[0]


def _rewrite_link(link: re.Match[str]) -> str:
    """Return a link of a page of `docs/` as the site needs it."""
    text = link[1]
    target = link[2]
    if not target.startswith("../"):
        if text == target.partition("#")[0]:
            # A link whose text is the file's name shows the page's title instead.
            return f"[{_title(target)}]({target})"
        return link[0]
    path = target.removeprefix("../")
    if path in _PAGES:
        return f"[{text}]({_PAGES[path]})"
    if _REPOSITORY_URL:
        return f"[{text}]({_REPOSITORY_URL}/blob/main/{path})"
    if text.strip("`").rstrip("/") == path.rstrip("/"):
        return f"`{path}`"
    return f"{text} (`{path}`)"
