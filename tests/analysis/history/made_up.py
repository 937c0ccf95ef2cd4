"""Results of many nights in which the level changes once, with what else changed then."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from merge_bench.host.description import Gpu, Hardware, UcxDescription
from merge_bench.records import schema as s
from merge_bench.records.writer import RECORDS
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign

FIRST_NIGHT = 1_760_000_000.0


@dataclass(frozen=True)
class Nights:
    """`count` results of `launches` launches; merges take `factor` times as long from the result `shift` to `until`.

    `noise`: what all launches of a night have in common, beside 1 % of their own.
    """

    count: int = 40
    shift: int = 30
    factor: float = 1.05
    launches: int = 3
    config: str = "tcp"
    until: int = 10**9
    noise: float = 0.0


def _machine(changed: bool) -> s.Worker:
    found = s.Worker(rank=0, host="node0", pid=1, name="")
    return msgspec.structs.replace(
        found,
        ucx=UcxDescription(version="1.21.0" if changed else "1.20.0"),
        hardware=Hardware(
            kernel="6.8" if changed else "6.1",
            cpu_model="Xeon",
            gpus=[Gpu(index=0, name="H100", driver_version="580" if changed else "570")],
        ),
    )


def write(results: Path, nights: Nights) -> list[Path]:
    """The folders of the results, the oldest first."""
    random = np.random.default_rng(5)
    folders = []
    for night in range(nights.count):
        changed = nights.shift <= night < nights.until
        like = _machine(changed)
        level = 0.1 * (nights.factor if changed else 1.0) * np.exp(nights.noise * (night % 5 - 2) / 2)
        walls = (level * np.exp(random.normal(0.0, 0.01, nights.launches))).tolist()
        scripts = [
            Script(
                index=launch,
                block=launch,
                config=nights.config,
                plan=plan(launches=nights.launches),
                walls=(wall,) * 3,
                machine=functools.partial(msgspec.structs.replace, ucx=like.ucx, hardware=like.hardware),
            )
            for launch, wall in enumerate(walls)
        ]
        folder = write_campaign(results, *scripts)
        dated(folder, FIRST_NIGHT + 86400 * night)
        folders.append(folder.rename(results / f"{night:04d}-{nights.config}"))
    return folders


def dated(folder: Path, seconds: float) -> None:
    """Let the campaign begin at that time."""
    head, *lines = (folder / RECORDS).read_text().splitlines(keepends=True)
    (folder / RECORDS).write_text(json.dumps(json.loads(head) | {"time": seconds}) + "\n" + "".join(lines))
