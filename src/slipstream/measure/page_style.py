"""The look of self-contained pages: light and dark, and the colours of charts."""

from __future__ import annotations

_COLOURS = {
    "light": ("#2a78d6", "#b8530f", "#1a7f4b", "#7a4fc9", "#0f7f86", "#b83a6e"),
    "dark": ("#5b9bea", "#e8854a", "#4fbf86", "#a98af0", "#46b8be", "#e878a5"),
}
_PARTS_COLOURS = {
    "light": ("#d9822b", "#2a78d6", "#1a7f4b", "#7a4fc9", "#a5a39b"),
    "dark": ("#e89a4a", "#5b9bea", "#4fbf86", "#a98af0", "#77756e"),
}


def _variables(theme: str) -> str:
    series = "".join(f"--s{i}: {c}; " for i, c in enumerate(_COLOURS[theme]))
    return series + "".join(f"--part{i}: {c}; " for i, c in enumerate(_PARTS_COLOURS[theme]))


_CLASSES = "".join(
    f"line.s{i}, path.s{i}, circle.s{i} {{ stroke: var(--s{i}); }} "
    f"circle.s{i}, .key.s{i} {{ fill: var(--s{i}); background: var(--s{i}); }}\n"
    for i in range(6)
) + "".join(f".part{i} {{ fill: var(--part{i}); background: var(--part{i}); }}\n" for i in range(5))

STYLE = f"""
:root {{ color-scheme: light dark; --surface: #fcfcfb; --ink: #0b0b0b; --muted: #52514e;
  --grid: #e4e3df; {_variables("light")} }}
@media (prefers-color-scheme: dark) {{ :root {{ --surface: #1a1a19; --ink: #ffffff;
  --muted: #c3c2b7; --grid: #383835; {_variables("dark")} }} }}
body {{ background: var(--surface); color: var(--ink); margin: 2rem auto; max-width: 60rem;
  padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 1.4rem; margin-bottom: 0; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
h3 {{ font-size: .95rem; margin: 1.2rem 0 .3rem; }}
p, figcaption {{ color: var(--muted); max-width: 45rem; }} strong {{ color: var(--ink); }}
figure {{ margin: 1rem 0; }} svg {{ width: 100%; height: auto; display: block; }}
svg text {{ fill: var(--muted); font-size: 13px; }} svg .label {{ font-weight: 600; }}
svg .value {{ fill: var(--ink); font-variant-numeric: tabular-nums; paint-order: stroke;
  stroke: var(--surface); stroke-width: 3px; }}
.grid {{ stroke: var(--grid); stroke-width: 1; }}
.reference {{ stroke: var(--muted); stroke-width: 1.5; }}
.interval {{ stroke-width: 3; opacity: .5; stroke-linecap: round; }}
.line {{ fill: none; stroke-width: 2; stroke-linejoin: round; }} circle {{ stroke-width: 2; }}
{_CLASSES}circle.hollow {{ fill: var(--surface); }}
.legend {{ display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; color: var(--muted);
  font-size: .9rem; margin: .6rem 0; }}
.key {{ display: inline-block; width: .8em; height: .8em; border-radius: .2em;
  margin-right: .45em; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }}
th, td {{ padding: .25rem .9rem .25rem 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--grid); }}
th:first-child, td:first-child {{ text-align: left; }}
th {{ color: var(--muted); font-weight: 600; }}
"""
