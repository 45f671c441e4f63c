"""A page as a real browser lays it out."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")

#: Finds what sticks out of the page, and letters that stick out of a chart. Runs in the page around it, in which it is a frame
#: as wide as a screen.
_LOOK = """
<!doctype html><body style="margin: 0"><iframe src="{page}" style="width: {width}px; height: 3000px; border: 0"></iframe>
<pre id="found"></pre><script>
document.querySelector("iframe").onload = event => {{
  const page = event.target.contentDocument, view = event.target.contentWindow, found = [];
  for (const each of page.body.querySelectorAll("*")) {{
    const place = each.getBoundingClientRect();
    const sticksOut = place.width && (place.right > {width} + 0.5 || place.left < -0.5);
    if (sticksOut) found.push(`${{each.tagName}} ${{each.textContent.slice(0, 40)}}`);
  }}
  for (const chart of page.querySelectorAll("svg")) {{
    const outer = chart.getBoundingClientRect();
    for (const each of chart.querySelectorAll("text")) {{
      const place = each.getBoundingClientRect();
      if (place.right > outer.right + 1 || place.left < outer.left - 1) found.push(`in a chart: ${{each.textContent}}`);
    }}
  }}
  document.getElementById("found").textContent = JSON.stringify({{
    overflowing: found,
    width: page.documentElement.scrollWidth,
    height: page.documentElement.scrollHeight,
    charts: page.querySelectorAll("svg").length,
    smallest: Math.min(...[...page.querySelectorAll("svg text")].map(each => each.getBoundingClientRect().height)),
    background: view.getComputedStyle(page.body).backgroundColor,
    ink: view.getComputedStyle(page.querySelector("svg text")).fill,
  }});
}};
</script>
"""


def look_at(page: Path, width: int, dark: bool = False) -> dict[str, Any]:
    """How a page is laid out on a screen of that width, in CSS pixels.

    Returns:
        ``overflowing`` (what sticks out), ``width`` and ``height`` of the page, ``charts``, the height of the ``smallest``
        letters in them, the colours ``background`` and ``ink``.
    """
    browser = next(filter(None, map(shutil.which, _NAMES)), None)
    if browser is None:
        pytest.skip("needs a browser: apt-get install chromium")
    around = page.with_name(f"around-{page.stem}-{width}-{dark}.html")
    around.write_text(_LOOK.format(page=page.name, width=width), encoding="utf-8")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", f"--window-size={width},1000",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--user-data-dir={page.parent / 'browser'}",
        "--virtual-time-budget=5000", "--dump-dom", around.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    told = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert told, done.stderr
    found: dict[str, Any] = json.loads(html.unescape(told[1]))
    return found
