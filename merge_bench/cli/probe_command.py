"""The `probe` commands once their options are parsed: measure, show, export; gives exit statuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from merge_bench.cli.program import this_command
from merge_bench.errors import RunFailed, UsageError
from merge_bench.probe import probes
from merge_bench.probe.shared import campaign as campaigns
from merge_bench.probe.shared import ping_pong_csv
from merge_bench.probe.shared.stored import in_order, label_rows
from merge_bench.records.campaign import Campaign
from merge_bench.records.probe_rows import Row
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import FailureLine
from merge_bench.view.messages import say_log, say_warnings
from merge_bench.view.probe.output import LIST, Output, asked_for, print_references, write_files
from merge_bench.view.progress import progress_for


def probe_command(name: str, values: Mapping[str, Any]) -> int:
    """`probe NAME`: every config, interleaved; what failed is told, what was measured is shown."""
    if LIST in values["references"]:
        print_references(as_json=bool(values["json"]))
        return 0
    output = asked_for(values)
    probe = probes()[name].make(values)
    baseline = [values["baseline"]] if values["baseline"] else []
    configs = [*baseline, *(config for config in values["configs"] if config not in baseline)] or [None]
    head, jobs = campaigns.prepare(probe, configs, values, blocks=values["repetitions"])
    say_warnings(campaigns.warnings(jobs))
    progress = progress_for(sys.stderr, quiet=bool(values["json"]))
    try:
        folder, status = campaigns.run(probe, head, jobs, progress, fresh=bool(values["fresh"]), program=this_command())
    finally:
        progress.close()
    campaign = read_campaign(folder)
    return max(status, _tell([campaign], in_order(campaign), output, as_json=bool(values["json"])))


def show_command(values: Mapping[str, Any]) -> int:
    """`probe show`: stored campaigns, and a ping-pong's CSV files, again, together, without measuring."""
    as_json = bool(values["json_output"])
    if LIST in values["references"]:
        print_references(as_json=as_json)
        return 0
    if not values["results"]:
        raise UsageError("name a RESULT, the folder of a campaign of probe or its records.jsonl")
    output = asked_for(values)
    files = [Path(result) for result in dict.fromkeys(values["results"]) if str(result).endswith(".csv")]
    found = [read_campaign(result) for result in values["results"] if not str(result).endswith(".csv")]
    rows = [*label_rows(found), *(row for file in files for row in ping_pong_csv.read(file))]
    return _tell(found, rows, output, as_json=as_json)


def _tell(found: Sequence[Campaign], measured: Sequence[Row], output: Output, *, as_json: bool) -> int:
    """Tables first, then files; the document of `--json` last, since it tells what could not be written."""
    rows = [*measured, *output.references]
    if not as_json:
        _print(found, measured, rows)
    problems = write_files(output, rows) if measured else []
    failures = [failure for one in found for failure in _failures(one)]
    if as_json:
        errors = [
            {"code": one.code, "message": one.message, "host": one.host, "rank": one.rank} for one in failures
        ] + [{"code": "not-written", "message": problem, "host": None, "rank": None} for problem in problems]
        records = [str(one.records) for one in found]
        document = {"records": records[0] if len(records) == 1 else records, "rows": [row.to_json() for row in rows]}
        warnings = [{"code": code, "message": message, "remedy": remedy} for code, message, remedy in _warnings(found)]
        print(json.dumps({**document, "warnings": warnings, "error": errors[0] if errors else None}))
    for failure in failures:
        print(f"merge_bench: {failure.message}", file=sys.stderr)
        say_log(failure.log_tail)
    for problem in problems:
        print(f"merge_bench: {problem}", file=sys.stderr)
    return RunFailed.exit_status if problems else 0


def _warnings(found: Sequence[Campaign]) -> list[tuple[str, str, str | None]]:
    return list(dict.fromkeys(caution for one in found for caution in one.cautions))


def _failures(campaign: Campaign) -> list[FailureLine]:
    return [*campaign.failures, *(failure for launch in campaign.standing for failure in launch.failures)]


def _print(found: Sequence[Campaign], measured: Sequence[Row], rows: Sequence[Row]) -> None:
    from merge_bench.view.probe.show import print_rows

    configs = list(dict.fromkeys(row.config for row in measured if row.source is None))
    remarks = [] if measured else ["nothing was measured, and no file was written"]
    if len(found) > 1 and len(configs) > 1:
        remarks.append("campaigns were measured at different times: a drift of the machines is in their speed-ups")
    remarks += [f"{one.head.campaign_id} did not come to its end" for one in found if one.end is None]
    baseline = configs[0] if len(configs) > 1 else None
    records = [one.records for one in found]
    print_rows(rows, baseline=baseline, warnings=_warnings(found), remarks=remarks, records=records)
