"""What the commands do, once their options are parsed; gives exit statuses."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def run_command(values: Mapping[str, object]) -> int:
    """`run`: plan, launch, merge, report."""
    from merge_bench.analysis.compare.gate import METRIC, asked_for
    from merge_bench.analysis.summary import summarize
    from merge_bench.campaign import run as runs
    from merge_bench.cli.program import this_command
    from merge_bench.records.reader import read_campaign
    from merge_bench.view.messages import say_log, say_warnings
    from merge_bench.view.progress import progress_for

    sweep = runs.load_all(values)
    say_warnings(list(dict.fromkeys(w for prepared in sweep.prepared.values() for w in prepared.warnings)))
    if values["dry_run"]:
        print(runs.dry_run(sweep))
        return 0
    gate = asked_for(sweep.options, configs=len(sweep.configs))
    progress = progress_for(sys.stderr, quiet=bool(values["json"]))
    try:
        folder, status = runs.run(sweep, progress, fresh=bool(values["fresh"]), program=this_command())
    finally:
        progress.close()
    campaign = read_campaign(folder)
    document = summarize(campaign)
    verdict: dict[str, Any] | None = None
    if gate is not None and status == 0:
        verdict, status = gate.hold(campaign)
        error = document.get("error") or verdict["error"]
        document = {**document, "comparisons": verdict["comparisons"], "error": error}
    if values["json"]:
        print(json.dumps(document))
    else:
        from merge_bench.view.report.comparison import print_comparison
        from merge_bench.view.report.text import print_report

        print_report(campaign, document)
        if verdict is not None:
            print_comparison(verdict, metric=METRIC)
    if verdict is not None and verdict["error"] is not None:
        print(f"merge_bench: {verdict['error']['message']}", file=sys.stderr)
    for failure in (
        *campaign.failures,
        *(f for run in campaign.runs for launch in run.launches for f in launch.failures),
    ):
        print(f"merge_bench: {failure.message}", file=sys.stderr)
        say_log(failure.log_tail)
    return status


def transports_command(values: Mapping[str, object], *, show_available: bool) -> int:
    """`transports`: what a cluster under a config connects over."""
    from merge_bench.campaign import run as runs
    from merge_bench.campaign.transports import FIXED, survey
    from merge_bench.cli.program import this_command
    from merge_bench.errors import LaunchFailed
    from merge_bench.view.messages import say_log, say_warnings
    from merge_bench.view.progress import progress_for
    from merge_bench.view.report.transports import print_survey

    config_name = values["config"]
    prepared, config = runs.load(str(config_name) if config_name is not None else None, values, FIXED)
    runs.need_ucxx(prepared)
    say_warnings(prepared.warnings)
    progress = progress_for(sys.stderr, quiet=bool(values["json"]))
    try:
        found = survey(prepared, config.name if config is not None else "default", progress, this_command())
    except LaunchFailed as failure:
        say_log(failure.log_tail)
        raise
    finally:
        progress.close()
    if values["json"]:
        print(json.dumps(found.to_json()))
    else:
        print_survey(found.to_json(), show_available=show_available)
    return 0


def doctor_command(
    *, json_output: bool, strict: bool, scheduler_address: str | None, scheduler_file: str | None
) -> int:
    """`doctor`: what on these hosts would spoil a run."""
    from merge_bench.config.ucx_choice import use_ucx
    from merge_bench.errors import GateNotMet, UsageError
    from merge_bench.host.doctor.base import BAD, worst
    from merge_bench.host.doctor.examine import agreement, examine_here

    if scheduler_address or scheduler_file:
        from merge_bench.cluster.ask import on_each_host

        hosts = on_each_host(scheduler_address, scheduler_file, examine_here)
    else:
        with contextlib.suppress(UsageError):  # one that cannot be loaded is among the findings
            use_ucx(None)
        hosts = [examine_here()]
    findings = [finding for host in hosts for finding in host.findings] + agreement(hosts)
    if json_output:
        print(json.dumps({"worst": worst(findings), "findings": [finding.to_json() for finding in findings]}))
    else:
        from merge_bench.view.report.doctor import print_findings

        print_findings(findings)
    return GateNotMet.exit_status if strict and worst(findings) == BAD else 0


def check_command(name: str, *, json_output: bool, ucx: str | None, trusted: bool = False) -> int:
    """`check`: what the installed UCX makes of a config."""
    from merge_bench.campaign.choices import options
    from merge_bench.cluster.environment import LOOPBACK
    from merge_bench.config.check import run_check
    from merge_bench.config.names import translate_config
    from merge_bench.config.options import BY_KEY
    from merge_bench.config.reader import find_config, read_config
    from merge_bench.config.ucx_choice import choose_ucx
    from merge_bench.host.network import net_devices

    config = read_config(find_config(name), os.environ)
    wanted = ucx if ucx in ("wheel", "system") else choose_ucx(ucx, os.environ).origin
    named = translate_config(config).options.get(BY_KEY["interface"].variable)
    given = named.value if named else os.environ.get(BY_KEY["interface"].variable, "")
    launcher = {"UCX_NET_DEVICES": net_devices(given.strip() or LOOPBACK)}
    return run_check(
        config, json_output=json_output, ucx=wanted, launcher=launcher, table=options(), trusted=trusted
    )  # fmt: skip


def import_command(file: str, *, results: str, json_output: bool) -> int:
    """`import`: the output of cudf-merge as a campaign, and its report."""
    from pathlib import Path

    from merge_bench.analysis.summary import summarize
    from merge_bench.campaign.importing.campaign import import_text
    from merge_bench.records.reader import read_campaign

    campaign = read_campaign(import_text(Path(file), Path(results), sys.argv))
    if json_output:
        print(json.dumps(summarize(campaign)))
    else:
        from merge_bench.view.report.text import print_report

        print_report(campaign)
    return 0


def submit_command(
    launcher: str, words: Sequence[str], *, typed: Sequence[str], now: bool, asked: Mapping[str, Any]
) -> int:
    """`submit`: a batch job, printed or submitted; `typed`: all that followed the word `submit`."""
    from merge_bench.cluster import submit

    config, options = (words[0], words[1:]) if words and not words[0].startswith("-") else (None, words)
    if config is None and not any(word.partition("=")[0] in ("--config", "--configs") for word in options):
        config = "optimized.cfg"
    script = submit.render(launcher, submit.make_job(**asked), config, options, typed)
    print(submit.submit(launcher, script) if now else script, end="\n" if now else "")
    return 0


def dashboard_command(*, results: str, port: int, address: str, no_open: bool, allow_run: bool) -> int:
    """`dashboard`: serve the view of a results folder."""
    if importlib.util.find_spec("panel") is None:
        from merge_bench.errors import UsageError

        raise UsageError("the dashboard needs panel, which is not installed: pip install 'merge-bench[dashboard]'")
    from merge_bench.view.dashboard.serve import serve

    return serve(Path(results), port=port, address=address, open_browser=not no_open, allow_run=allow_run)
