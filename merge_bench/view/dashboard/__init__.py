"""The dashboard view: one application for a browser and for Jupyter, which knows nothing but the results folder."""

from __future__ import annotations

import os
from typing import Any


def show(results: str | os.PathLike[str] = "results") -> Any:
    """The view of `results`, to end a notebook's cell with; it brings its scripts along and needs no network."""
    import panel

    panel.extension("tabulator", inline=True)

    from merge_bench.view.dashboard.app import Dashboard

    return Dashboard(results)
