"""How long a tuning would take if each candidate were tried and judged, from the records of one that has ended."""

from __future__ import annotations

from pathlib import Path

from merge_bench.analysis.statistics import median
from merge_bench.campaign.expected_time import rule_of_thumb
from merge_bench.config.shipped import SPACE
from merge_bench.errors import UsageError
from merge_bench.host.memory import usable_cores
from merge_bench.merge.exchange import recorded_plane
from merge_bench.records.campaign import Campaign
from merge_bench.records.recorded_plan import Plan
from merge_bench.tune.budget import LAUNCH_MARGIN, Costs
from merge_bench.tune.evaluator import Options
from merge_bench.tune.space import read_space
from merge_bench.tune.strategies import strategies


def time_to_decide_all(campaign: Campaign, space: Path | None = None) -> float | None:
    """Seconds in which each candidate can have all its blocks, and one be confirmed, as `tune` counts them.

    None if that is not known: without a launch of the baseline, or with another `space` than the one that was tuned.
    """
    asked, baseline = campaign.plans[0].tune, campaign.head.configs[0].name
    lengths = [each.end.seconds for each in campaign.launches if each.end is not None and each.key == (baseline, 0)]
    known = [seconds for seconds in lengths if seconds is not None]
    strategy = strategies().get(asked.strategy or "") if asked is not None else None
    if asked is None or strategy is None or asked.blocks is None or asked.confirm is None or not known:
        return None
    try:
        found = read_space(space or SPACE)
    except UsageError:
        return None
    values = [value for value in found.values if value.id in asked.values]
    if found.sha256 != asked.space or len(values) < len(asked.values):
        return None
    usual = [_usual(plan) for plan in campaign.plans]
    launch = [LAUNCH_MARGIN * median(known) * (each or 1.0) / (usual[0] or each or 1.0) for each in usual]
    costs = Costs(launch, lambda some: strategy.first_block(found, some), asked.confirm)
    return asked.blocks / Options.least * costs.search(values) + costs.confirmation()


def _usual(plan: Plan) -> float | None:
    """Seconds of a launch by the rule of thumb, for the ratio of two sizes; None for tables."""
    if plan.rows_per_chunk is None or plan.iterations is None or not recorded_plane(plan.exchange).by_workers:
        return None
    return rule_of_thumb(plan.rows_per_chunk * max((plan.workers or 1) / usable_cores(), 1.0), plan.iterations)
