"""Campaigns of a command for the views: one config, two of which one is faster, and one of whose launches failed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from tests.helpers.command_campaigns import interleaved_runs, write_commands

WALLS = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7]
RATES = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0]
OF_MERGES = re.compile(
    r"merge(?!.bench)|worker|throughput|bandwidth|link|partition|exchange|join|rows? |engine|iteration|cluster|rank ",
    re.IGNORECASE,
)
"""Words that no page about a command has."""
OPTIONS: dict[str, Any] = {"configs": "base,tuned", "launches": "8", "metric": [r"busbw=re:busbw: ([\d.]+)"]}


def one_config(results: Path, launches: int = 8, **more: Any) -> Path:
    """The runs of one config."""
    values = {"busbw": {"base": RATES[:launches]}}
    return with_options(write_commands(results, interleaved_runs({"base": WALLS[:launches]}, values, **more)))


def two_configs(results: Path, launches: int = 8, faster: float = 1.2, end: int = 0, **more: Any) -> Path:
    """Interleaved runs of `base` and `tuned`, which is `faster` times as fast."""
    walls = {"base": WALLS[:launches], "tuned": [wall / faster for wall in WALLS[:launches]]}
    rates = {"busbw": {"base": RATES[:launches], "tuned": [rate * faster for rate in RATES[:launches]]}}
    return with_options(write_commands(results, interleaved_runs(walls, rates, **more), end=end))


def one_failed(results: Path, code: str = "command-failed") -> Path:
    """Two configs, of which the faster one failed once."""
    return two_configs(results, end=3, failures={("tuned", 3): code})


def with_options(folder: Path, **changed: Any) -> Path:
    """The campaign as if `exec` had been called with options."""
    path = folder / "records.jsonl"
    head, *rest = path.read_bytes().splitlines(keepends=True)
    line = msgspec.json.decode(head) | {"options": OPTIONS | changed}
    path.write_bytes(msgspec.json.encode(line) + b"\n" + b"".join(rest))
    return folder
