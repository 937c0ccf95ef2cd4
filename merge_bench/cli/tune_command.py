"""`tune` once its options are parsed: prune, search, confirm, write what was found; gives the exit status."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from merge_bench.analysis.statistics.power import least_launches
from merge_bench.campaign.campaign import begin, config_line, first_line
from merge_bench.campaign.jobs import Head, Job
from merge_bench.campaign.prepare import Prepared
from merge_bench.campaign.progress import Progress
from merge_bench.campaign.resume import go_on
from merge_bench.campaign.run import launch_merge, load_sweep
from merge_bench.cli.program import this_command
from merge_bench.cluster.launchers import launchers
from merge_bench.config.reader import ConfigFile
from merge_bench.config.shipped import SPACE
from merge_bench.errors import RunFailed, UsageError, WrongResult
from merge_bench.records.campaign import Campaign
from merge_bench.records.outputs import replacing
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import EndLine, RunKey, TuneLine
from merge_bench.records.writer import CampaignWriter, safe_name
from merge_bench.tune.bench import BudgetSpent, Candidate, Options
from merge_bench.tune.confirm import settle
from merge_bench.tune.live import Budget, LiveBench
from merge_bench.tune.pruning import Pruned, prune
from merge_bench.tune.result import STOPPED, result_of
from merge_bench.tune.situation import look
from merge_bench.tune.space import Space, Value, read_space
from merge_bench.tune.steps import ABLATE, COMBINE, SCREEN
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tuned import tuned_text
from merge_bench.units import format_count
from merge_bench.view.messages import say_warnings
from merge_bench.view.plot.draw import check_plots
from merge_bench.view.progress import progress_for
from merge_bench.view.report.tuning import print_tuning
from merge_bench.view.tune_figures import draw_figures

SIZES = (1_000_000, 25_000_000)
SMALL_ROWS, SMALL_ITERATIONS, LARGE_ITERATIONS = 2_000_000, 20, 3


@dataclass(frozen=True)
class Task:
    """Everything that is decided before the first launch."""

    head: Head
    baseline: str
    text: str
    prepared: list[Prepared]
    space: Space
    values: tuple[Value, ...]
    pruned: tuple[Pruned, ...]
    sizes: list[str]


def tune_command(values: Mapping[str, Any]) -> int:
    """`tune`: the best config that measurements confirm, or that nothing beats the baseline."""
    output = Path(values["output"]) if values["output"] else Path(f"tuned-{_host()}.cfg")
    plots = check_plots(values["plots"], [("--output", output)])
    task = _prepare(values)
    say_warnings(list(dict.fromkeys(warning for each in task.prepared for warning in each.warnings)))
    if values["dry_run"]:
        _say_space(task)
        return 0
    progress = progress_for(sys.stderr, quiet=bool(values["json"]))
    try:
        campaign, status, remark = _tune(task, values, progress, lambda found: _write(found, task, values, output))
    finally:
        progress.close()
    result = result_of(campaign)
    remarks = [f"{result.stopped}."] if result.stopped else []
    if status == 0 and result.winner is not None:
        remarks.append(f"Written: {output}")
    remarks.append(f"Records: {campaign.records}")
    if status == 0:
        remarks += draw_figures(result, campaign.folder, plots, task.sizes, values["metric"])
    if values["json"]:
        written = str(output) if status == 0 and result.winner is not None else None
        pruned = [{"value": each.value.id, "reason": each.reason} for each in task.pruned]
        error = None if status == 0 else {"code": "unfinished", "message": remark, "host": None, "rank": None}
        document = {"records": str(campaign.records), "config": written, **result.to_json(), "pruned": pruned}
        print(json.dumps({**document, "error": error}))
    elif status == 0:
        print_tuning(result, sizes=task.sizes, metric=values["metric"], pruned=task.pruned, remarks=remarks)
    else:
        print(f"merge_bench: {remark}", file=sys.stderr)
    return status


def _write(campaign: Campaign, task: Task, values: Mapping[str, Any], output: Path) -> None:
    """The config that was found, if one was; it is there before the campaign counts as finished."""
    result = result_of(campaign)
    if result.winner is None:
        return
    text = tuned_text(campaign, result, task.space, baseline=task.text, sizes=task.sizes, metric=values["metric"])
    try:
        with replacing(output) as draft:
            draft.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunFailed(f"--output {output} was not written: {error.strerror}; the same command goes on") from error


def _prepare(values: Mapping[str, Any]) -> Task:
    """Read baseline and space, plan the sizes, leave out what makes no sense here."""
    file = Path(values["space"]) if values["space"] else SPACE
    space = read_space(file, trusted=bool(values["trust_config"]))
    if values["only"]:
        space = space.only([name.strip() for name in str(values["only"]).split(",")])
    prepared, config = _load(values["baseline"], values)
    _refuse(prepared[0], values)
    line = config_line(prepared[0], config)
    given = {key: value for key, value in values.items() if key != "chunk"}
    kept, pruned = prune(space, look(prepared[0], given))
    if not kept:
        raise UsageError("nothing of the tuning space can be tried here: " + "; ".join(
            f"{each.value.id}: {each.reason}" for each in pruned
        ))  # fmt: skip
    if set(line.name.split("+")) <= {value.id for value in space.values}:
        raise UsageError(f"the baseline is called {line.name}, as candidates of this space are: rename its file")
    first = strategies()[values["strategy"]].first_block(space, kept)
    if values["max_launches"] is not None and values["max_launches"] < first * Options.least:
        raise UsageError(
            f"--max-launches {values['max_launches']} does not suffice to judge anything: {Options.least} blocks of"
            f" {first} launches are {first * Options.least}; more launches, or fewer settings with --only"
        )
    least = least_launches(alpha=Options.alpha / len(prepared), paired=True)
    if values["confirm"] < least:
        raise UsageError(
            f"--confirm {values['confirm']} is too few blocks: with {len(prepared)} sizes nothing could be"
            f" confirmed; use at least {least}"
        )
    about = {
        "strategy": values["strategy"], "space": space.sha256, "values": [value.id for value in kept],
        "metric": values["metric"], "threshold": values["threshold"], "blocks": values["most_blocks"],
        "confirm": values["confirm"], "budget": [values["max_launches"], values["budget"]],
    }  # fmt: skip
    plans = [{**each.plan.to_json(), "tune": about} for each in prepared]
    keys = [RunKey(config=line.name, plan=number) for number in range(len(plans))]
    head = Head([line], plans, keys, prepared[0].plan.seed)
    text = config.path.read_text() if config is not None else ""
    several = len({each.plan.workers for each in prepared}) > 1
    sizes = [
        (f"{format_count(each.plan.rows_per_chunk)} rows a chunk" if each.plan.rows_per_chunk else "the tables given")
        + f", {each.plan.workers} workers" * several
        for each in prepared
    ]
    return Task(head, line.name, text, prepared, space, kept, pruned, sizes)


def _refuse(prepared: Prepared, values: Mapping[str, Any]) -> None:
    """What cannot be tuned, whatever the space."""
    if not launchers()[prepared.settings.launcher].owns_processes:
        raise UsageError("tune needs clusters of its own: a running one has read UCX's settings already")
    if prepared.plan.verify == "off":
        raise UsageError("tune proves every result, or a config that merges wrongly might win: not with --verify off")
    if values["metric"] == "bandwidth" and (prepared.plan.exchange == "dask" or prepared.plan.workers < 2):
        raise UsageError("--metric bandwidth is measured between two workers and more, with --exchange ucx alone")


def _load(name: str | Path | None, values: Mapping[str, Any]) -> tuple[list[Prepared], ConfigFile | None]:
    """The plans of a config: the sizes of ``--chunk``, few iterations, and no measurement of the link."""
    tables = values["left"] is not None or values["workload"] in ("tables", "tpch")
    asked = {**values, "chunk": values["chunk"] or (None if tables else SIZES), "configs": None, "config": None}
    found, config = load_sweep(None if name is None else str(name), asked)
    ready: list[Prepared] = []
    for each in found:
        plan = replace(each.plan, launches=1, link_rounds=0, check_link=False)
        if values["iterations"] is None:
            rows = plan.rows_per_chunk or SMALL_ROWS
            plan = replace(plan, iterations=SMALL_ITERATIONS if rows <= SMALL_ROWS else LARGE_ITERATIONS)
        if all(plan != other.plan for other in ready):  # sizes of --chunk say nothing of tables that a config names
            ready.append(replace(each, plan=plan))
    return ready, config


def _tune(
    task: Task, values: Mapping[str, Any], progress: Progress, write: Callable[[Campaign], None]
) -> tuple[Campaign, int, str]:
    """Search, confirm and `write`; gives the campaign, the exit status, and what went wrong."""
    results = task.prepared[0].settings.results
    jobs = [Job(each, task.baseline, plan) for plan, each in enumerate(task.prepared)]
    program = this_command()
    line = first_line(task.head, jobs, program.argv)
    found = None if values["fresh"] else go_on(results, line, lambda campaign: campaign.end is None)
    writer = found[0] if found else CampaignWriter.create(results, f"tune-{task.baseline}")
    status, remark = 0, ""
    with writer:
        if found:
            print(
                f"merge_bench: going on with {writer.folder}: {len(found[1].launches)} launches are there",
                file=sys.stderr,
            )
        else:
            begin(writer, line, jobs)
        with program.surround(writer.logs / "driver.log"):
            try:
                _search(task, values, writer, progress)
                write(read_campaign(writer.folder))
            except (RunFailed, WrongResult) as problem:
                status, remark = problem.exit_status, str(problem)
        if status in (0, WrongResult.exit_status):  # whatever else: the same command goes on
            with contextlib.suppress(RunFailed):
                writer.write(EndLine(status=status))
        return read_campaign(writer.folder), status, remark


def _search(task: Task, values: Mapping[str, Any], writer: CampaignWriter, progress: Progress) -> None:
    def launch(job: Job, index: int) -> int:
        return launch_merge(job, writer, progress, index)

    bench = LiveBench(
        writer=writer, baseline=task.baseline, text=task.text, prepared=task.prepared,
        load=lambda path: _load(path, values)[0], launch=launch, metric=values["metric"], seed=task.head.seed,
        budget=Budget(values["max_launches"], values["budget"]), told=progress.phase,
    )  # fmt: skip
    options = Options(threshold=values["threshold"], most=values["most_blocks"], confirm=values["confirm"])
    try:
        candidate = strategies()[values["strategy"]].tune(task.space, task.values, bench, options)
    except BudgetSpent as spent:
        candidate = best_so_far(read_campaign(writer.folder), task.values)
        what = f"{candidate.name('')} was the best so far" if candidate.values else "nothing was found to be better yet"
        bench.note(
            TuneLine(
                phase="search", config=candidate.name(task.baseline), against=task.baseline, decision=STOPPED,
                reason=f"{spent}; {what}",
            )
        )  # fmt: skip
    settle(candidate, bench, options)


def best_so_far(campaign: Campaign, values: Sequence[Value]) -> Candidate:
    """What the steps until now have left: the last combination, less what was taken out; else the strongest setting."""
    by_id = {value.id: value for value in values}
    settings = {line.config.name: line.settings for line in campaign.added}
    left = None
    for line in campaign.tuning:
        if line.phase == COMBINE and line.decision == "kept":
            left = line.config
        elif line.phase == ABLATE and line.decision == "dropped":
            left = line.against
    if left is not None:
        return Candidate.of(*(by_id[name] for name in settings[left]))
    singles = [
        line for line in campaign.tuning
        if line.phase == SCREEN and line.decision == "kept" and line.setting in by_id
    ]  # fmt: skip
    return Candidate.of(
        *(by_id[str(line.setting)] for line in sorted(singles, key=lambda line: -(line.ratio or 0))[:1])
    )


def _say_space(task: Task) -> None:
    for value in task.values:
        print(f"{value.id}: " + " ".join(f"{name}={text}" for name, text in value.variables))
    for each in task.pruned:
        print(f"# {each.value.id}: {each.reason}")


def _host() -> str:
    return safe_name(os.environ.get("SLURM_CLUSTER_NAME") or socket.gethostname().partition(".")[0])
