"""All reference pages, by the name of their file."""

from __future__ import annotations

from tools.reference import DOCS, definitions, measured, options, published, records, settings


def pages() -> dict[str, str]:
    """The text of each page, by its path below `docs/`."""
    return {
        "reference/options.md": options.text(),
        "reference/settings.md": settings.text(),
        "reference/records.md": records.text(),
        "reference/definitions.md": definitions.text(),
        "reference/published.md": published.text(),
        "measurements.md": measured.text(),
        "predict.md": measured.with_forecast_walls((DOCS / "predict.md").read_text(encoding="utf-8")),
    }
