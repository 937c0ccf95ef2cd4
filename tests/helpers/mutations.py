"""Damages recorded campaigns at random: values of another size, type or kind, lines that are gone, twice or torn."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CAMPAIGNS = Path(__file__).parents[1] / "data" / "campaigns"
ODD: tuple[Any, ...] = (
    -1,
    0,
    1,
    10**6,
    2**31,
    2**63,
    10**30,
    -(10**18),
    1e-308,
    1e300,
    1.5,
    -0.0,
    5e-324,
    True,
    None,
    "",
    "x",
    "\x1b[31m",
    "\u202e",
    "a\nb",
    "\ud7ff\U000e0001",
    "9" * 400,
    "2026-13-45T99:99:99Z",
    "inner",
    "..",
    "/",
    [],
    {},
    [[]],
    {"": 0},
    [None],
    ["x"] * 3,
    "nan",
)
"""Values that take the place of another one."""


def mutated(name: str, chance: random.Random) -> bytes:
    """The records of a campaign of `tests/data/campaigns`, damaged in one to three places."""
    lines = (CAMPAIGNS / name / "records.jsonl").read_bytes().splitlines()
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        kind, at = chance.random(), chance.randrange(len(lines))
        if kind < 0.85:
            lines[at] = _changed(lines[at], chance)
        elif kind < 0.9:
            del lines[at]
        elif kind < 0.95:
            lines.insert(chance.randrange(len(lines) + 1), lines[at])
        else:
            lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]
        lines = lines or [b""]
    return b"\n".join(lines) + b"\n"


def _changed(line: bytes, chance: random.Random) -> bytes:
    try:
        record = json.loads(line)
    except ValueError:
        return line
    places = list(_places(record))
    if not places:
        return line
    holder, key = chance.choice(places)
    how = chance.random()
    if how < 0.7:
        holder[key] = copy.deepcopy(chance.choice(ODD))
    elif how < 0.8 and isinstance(holder[key], int | float):
        holder[key] *= chance.choice((-1, 10**9, 1e-30, 2**40))
    elif how < 0.9:
        other, other_key = chance.choice(places)
        holder[key] = copy.deepcopy(other[other_key])
    else:
        del holder[key]
    return json.dumps(record).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder of a value, and the value's key in it."""
    for key in list(value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()):
        yield value, key
        yield from _places(value[key])
