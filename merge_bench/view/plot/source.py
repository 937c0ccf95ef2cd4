"""The last lines of a picture, which name what it shows: results, hosts, dates, UCX versions, processors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from merge_bench.analysis.compare.select import letter_of
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import Worker
from merge_bench.units import plural_noun
from merge_bench.view.plot.marks import Chart

_MOST_LINES = 4
_MOST_HOSTS = 3
_VERSION = re.compile(r"\bUCX (\d[\w.]*)")


def source_of(campaigns: Sequence[Campaign], among: Sequence[Campaign] = ()) -> str:
    """A line for each campaign that a picture shows, with the campaign's letter; of many, for the first ones.

    What the records lack is named as not recorded: host and UCX of an imported result, or of one whose launches failed.
    `among`: all campaigns of the report, if a picture shows some of them.
    """
    lines = []
    for number, campaign in enumerate(campaigns[:_MOST_LINES]):
        place = next((at for at, other in enumerate(among) if other is campaign), number)
        short = letter_of(place, len(among or campaigns))
        lines.append(f"{short}: {_source_line(campaign)}" if short else _source_line(campaign))
    more = len(campaigns) - _MOST_LINES
    return "\n".join([*lines, f"and {more} more results"] if more > 0 else lines)


def with_source(charts: Iterable[Chart], campaigns: Sequence[Campaign]) -> list[Chart]:
    """Copies of `charts` with the lines that name their campaigns, hosts and dates."""
    source = source_of(campaigns)
    return [replace(chart, source=source) for chart in charts]


def _source_line(campaign: Campaign) -> str:
    """A campaign: ``20261122T105951Z-tcp-e0a9d0 · host vm · 2026-11-22 10:59 UTC · UCX 1.21.0 · Intel(R) Xeon(R)``."""
    workers = [worker for launch in campaign.launches if launch.line is not None for worker in launch.line.workers]
    hosts = _distinct_known(worker.host for worker in workers)
    parts = [
        campaign.head.campaign_id,
        _hosts_text(hosts),
        f"{'imported ' if campaign.head.imported_from else ''}{_date_text(campaign.head.time)}",
        _ucx_text(campaign, workers),
        *_distinct_known(worker.hardware.cpu_model for worker in workers)[:1],
        *_distinct_known(gpu.name for worker in workers for gpu in worker.hardware.gpus or ())[:1],
    ]
    return " · ".join(parts)


def _ucx_text(campaign: Campaign, workers: Sequence[Worker]) -> str:
    """The UCX versions that workers loaded, or that other programs in a network measurement used, as text."""
    methods = (line.method for launch in campaign.launches for line in launch.probes)
    versions = _distinct_known(worker.ucx.version for worker in workers)
    if versions := versions or _distinct_known(named[1] for method in methods if (named := _VERSION.search(method))):
        return f"UCX {' / '.join(versions)}"
    return "no UCX loaded" if workers else "UCX not recorded"


def _hosts_text(hosts: Sequence[str]) -> str:
    if not hosts:
        return "host not recorded"
    if len(hosts) > _MOST_HOSTS:
        return f"{len(hosts)} hosts, {hosts[0]} to {hosts[-1]}"
    return f"{plural_noun(len(hosts), 'host')} {', '.join(hosts)}"


def _distinct_known(values: Iterable[str | None]) -> list[str]:
    """Every value that is not None or empty, once."""
    return list(dict.fromkeys(value for value in values if value))


def _date_text(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return "date not recorded"
