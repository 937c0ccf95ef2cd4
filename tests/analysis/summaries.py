"""Reads the document of ``run --json`` from a campaign's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from tests.helpers.documents import summarized


def document(folder: Path) -> dict[str, Any]:
    """The document as it is printed."""
    return summarized(read_campaign(folder))


def codes(found: dict[str, Any]) -> list[str]:
    """Those of its warnings."""
    return [warning["code"] for warning in found["warnings"]]


def append(folder: Path, *lines: s.Record) -> None:
    """More lines at the end of a campaign's records."""
    with (folder / "records.jsonl").open("ab") as stream:
        for line in lines:
            stream.write(msgspec.json.encode(line) + b"\n")
