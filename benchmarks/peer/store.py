"""The comparison on disk: `results/peers-<utc>/` with `records.jsonl`, `table.md` and the peers' own output."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

RECORDS = "records.jsonl"
SCHEMA = 1


class Store:
    """A folder that is readable at any moment: a line is on the disk as soon as its launch has ended."""

    def __init__(self, results: Path) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self.folder = results / f"peers-{stamp}"
        number = 1
        while True:
            try:
                self.folder.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
                self.folder = results / f"peers-{stamp}-{number}"
        self.logs = self.folder / "logs"
        self.logs.mkdir()
        self._file = (self.folder / RECORDS).open("ab")

    def write(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Append one line."""
        line = {"kind": kind, "schema": SCHEMA, "time": time.time(), **fields}
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def write_table(self, text: str) -> None:
        """Replace the Markdown table."""
        (self.folder / "table.md").write_text(text, encoding="utf-8")

    def close(self) -> None:
        """No more lines."""
        self._file.close()
