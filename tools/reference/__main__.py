"""Writes the reference pages and the JSON Schemas."""

from __future__ import annotations

from tools.reference import DOCS, schemas
from tools.reference.pages import pages

if __name__ == "__main__":
    schemas.write()
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(DOCS / name)
