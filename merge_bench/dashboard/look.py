"""How the view looks, in light and dark, in a browser and in JupyterLab: style sheets and nothing else.

One set of CSS variables at the root reaches every component, shadow roots and canvases included (Bokeh reads
``--bk-…`` when it paints). They follow JupyterLab's theme or VS Code's where there is one, else the browser's wish.
"""

from __future__ import annotations

_LIGHT = {
    "back": "#ffffff",
    "text": "#1f2328",
    "soft": "#f1f3f5",
    "line": "#c4cad1",
    "accent": "#0072B2",
    "bad": "#b3261e",
}
_DARK = {
    "back": "#16191d",
    "text": "#e6e8eb",
    "soft": "#252a30",
    "line": "#4a525b",
    "accent": "#56B4E9",
    "bad": "#ff8a80",
}
_HOSTS = {
    "back": ("--jp-layout-color0", "--vscode-editor-background"),
    "text": ("--jp-ui-font-color1", "--vscode-editor-foreground"),
    "soft": ("--jp-layout-color2", "--vscode-editorWidget-background"),
    "line": ("--jp-border-color1", "--vscode-editorWidget-border"),
}


def _variables(colours: dict[str, str]) -> str:
    found = []
    for name, colour in colours.items():
        value = colour
        for host in reversed(_HOSTS.get(name, ())):
            value = f"var({host}, {value})"
        found.append(f"--mb-{name}: {value};")
    return " ".join(found)


_CANVAS = " ".join(
    f"--bk-{name}-color: var(--mb-{of});"
    for of, names in {
        "text": ("text", "title-text", "axis-label-text", "major-label-text", "label-text"),
        "line": ("axis-line", "major-tick-line", "minor-tick-line", "grid-line", "outline-line", "bar-line"),
        "back": ("background-fill", "border-fill"),
    }.items()
    for name in names
)

ROOT = f"""
:host {{ {_variables(_LIGHT)} color-scheme: light; }}
@media (prefers-color-scheme: dark) {{ :host {{ {_variables(_DARK)} color-scheme: dark; }} }}
:host {{
  --design-background-color: var(--mb-back); --design-background-text-color: var(--mb-text);
  --design-surface-color: var(--mb-soft); --design-surface-text-color: var(--mb-text);
  --design-primary-color: #0072B2; --design-primary-text-color: #ffffff;
  --panel-border-color: var(--mb-line); {_CANVAS}
  background: var(--mb-back); color: var(--mb-text);
  font: 14px/1.45 system-ui, "Liberation Sans", sans-serif;
}}
"""

PAGE = """
html, body { margin: 0; background: #ffffff; }
@media (prefers-color-scheme: dark) { html, body { background: #16191d; } }
"""
"""Of a page of its own; in a notebook the page is somebody else's."""

TEXT = """
:host { color: var(--mb-text); }
.bk-clearfix { display: block; width: 100%; height: 100%; }
h2 { font-size: 1rem; margin: 0; font-weight: 600; }
h2 small { font-weight: 400; opacity: 0.8; margin-left: 0.4em; }
p, ul { margin: 0.2em 0; } ul { padding-left: 1.2em; }
code, pre { font: 12px/1.4 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; }
a { color: var(--mb-accent); }
table { border-collapse: collapse; } td, th { text-align: left; padding: 2px 10px 2px 0; vertical-align: top; }
th { font-weight: 600; } td { overflow-wrap: break-word; min-width: 3em; }
td:first-child { overflow-wrap: normal; }
progress { width: min(28rem, 60%); height: 0.9rem; accent-color: var(--mb-accent); vertical-align: middle; }
.bad { color: var(--mb-bad); font-weight: 600; }
.soft { opacity: 0.8; }
.scroll { overflow: auto; height: 100%; }
.log { display: flex; flex-direction: column-reverse; } /* so that it stays at its end */
.numbers { display: flex; gap: 1.6em; height: 3.4em; }
.number { flex: 0 1 auto; white-space: nowrap; } .number b { font-size: 1.1rem; display: block; }
.def { position: relative; cursor: help; border-bottom: 1px dotted currentColor; }
.def:focus { outline: 2px solid var(--mb-accent); outline-offset: 2px; }
.tip { display: none; position: absolute; z-index: 50; left: 0; top: 1.7em; width: max-content; max-width: 22rem;
  padding: 6px 9px; border-radius: 5px; background: var(--mb-text); color: var(--mb-back); font-size: 12px;
  font-weight: 400; white-space: normal; }
.def:hover .tip, .def:focus .tip { display: block; }
"""

FIELD = """
select.bk-input { appearance: auto !important; background-image: none !important; }
"""
"""Of lists: the browser's own arrow, which is seen on both grounds."""

CARD = """
:host {
  border: 1px solid var(--mb-line); border-radius: 6px; padding: 8px 10px; box-sizing: border-box; overflow: visible; }
:host(:hover), :host(:focus-within) { z-index: 2; }
"""

TABS = """
:host { border-bottom: 1px solid var(--mb-line); padding: 4px 4px 0 4px; box-sizing: border-box; }
.bk-btn-group { width: auto; }
.bk-btn-group .bk-btn { flex: 0 0 auto; color: var(--mb-text); background: transparent !important; border: 0 !important;
  border-bottom: 3px solid transparent !important; border-radius: 0 !important; box-shadow: none !important;
  font-size: 14px; padding: 7px 16px; }
.bk-btn-group .bk-btn:hover { background: var(--mb-soft) !important; }
.bk-btn-group .bk-btn.bk-active { border-bottom-color: var(--mb-accent) !important; font-weight: 600; }
.bk-btn-group .bk-btn:focus-visible { outline: 2px solid var(--mb-accent); outline-offset: -2px; }
"""

TABLE = """
.tabulator, .tabulator-header, .tabulator-col, .tabulator-row, .tabulator-footer, .tabulator-tableholder,
.tabulator-table, .tabulator-header-contents, .tabulator-headers, .tabulator-frozen {
  background: var(--mb-back) !important; color: var(--mb-text) !important; border-color: var(--mb-line) !important; }
.tabulator { font-size: 13px !important; }
.tabulator-row.tabulator-selected, .tabulator-row.tabulator-selected .tabulator-cell {
  background: var(--mb-soft) !important; }
.tabulator-row:hover { outline: 1px solid var(--mb-accent); }
.tabulator-cell { border-color: var(--mb-line) !important; }
.tabulator-page, .tabulator-header-filter input {
  background: var(--mb-back) !important; color: var(--mb-text) !important; border: 1px solid var(--mb-line) !important;
}
.tabulator-page.active { border-color: var(--mb-accent) !important; color: var(--mb-accent) !important; }
"""
