"""All reference pages, by the name of their file."""

from __future__ import annotations

from tests.project.reference import definitions, options, published, records, settings


def pages() -> dict[str, str]:
    """The text of each page."""
    return {
        "options.md": options.text(),
        "settings.md": settings.text(),
        "records.md": records.text(),
        "definitions.md": definitions.text(),
        "published.md": published.text(),
    }
