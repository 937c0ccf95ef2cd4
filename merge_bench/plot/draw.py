"""Draws panels into a file, in the way that its name asks for."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from merge_bench.errors import UsageError
from merge_bench.plot.series import Panel

_LIBRARIES = {".png": "matplotlib", ".svg": "matplotlib", ".html": "bokeh"}


def check_form(path: Path) -> None:
    """Raise UsageError unless `path` can be drawn: by its extension, with the library for it."""
    library = _LIBRARIES.get(path.suffix.lower())
    if library is None:
        raise UsageError(f"--plot {path}: the name must end in .png, .svg or .html, which says what is drawn")
    if importlib.util.find_spec(library) is None:
        raise UsageError(f"--plot {path} needs {library}, which is not installed: pip install 'merge-bench[dashboard]'")


def draw(panels: Sequence[Panel], path: Path, form: Path) -> None:
    """Draw `panels` into the file `path`, in the form that the name `form` says."""
    extension = form.suffix.lower()
    if _LIBRARIES[extension] == "bokeh":
        from merge_bench.plot import interactive

        interactive.draw(panels, path, form.stem)
    else:
        from merge_bench.plot import static

        static.draw(panels, path, extension.removeprefix("."))
