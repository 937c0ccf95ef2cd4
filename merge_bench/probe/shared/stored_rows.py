"""Rows of stored campaigns, in the order of the configs and with unique names."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from merge_bench.errors import UsageError
from merge_bench.probe.shared.measures import ALL_TO_ALL, kind_of
from merge_bench.records.campaign import Campaign
from merge_bench.records.probe_rows import Row, rows_of
from merge_bench.records.reader import read_campaign
from merge_bench.records.results_folder import ResultsFolder


def in_order(campaign: Campaign) -> list[Row]:
    """The rows of `campaign`, its configs in the order of the command line: the baseline first.

    Those of all-to-all by number of ranks, and our data plane before MPI, whichever was launched first.
    """
    order = [config.name for config in campaign.head.configs]

    def place(row: Row) -> tuple[int, int, bool, str]:
        config = order.index(row.config) if row.config in order else len(order)
        if kind_of(row) != ALL_TO_ALL:
            return config, 0, False, ""
        return config, len(row.ranks), row.count is not None, "" if row.test.startswith("ucx") else row.test

    return sorted(rows_of(campaign), key=place)


def ucx_latencies(results: Path) -> list[Row]:
    """The rows of tag_lat in the newest `probe p2p` campaign of this host in the folder `results`; [] if there is none.

    Only its first config counts.
    """
    here = socket.gethostname()
    found = ResultsFolder(results).newest(lambda head: head.host == here, names=lambda name: "-probe-p2p-" in name)
    for folder, _ in found:
        with contextlib.suppress(UsageError):
            rows = [row for row in in_order(read_campaign(folder)) if row.test == "tag_lat" and row.memory == "host"]
            if rows:
                return [row for row in rows if row.config == rows[0].config]
    return []


def label_rows(campaigns: Sequence[Campaign], labels: Sequence[str] = ()) -> list[tuple[Campaign, Row]]:
    """The rows of several campaigns, each with its campaign.

    The name of a config that two campaigns have gets the campaign's label: of `labels`, else its time and id.

    Raises
    ------
    UsageError
        If a campaign has no network measurement, or is given twice.
    """
    for number, campaign in enumerate(campaigns):
        if campaign.probe is None and not any(launch.probes for launch in campaign.launches):
            raise UsageError(
                f"{campaign.folder} contains results of merges, not of `probe`; name only results of `probe`"
            )
        if any(other.head.campaign_id == campaign.head.campaign_id for other in campaigns[:number]):
            raise UsageError(f"the campaign in {campaign.folder} is named twice; name each campaign once")
    held = Counter(name for campaign in campaigns for name in {config.name for config in campaign.head.configs})
    names = labels or [_short(campaign) for campaign in campaigns]
    return [
        (campaign, replace(row, config=f"{row.config} ({name})") if held[row.config] > 1 else row)
        for campaign, name in zip(campaigns, names, strict=True)
        for row in in_order(campaign)
    ]


def _short(campaign: Campaign) -> str:
    """The campaign's time and short id."""
    first, _, rest = campaign.head.campaign_id.partition("-")
    return "-".join(filter(None, (first, rest.rpartition("-")[2])))
