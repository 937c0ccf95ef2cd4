"""The config file that a tuning writes: the baseline, and the settings that were found, each with its effect."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import PurePath

from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import TuneLine
from merge_bench.tune.evaluator import ABLATE
from merge_bench.tune.result import Result
from merge_bench.tune.space import Space


def tuned_text(
    campaign: Campaign, result: Result, space: Space, *, baseline: str, sizes: Sequence[str], metric: str
) -> str:
    """The text of the file.

    Parameters
    ----------
    baseline
        The text of the baseline's config; empty for the built-in defaults.
    sizes
        The name of each plan: ``1,000,000 rows per chunk``.
    """
    assert result.winner is not None
    launch = next(launch for launch in campaign.launches if launch.line is not None)
    assert launch.line is not None
    first = launch.line.workers[0]
    hosts = list(dict.fromkeys(worker.host for worker in launch.line.workers))
    start = PurePath(campaign.head.configs[0].path or result.baseline).name
    commit = str(campaign.head.git.commit if campaign.head.git else "unknown")[:12]
    head = [
        f"# Tuned for {hosts[0]}{f' and {len(hosts) - 1} more' * (len(hosts) > 1)} on {datetime.now(UTC):%Y-%m-%d} by"
        f" merge_bench tune, from {start}; measure again on other hosts.",
        f"# Hosts: {', '.join(hosts)}; {len(launch.line.workers)} workers; {first.hardware.cpu_model or '?'}.",
        f"# UCX {first.ucx.version or 'unknown'} ({first.ucx.origin or 'unknown'});"
        f" merge_bench {campaign.head.version}, commit {commit}; campaign {campaign.head.campaign_id}.",
        *(f"# {metric} at {sizes[line.plan]}: {speed_up_text(line)}, {line.reason}." for line in result.confirmation),
    ]  # fmt: skip
    lines = ["".join(letter if letter.isprintable() else "\ufffd" for letter in line) for line in head]
    values = {value.id: value for value in space.values}
    if baseline.strip():
        lines += ["", f"# The text of {start}:", baseline.rstrip("\n")]
    for setting in result.winner.settings:
        found = result.contributions[setting]
        versus = " compared with this config without it" if found and found.phase == ABLATE else " alone"
        lines += ["", f"# {setting}: " + (speed_up_text(found) + versus if found else "not measured alone")]
        lines += [f"export {name}={shlex.quote(text)}" for name, text in values[setting].variables]
    return "\n".join(lines) + "\n"


def speed_up_text(line: TuneLine) -> str:
    """``1.47 × (1.41 to 1.55, 8 blocks)``."""
    if line.ratio is None:
        return "not measured"
    interval = f"{line.low:.3f} to {line.high:.3f}, " if line.low is not None and line.high is not None else ""
    return f"{line.ratio:.3f} × ({interval}{line.launches} blocks)"
