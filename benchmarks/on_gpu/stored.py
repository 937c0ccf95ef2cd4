"""Results of GPUs on disk: a folder that a later call can resume, and a copy among the curated results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.on_gpu.steps import Ended
from merge_bench.errors import UsageError

CURATED = command.ROOT / "results" / "curated"
SUMMARY = "summary.json"
ABSOLUTE_PATH = re.compile(r'"/(?!dev/|sys/|proc/)(?:[^"/\\]+/)+([^"/\\]+)"')  # a whole JSON string
MOST_RECORD_BYTES = 1 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SAME = ("schema", "gpus", "blocks", "seed", "versions")  # of all calls that make one result, with sources and GPUs
Head = dict[str, Any]


def read(folder: Path, head: Head) -> tuple[Head, list[Ended]]:
    """The head of an earlier call's summary, and how its steps ended.

    Raises
    ------
    UsageError
        If there is none, or it was made by other sources, on other GPUs or with other options than those in `head`.
    """
    summary = command.read(folder / SUMMARY)
    earlier, wanted = _identity(summary), _identity(json.loads(json.dumps(head)))
    other = [name for name, value in wanted.items() if earlier[name] != value]
    if other:
        raise UsageError(f"--resume {folder}: {', '.join(other)} differ from the current command; start a new result")
    try:
        return {name: summary[name] for name in head}, [Ended(**each) for each in summary["steps"]]
    except (KeyError, TypeError) as error:
        raise command.damaged(folder / SUMMARY, error) from None


def curated(name: str, head: Head, among: Path) -> Path:
    """The folder of that name `among` the curated results.

    Raises
    ------
    UsageError
        If it is not the name of a folder, or another result has it.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"--curated {name!r} must be the name of a folder: letters, digits, '.', '_' and '-'")
    folder = among / name
    if folder.exists() and command.read(folder / SUMMARY).get("time") != head["time"]:
        raise UsageError(f"--curated {name}: this folder already contains another result; choose another name")
    return folder


def copy_records(source: Path, target: Path) -> list[str]:
    """Copy the records of runs and comparisons to the curated result, without names of folders.

    Gives those that are too large for it.
    """
    left_out = []
    for path in sorted([*source.glob("runs/*/*/records.jsonl"), *source.glob("peers-*/records.jsonl")]):
        name = path.relative_to(source)
        if path.stat().st_size > MOST_RECORD_BYTES:
            left_out.append(str(name))
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(without_folders(path.read_text()))
    return left_out


def without_folders(records: str) -> str:
    """Records with the name of each file in place of its path, which would name folders of the machine."""
    return ABSOLUTE_PATH.sub(r'"\1"', records)


def write(folder: Path, summary: Mapping[str, Any], table: str) -> None:
    """Replace summary and table."""
    command.write(folder / SUMMARY, summary)
    command.write(folder / "table.txt", table)


def _identity(head: Head) -> Head:
    """What all calls that make one result have in common."""
    git, gpus = head.get("git") or {}, (head.get("hardware") or {}).get("gpus") or []
    return {
        **{name: head.get(name) for name in SAME},
        "sources": [git.get("commit"), git.get("dirty")],
        "kind of GPU": [gpu.get("name") for gpu in gpus],
    }
