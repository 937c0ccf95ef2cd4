"""`tune` once its options are parsed: prune, search, confirm, write what was found; gives the exit status."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from merge_bench import quiet, signals
from merge_bench.campaign import CHECKOUT, begin, config_line, git_state
from merge_bench.commands import say_warnings
from merge_bench.config.reader import ConfigFile
from merge_bench.errors import RunFailed, UsageError
from merge_bench.launching import Head, Job, make_launch
from merge_bench.outputs import check_writable, replacing
from merge_bench.record.campaign import Campaign
from merge_bench.record.reader import read_campaign
from merge_bench.record.schema import EndLine, RunKey
from merge_bench.record.writer import CampaignWriter, safe_name
from merge_bench.report.live import Progress, progress_for
from merge_bench.report.tuning import print_tuning
from merge_bench.resuming import go_on
from merge_bench.running import load_sweep, merge_in
from merge_bench.setup import Prepared
from merge_bench.tune.bench import BudgetSpent, Candidate, Options
from merge_bench.tune.confirm import settle
from merge_bench.tune.live import Budget, LiveBench
from merge_bench.tune.pruning import Pruned, prune
from merge_bench.tune.result import result_of
from merge_bench.tune.situation import look
from merge_bench.tune.space import Space, Value, read_space
from merge_bench.tune.strategies import make_strategy
from merge_bench.tune.tuned import tuned_text
from merge_bench.units import format_count

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
    output = Path(values["output"]) if values["output"] else CHECKOUT / "configs" / f"tuned-{_host()}.cfg"
    check_writable("--output", output)
    task = _prepare(values)
    say_warnings(list(dict.fromkeys(warning for each in task.prepared for warning in each.warnings)))
    if values["dry_run"]:
        _say_space(task)
        return 0
    progress = progress_for(sys.stderr, quiet=bool(values["json"]))
    try:
        campaign, status, remark = _tune(task, values, progress)
    finally:
        progress.close()
    result = result_of(campaign)
    remarks = [remark] if remark else []
    if status == 0 and result.winner is not None:
        text = tuned_text(
            campaign, result, task.space, baseline=task.text, sizes=task.sizes, metric=values["metric"]
        )  # fmt: skip
        with replacing(output) as draft:
            draft.write_text(text)
        remarks.append(f"Written: {output}")
    remarks.append(f"Records: {campaign.records}")
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


def _prepare(values: Mapping[str, Any]) -> Task:
    """Read baseline and space, plan the sizes, leave out what makes no sense here."""
    space = read_space(Path(values["space"]) if values["space"] else CHECKOUT / "configs" / "space.toml")
    if values["only"]:
        space = space.only([name.strip() for name in str(values["only"]).split(",")])
    prepared, config = _load(values["baseline"], values)
    line = config_line(prepared[0], config)
    given = {key: value for key, value in values.items() if key != "chunk"}
    kept, pruned = prune(space, look(prepared[0], given))
    if not kept:
        raise UsageError("nothing of the tuning space can be tried here: " + "; ".join(
            f"{each.value.id}: {each.reason}" for each in pruned
        ))  # fmt: skip
    about = {
        "strategy": values["strategy"], "space": space.sha256, "values": [value.id for value in kept],
        "metric": values["metric"], "threshold": values["threshold"], "blocks": values["most_blocks"],
        "confirm": values["confirm"],
    }  # fmt: skip
    plans = [{**each.plan.to_json(), "tune": about} for each in prepared]
    keys = [RunKey(config=line.name, plan=number) for number in range(len(plans))]
    head = Head([line], plans, keys, prepared[0].plan.seed)
    text = config.path.read_text() if config is not None else ""
    sizes = [
        f"{format_count(each.plan.rows_per_chunk)} rows a chunk" if each.plan.rows_per_chunk else "the tables given"
        for each in prepared
    ]
    return Task(head, line.name, text, prepared, space, kept, pruned, sizes)


def _load(name: str | Path | None, values: Mapping[str, Any]) -> tuple[list[Prepared], ConfigFile | None]:
    """The plans of a config: the sizes of ``--chunk``, few iterations, and no measurement of the link."""
    tables = values["left"] is not None or values["workload"] in ("tables", "tpch")
    asked = {**values, "chunk": values["chunk"] or (None if tables else SIZES), "configs": None, "config": None}
    found, config = load_sweep(None if name is None else str(name), asked)
    ready = []
    for each in found:
        plan = replace(each.plan, launches=1, link_rounds=0, check_link=False)
        if values["iterations"] is None:
            rows = plan.rows_per_chunk or SMALL_ROWS
            plan = replace(plan, iterations=SMALL_ITERATIONS if rows <= SMALL_ROWS else LARGE_ITERATIONS)
        ready.append(replace(each, plan=plan))
    return ready, config


def _tune(task: Task, values: Mapping[str, Any], progress: Progress) -> tuple[Campaign, int, str]:
    """Search and confirm; gives the campaign, the exit status, and a sentence where there is something to tell."""
    results, state = task.prepared[0].settings.results, git_state()
    found = None if values["fresh"] else go_on(results, task.head, state, lambda campaign: campaign.end is None)
    writer = found[0] if found else CampaignWriter.create(results, f"tune-{task.baseline}")
    status, remark = 0, ""
    with writer:
        if found:
            print(
                f"merge_bench: going on with {writer.folder}: {len(found[1].launches)} launches are there",
                file=sys.stderr,
            )
        else:
            begin(writer, task.head, [Job(each, task.baseline) for each in task.prepared], state)
        with signals.raising(), quiet.libraries(writer.logs / "driver.log"):
            try:
                remark = _search(task, values, writer, progress)
            except RunFailed as problem:
                status, remark = problem.exit_status, str(problem)
        if status == 0:
            with contextlib.suppress(RunFailed):
                writer.write(EndLine(status=0))
        return read_campaign(writer.folder), status, remark


def _search(task: Task, values: Mapping[str, Any], writer: CampaignWriter, progress: Progress) -> str:
    def launch(job: Job, index: int) -> int:
        return make_launch(job, writer, progress, index, merge_in(job))

    bench = LiveBench(
        writer=writer, baseline=task.baseline, text=task.text, prepared=task.prepared,
        load=lambda path: _load(path, values)[0], launch=launch, metric=values["metric"], seed=task.head.seed,
        budget=Budget(values["max_launches"], values["budget"]), told=progress.phase,
    )  # fmt: skip
    options = Options(threshold=values["threshold"], most=values["most_blocks"], confirm=values["confirm"])
    remark = ""
    try:
        candidate = make_strategy(values["strategy"]).tune(task.space, task.values, bench, options)
    except BudgetSpent as spent:
        candidate, remark = (
            best_so_far(read_campaign(writer.folder), task.values),
            f"{spent}; the best so far was confirmed.",
        )
    settle(candidate, bench, options)
    return remark


def best_so_far(campaign: Campaign, values: Sequence[Value]) -> Candidate:
    """What the steps until now have kept: the last combination, else the strongest single setting."""
    by_id = {value.id: value for value in values}
    kept = [line for line in campaign.tuning if line.decision == "kept" and line.setting in by_id]
    combined = [line for line in kept if line.phase == "combine"]
    settings = {line.config.name: line.settings for line in campaign.added}
    if combined:
        return Candidate.of(*(by_id[name] for name in settings[combined[-1].config]))
    singles = sorted((line for line in kept if line.phase == "screen"), key=lambda line: -(line.ratio or 0))
    return Candidate.of(*(by_id[str(line.setting)] for line in singles[:1]))


def _say_space(task: Task) -> None:
    for value in task.values:
        print(f"{value.id}: " + " ".join(f"{name}={text}" for name, text in value.variables))
    for each in task.pruned:
        print(f"# {each.value.id}: {each.reason}")


def _host() -> str:
    return safe_name(os.environ.get("SLURM_CLUSTER_NAME") or socket.gethostname().partition(".")[0])
