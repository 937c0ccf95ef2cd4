"""What the commands do, once their options are parsed; gives exit statuses."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def run_command(values: Mapping[str, object]) -> int:
    """`run`: plan, launch, merge, report."""
    from merge_bench import run as runs
    from merge_bench.record.reader import read_campaign
    from merge_bench.report.live import progress_for
    from merge_bench.summary import summarize

    config_name = values["config"]
    prepared, config = runs.load(str(config_name) if config_name is not None else None, values)
    if values["dry_run"]:
        print(runs.dry_run(prepared))
        return 0
    progress = progress_for(sys.stderr, quiet=bool(values["json"]))
    try:
        folder, status = runs.run(prepared, config, progress)
    finally:
        progress.close()
    campaign = read_campaign(folder)
    if values["json"]:
        print(json.dumps(summarize(campaign)))
    else:
        from merge_bench.report.text import print_report

        print_report(campaign)
    for failure in (*campaign.failures, *(f for launch in campaign.launches for f in launch.failures)):
        print(f"merge_bench: {failure.message}", file=sys.stderr)
        if failure.log_tail:
            print("  the log's last lines:", file=sys.stderr)
            for line in failure.log_tail.splitlines():
                print(f"  | {line}", file=sys.stderr)
    return status


def check_command(name: str, *, json_output: bool, ucx: str | None) -> int:
    """`check`: what the installed UCX makes of a config."""
    from merge_bench.config.check import run_check
    from merge_bench.config.reader import find_config, read_config
    from merge_bench.launch.environment import LOOPBACK
    from merge_bench.run import CHECKOUT

    config = read_config(find_config(name, CHECKOUT / "configs"), os.environ)
    wanted = ucx or os.environ.get("MERGE_BENCH_UCX", "auto")
    return run_check(config, json_output=json_output, ucx=wanted, launcher={"UCX_NET_DEVICES": LOOPBACK})


def submit_command(
    launcher: str, words: Sequence[str], *, now: bool, asked: Mapping[str, Any]
) -> int:
    """`submit`: a batch job, printed or submitted."""
    from merge_bench.launch import submit
    from merge_bench.run import CHECKOUT

    config, *options = words if words and not words[0].startswith("-") else ["optimized.cfg", *words]
    script = submit.render(launcher, submit.make_job(**asked), config, options)
    print(submit.submit(launcher, script, CHECKOUT) if now else script, end="\n" if now else "")
    return 0
