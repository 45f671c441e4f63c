"""A page in one file: no scripts, nothing from elsewhere, readable on a phone and on a wide screen, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from detaug.pictures.charts import DARK, LIGHT, Chart

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --card: #f6f7f8; LIGHT }
@media (prefers-color-scheme: dark) { :root { --paper: #16181b; --card: #1e2125; DARK } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.25rem clamp(1rem, 4vw, 2.5rem) 3rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: clamp(1.4rem, 4.5vw, 2rem); line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.1rem; margin: 0 0 0.5rem; }
p { margin: 0.5rem 0; }
.lead { font-size: 1.05rem; max-width: 44rem; }
.pale, figcaption { color: var(--pale); font-size: 0.9rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1.25rem;
  margin: 1.5rem 0; }
figure { margin: 0; padding: 1rem; background: var(--card); border-radius: 0.75rem; min-width: 0; }
svg { display: block; width: 100%; max-width: 34rem; height: auto; margin: 0 auto; }
svg text { font-family: inherit !important; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: 0.4rem 0.6rem; border-bottom: 1px solid var(--grid); text-align: right; }
th { color: var(--pale); font-weight: 600; font-size: 0.85rem; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; font-size: 0.9rem; }
dt { color: var(--pale); }
dd { margin: 0; }
@media (max-width: 40rem) {
  table, tbody, tr, td { display: block; }
  thead { display: none; }
  tr { padding: 0.5rem 0; border-bottom: 1px solid var(--grid); }
  td { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: 0.1rem 0; text-align: right; }
  td:first-child { font-weight: 600; }
  td:empty { display: none; }
  td:not(:first-child)::before { content: attr(data-label); color: var(--pale); text-align: left; }
}
"""


@dataclass(frozen=True)
class Page:
    """What is on the page.

    Attributes:
        title: of the page.
        lead: sentences below it.
        charts: in a grid.
        columns, rows: of the table, whose first column names a row.
        notes: sentences below the table.
        facts: (name, value) at the end.
    """

    title: str
    lead: Sequence[str]
    charts: Sequence[Chart]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    facts: Sequence[tuple[str, str]]

    def html(self) -> str:
        """The page as one file.

        Raises:
            NotInstalled: matplotlib is not.
        """
        style = _STYLE.replace("LIGHT", _variables(LIGHT)).replace("DARK", _variables(DARK))
        figures = "\n".join(
            f"<figure><h2>{escape(chart.title)}</h2>{chart.svg()}<figcaption>{escape(chart.words)}</figcaption></figure>"
            for chart in self.charts
        )
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "\n".join(
            "<tr>"
            + "".join(
                f'<td data-label="{escape(name)}">{escape(cell)}</td>'
                for name, cell in zip(self.columns, row, strict=True)
            )
            + "</tr>"
            for row in self.rows
        )
        facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in self.facts)
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(self.title)}</title>
<style>{style}</style>
</head>
<body>
<h1>{escape(self.title)}</h1>
{_paragraphs(self.lead, "lead")}
<div class="charts">
{figures}
</div>
<h2>All numbers</h2>
<div class="table"><table><thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody></table></div>
{_paragraphs(self.notes, "pale")}
<h2>Measured on</h2>
<dl>{facts}</dl>
</body>
</html>
"""


def _paragraphs(sentences: Sequence[str], kind: str) -> str:
    return "\n".join(f'<p class="{kind}">{escape(each)}</p>' for each in sentences)


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
