"""The comparison on disk: `results/peers-<utc>/` with `records.jsonl`, `table.md` and the peers' own output."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import command

RECORDS = "records.jsonl"
SCHEMA = 1


class Store:
    """A folder that can be read at any moment: each line is on the disk as soon as its launch has ended."""

    def __init__(self, results: Path) -> None:
        self.folder = command.new_folder(results, "peers")
        self.logs = self.folder / "logs"
        self.logs.mkdir()
        self._file = (self.folder / RECORDS).open("ab")

    def write(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Append one line."""
        line = {"kind": kind, "schema": SCHEMA, "time": time.time(), **fields}
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self, table: str) -> None:
        """Write the Markdown table; no more lines."""
        command.write(self.folder / "table.md", table)
        self._file.close()
