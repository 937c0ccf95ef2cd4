"""The `probe` commands once their options are parsed: measure, show, export; gives exit statuses."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from typing import Any

from merge_bench.commands import say_log, say_warnings
from merge_bench.probe import campaign as campaigns
from merge_bench.probe.base import Probe
from merge_bench.probe.rows import rows_of
from merge_bench.record.reader import read_campaign
from merge_bench.report.live import progress_for

MODULES = {"p2p": "p2p", "rma": "rma", "mpi": "mpi", "reduce-scatter": "reduce_scatter"}


def make_probe(name: str, values: Mapping[str, Any]) -> Probe:
    """The measurement of this name, from its own options; each module has a `make` for it.

    Raises
    ------
    UsageError
        If an option of it is wrong.
    """
    made: Probe = importlib.import_module(f"merge_bench.probe.{MODULES[name]}").make(values)
    return made


def probe_command(name: str, values: Mapping[str, Any]) -> int:
    """`probe NAME`: every config, interleaved; what failed is told, what was measured is shown."""
    probe = make_probe(name, values)
    baseline = [values["baseline"]] if values["baseline"] else []
    configs = [*baseline, *(config for config in values["configs"] if config not in baseline)] or [None]
    head, jobs = campaigns.prepare(probe, configs, values, blocks=values["repetitions"])
    say_warnings(campaigns.warnings(jobs))
    progress = progress_for(sys.stderr, quiet=bool(values["json"]))
    try:
        folder, status = campaigns.run(probe, head, jobs, progress)
    finally:
        progress.close()
    campaign = read_campaign(folder)
    rows = rows_of(campaign)
    failures = [*campaign.failures, *(failure for launch in campaign.launches for failure in launch.failures)]
    if values["json"]:
        error = failures[0] if failures else None
        told = None if error is None else {
            "code": error.code, "message": error.message, "host": error.host, "rank": error.rank,
        }  # fmt: skip
        print(json.dumps({"records": str(campaign.records), "rows": [row.to_json() for row in rows], "error": told}))
    for failure in failures:
        print(f"merge_bench: {failure.message}", file=sys.stderr)
        say_log(failure.log_tail)
    return status
