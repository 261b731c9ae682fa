"""All charts as one page that needs nothing else: to mail, to keep beside a paper, to open on a machine offline."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from operant._util.units import printable
from operant.cli.plotting.charts import Chart
from operant.cli.plotting.svg import chart_svg, scale_svg

__all__ = ["write_html"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667; --grid: #e3e5e8; --paper: #fff; --back: #f6f7f8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #9aa0a6; --grid: #33383e; --paper: #1b1f24; --back: #121417 }
}
body { margin: 0; padding: 1.5rem; background: var(--back); color: var(--ink); font: 15px/1.4 system-ui, sans-serif }
main { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)) }
figure { margin: 0; padding: .9rem 1rem; background: var(--paper); border: 1px solid var(--grid); border-radius: .5rem }
h1 { font-size: 1.3rem; margin: 0 0 1rem } h2 { font-size: 1rem; margin: 0 0 .4rem }
p, .scale, ul { color: var(--soft); font-size: .8rem; margin: .3rem 0 0 }
ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem .9rem }
li::before { content: ""; display: inline-block; width: .9em; height: .25em; margin: 0 .4em .2em 0 }
li::before { background: var(--c) }
svg { width: 100%; height: auto; display: block } .scale svg { display: inline; width: 160px }
svg text { fill: var(--soft); font-size: 13px } svg text.label { font-size: 14px; fill: var(--ink) }
svg text.note { fill: var(--ink); stroke: var(--paper); stroke-width: 3px; paint-order: stroke }
svg line.grid { stroke: var(--grid) } svg path { fill: none; stroke-linejoin: round }
svg circle { stroke: var(--paper); stroke-width: .6 } svg .heat { opacity: .85; shape-rendering: crispEdges }
svg circle:hover, svg rect:hover { stroke: var(--ink); stroke-width: 1.5 }
svg path:hover { stroke-width: 3.5; stroke-opacity: 1 }
"""
# The file may hold names that others chose: nothing in it can run or load anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write_html(charts: Sequence[Chart], title: str, path: Path) -> None:
    shown = escape(printable(title))
    body = "\n".join(_figure(chart) for chart in charts)
    path.write_text(
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{shown}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{shown}</h1>\n<main>\n{body}\n</main>\n</body>\n</html>\n",
        encoding="utf-8",
    )


def _figure(chart: Chart) -> str:
    parts = [f"<h2>{escape(printable(chart.title))}</h2>", chart_svg(chart)]
    if chart.entries:
        items = "".join(
            f'<li style="--c: {colour}">{escape(printable(name))}</li>' for name, colour in chart.entries.items()
        )
        parts.append(f"<ul>{items}</ul>")
    if chart.scale is not None:
        parts.append(scale_svg(chart.scale))
    if chart.remark and chart.marks:
        parts.append(f"<p>{escape(printable(chart.remark))}</p>")
    return f"<figure>{''.join(parts)}</figure>"
