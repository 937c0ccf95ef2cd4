"""Writes the reference pages and the JSON Schemas."""

from __future__ import annotations

from tests.project import schemas
from tests.project.reference import DOCS
from tests.project.reference.pages import pages

if __name__ == "__main__":
    schemas.write()
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(DOCS / name)
