"""Where results of GPUs lie: a folder of their own, which a later call can go on with, and a copy among the curated."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.on_gpu.runs import ROOT
from benchmarks.on_gpu.steps import Ended, from_json
from merge_bench.errors import UsageError

CURATED = ROOT / "results" / "curated"
SUMMARY = "summary.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SAME = ("schema", "gpus", "blocks", "seed", "versions")  # of all calls that make one result, with sources and GPUs
Head = dict[str, Any]


def new_folder(output: Path) -> Path:
    """``gpu-<utc>`` in `output`, which nobody else has."""
    stamp, number = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), 1
    while True:
        folder = output / (f"gpu-{stamp}" if number == 1 else f"gpu-{stamp}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1


def read(folder: Path, head: Head) -> tuple[Head, list[Ended]]:
    """The head of an earlier call's summary, and how its steps ended.

    Raises
    ------
    UsageError
        If there is none, or it was made by other sources, on other GPUs or with other options than `head` tells.
    """
    summary = _summary(folder)
    other = [name for name in SAME if summary.get(name) != json.loads(json.dumps(head[name]))]
    other += [] if _sources(summary) == _sources(head) else ["sources"]
    other += [] if _gpus(summary) == _gpus(head) else ["kind of GPU"]
    if other:
        raise UsageError(f"--resume {folder}: {', '.join(other)} differ from this call's; start a new result")
    try:
        return {name: summary[name] for name in head}, [from_json(each) for each in summary["steps"]]
    except (KeyError, TypeError) as error:
        raise UsageError(f"--resume {folder}: {SUMMARY} is damaged: {type(error).__name__}: {error}") from None


def curated(name: str, head: Head) -> Path:
    """The folder of that name among the curated results.

    Raises
    ------
    UsageError
        If the name is no plain one, or another result has it.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"--curated {name!r} is not the name of a folder: letters, digits, '.', '_' and '-'")
    folder = CURATED / name
    if folder.exists() and _summary(folder).get("time") != head["time"]:
        raise UsageError(f"--curated {name}: another result is there already")
    return folder


def write(folder: Path, summary: Mapping[str, Any], table: str) -> None:
    """Replace summary and table, each whole or not at all. What is curated names no folder of this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    if folder.parent == CURATED:
        summary = {name: value for name, value in summary.items() if name != "argv"}
    for name, text in ((SUMMARY, json.dumps(summary, indent=1)), ("table.txt", table)):
        draft = folder / f"{name}.part"
        draft.write_text(f"{text}\n")
        draft.replace(folder / name)


def _summary(folder: Path) -> Head:
    try:
        summary = json.loads((folder / SUMMARY).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} holds no {SUMMARY} to read: {error}") from None
    if not isinstance(summary, dict):
        raise UsageError(f"{folder} holds no {SUMMARY} to read: it is no object")
    return summary


def _sources(head: Mapping[str, Any]) -> tuple[Any, Any]:
    git = head.get("git") or {}
    return git.get("commit"), git.get("dirty")


def _gpus(head: Mapping[str, Any]) -> list[Any]:
    gpus = (head.get("hardware") or {}).get("gpus") or []
    return [gpu.get("name") for gpu in gpus]
