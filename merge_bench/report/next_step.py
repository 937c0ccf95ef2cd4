"""The next command worth typing after a run, a comparison or a tuning."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from merge_bench.analysis import aggregate
from merge_bench.analysis.diagnostics import BUSY_HOST, first_core_shortage, launches_started_on_busy_host
from merge_bench.analysis.documents import Comparison, Failure, RunDocument
from merge_bench.command.options import EXEC_KEYS, ExecOptions
from merge_bench.config.options import BY_KEY, CLUSTER_OPTIONS, OPTIONS, TUNE_OPTIONS
from merge_bench.errors import (
    GateNotMet,
    GateWithoutBaseline,
    MergeBenchError,
    RecordsNotWritten,
    UsageError,
    WrongResult,
)
from merge_bench.merge import engines
from merge_bench.merge.exchange import find_recorded_plane
from merge_bench.merge.workload.tables import EMPTY_TABLE, FEW_ROW_GROUPS
from merge_bench.records.campaign import INTERRUPTED, JOB, Campaign, Run, is_read_on_another_machine
from merge_bench.records.schema import GivenOptions
from merge_bench.records.writer import make_safe_folder_name
from merge_bench.regressions.gates import HISTORY
from merge_bench.report.run_sections import hosts_of_run
from merge_bench.units import count_with_noun
from merge_bench.view.suggested_command import SuggestedCommand, can_wait_for_quiet_host, launchers_of_campaign
from merge_bench.view.titles import is_tuning_campaign, recorded_workers

if TYPE_CHECKING:
    from merge_bench.tune.result import TuningResult

_TUNING_BUDGET = "10m"
_MOST_MORE_LAUNCHES = 40  # of each config
LEAST_FOR_INTERVAL = 6
"""The fewest launches with a 95 % interval."""
_BUSY_SHARE = 0.1  # of a tuning's launches: then noise of a busy host may be why nothing was decided
_RUN_KEYS = {option.key for option in OPTIONS} - {"json", "dry_run", "details", "write_result"}
_TUNE_KEYS = {option.key for option in TUNE_OPTIONS} & _RUN_KEYS
_CLUSTER_KEYS = {option.key for option in CLUSTER_OPTIONS} & _RUN_KEYS
_COMMAND_KEYS = {option.key for option in ExecOptions.declared_options()} | (_TUNE_KEYS & {*EXEC_KEYS})
"""The options that `exec` and `tune -- COMMAND` have in common."""
_QUIETLY = ", on a quiet host"
_WHAT_HELPS = "; docs/slow-merge.md says what helps"
_UNFINISHED = frozenset((INTERRUPTED, "unfinished"))


def next_step_after_run(campaign: Campaign, document: RunDocument) -> SuggestedCommand | None:
    """The next command after a campaign of one run, such as `tune`; `report` if the run was imported."""
    old_options = _recorded_run_options(campaign)
    if old_options is None:
        return report_command_step(campaign)
    if document.error is not None:
        return _next_step_after_error(campaign, old_options, campaign.runs[0], document.error)
    if not document.verified:
        return _repeat_run_step(old_options, "measures again and verifies the result", verify="ends")
    bottleneck = document.bottleneck
    if bottleneck is None:
        return report_command_step(campaign)
    crowd, limit = (
        first_core_shortage(aggregate.complete_launches(campaign.runs[0])),
        bottleneck.besides or bottleneck.what,
    )
    if limit == "host":
        return SuggestedCommand(("doctor",), "looks for what takes the workers' cores; run it on their host")
    rows = campaign.runs[0].plan.rows_per_chunk
    if limit == "fixed-costs" and rows:
        return _repeat_run_step(old_options, "measures a merge of ten times the rows", chunk=str(10 * rows))
    lacks_rows = any(warning.code in (FEW_ROW_GROUPS, EMPTY_TABLE) for warning in document.warnings)
    if limit in ("slow-link", "straggler") and not lacks_rows:
        return SuggestedCommand(("doctor",), "looks for what slows this rank; run it on its host")
    if limit == "overload":
        return report_command_step(campaign, purpose_suffix=_WHAT_HELPS)
    if crowd is not None:
        if crowd.bound or len(hosts_of_run(document)) != 1:
            return None
        return _repeat_run_step(old_options, "gives each worker a core", workers=str(crowd.max_worker_count))
    if limit == "link":
        return _transports_command_step(old_options)
    if limit not in ("exchange", "slow-link", "straggler"):
        return _next_step_after_compute_limit(campaign, old_options, document, limit)
    if lacks_rows:
        return report_command_step(
            campaign, purpose_suffix=_WHAT_HELPS
        )  # workers without rows wait, whatever the settings
    if not all(kind.owns_processes for kind in launchers_of_campaign(campaign)):
        return report_command_step(
            campaign, purpose_suffix=_WHAT_HELPS
        )  # a running cluster has already read its settings
    baseline = [str(old_options[key]) for key in ("config", "configs") if key in old_options][:1]
    options = {"budget": _TUNING_BUDGET, **_add_chunk_option(_pick_options(old_options, _TUNE_KEYS), campaign)}
    return SuggestedCommand(("tune", *baseline), "looks for settings that make it faster", options)


def _next_step_after_compute_limit(
    campaign: Campaign, old_options: GivenOptions, document: RunDocument, limit: str
) -> SuggestedCommand:
    """The next command after a merge that cores or memory limit, which exchange settings cannot make faster.

    If another engine than that of ``auto`` was used and memory is not the limit, the command merges with that engine.
    Else it writes a report on one host, which draws where the time goes, and makes a forecast on several hosts.
    """
    plan = campaign.runs[0].plan
    used = next((engine for engine in engines.engine_descriptions() if engine.name == plan.engine), None)
    usual = engines.default_engine(
        device_memory=False, needs_dask=not find_recorded_plane(plan.exchange).workers_exchange_rows
    )
    if used is not None and not used.device_memory and used != usual and limit != "memory":
        return _repeat_run_step(old_options, f"measures the same with the engine {usual.name}", engine=usual.name)
    if len(hosts_of_run(document)) == 1:
        return report_command_step(campaign, purpose_suffix=_WHAT_HELPS)
    from merge_bench.forecast.gather import gather_measurements

    try:
        gather_measurements([campaign], None)
    except MergeBenchError:
        return report_command_step(campaign, purpose_suffix=_WHAT_HELPS)
    workers, hosts = len(document.bandwidth_bytes_per_second.per_worker), len(hosts_of_run(document))
    size: GivenOptions = {"workers": str(2 * workers), "hosts": str(2 * hosts)}
    return SuggestedCommand(("predict", str(campaign.folder)), "forecasts it on twice as many hosts", size)


def next_step_after_sweep(
    campaign: Campaign, documents: Sequence[RunDocument], comparisons: Sequence[Comparison]
) -> SuggestedCommand | None:
    """The next command after a campaign of several runs; `documents` are in the order of its runs."""
    old_options = _recorded_run_options(campaign)
    if old_options is None:
        return None
    failed = [(run, one.error) for run, one in zip(campaign.runs, documents, strict=True) if one.error is not None]
    if failed:
        return _next_step_after_error(
            campaign, old_options, *min(failed, key=lambda each: _error_severity(each[1].code))
        )
    needed = [each.more_launches or 0 for each in comparisons]
    more = max((each for each in needed if each <= _MOST_MORE_LAUNCHES), default=0)  # of more than that, noise hides it
    if more:
        blocks = str(more + max(each.launches for each in comparisons))
        if campaign.is_of_service_job:  # no job may name a result to add to
            return _repeat_run_step(old_options, "measures anew, as often as a verdict needs", launches=blocks)
        does = f"adds {count_with_noun(more, 'block')}, as many as a verdict needs"
        return _repeat_run_step(old_options, does, launches=blocks, extend=str(campaign.folder))
    return report_command_step(campaign)


def next_step_after_command(
    campaign: Campaign, documents: Sequence[RunDocument], comparisons: Sequence[Comparison]
) -> SuggestedCommand | None:
    """The next command after a campaign of a command; `documents` are in the order of its runs."""
    failed = [(run, one.error) for run, one in zip(campaign.runs, documents, strict=True) if one.error is not None]
    if campaign.head.options is None:
        return report_command_step(campaign)
    if failed:
        return _next_step_after_failed_command(campaign, *min(failed, key=lambda each: _error_severity(each[1].code)))
    complete = max(one.measured.launches for one in documents)
    more = max((each.more_launches or 0 for each in comparisons), default=LEAST_FOR_INTERVAL - complete)
    if not 0 < more <= _MOST_MORE_LAUNCHES:  # of more than that, noise hides it
        return report_command_step(campaign)
    needs = "a verdict needs" if comparisons else "a 95 % interval needs"
    if campaign.is_of_service_job:  # no job may name a result to add to
        return _repeat_exec_step(campaign, f"measures anew, as often as {needs}", launches=str(complete + more))
    does = f"adds {count_with_noun(more, 'block' if len(documents) > 1 else 'launch')}, as many as {needs}"
    return _repeat_exec_step(campaign, does, launches=str(complete + more), extend=str(campaign.folder))


def _next_step_after_failed_command(campaign: Campaign, run: Run, error: Failure) -> SuggestedCommand | None:
    if error.code == UsageError.code:
        return None  # the error names what to change
    if error.code in _UNFINISHED:
        several = sum(each.planned_launches for each in campaign.runs) > 1
        return _repeat_exec_step(campaign, "goes on where this was interrupted" if several else "measures again")
    if error.code == RecordsNotWritten.code:
        return _repeat_exec_step(campaign, "measures again, once the disk has room for the records")
    if error.code == GateWithoutBaseline.code:
        does = "measures again, and passes until there are enough earlier results"
        return _repeat_exec_step(campaign, does, allow_no_baseline=True)
    failures = [each for launch in run.launches for each in launch.failures if each.code == error.code]
    if failures:
        config = {"configs": _config_as_user_typed(campaign, run)} if len(campaign.runs) > 1 else {}
        why = "whether it is mended" if any(each.log_tail for each in failures) else "why it fails"
        does = f"runs it once with {run.config.name}, to see {why}"
        return replace(_repeat_exec_step(campaign, does, launches="1", **config), needs_quiet=False)
    return report_command_step(campaign)


def _config_as_user_typed(campaign: Campaign, run: Run) -> str:
    """The config of a run as ``--configs`` named it; else its path."""
    typed = str(_recorded_options(campaign).get("configs", "")).split(",")
    path = run.config.path or run.config.name
    return next((word for word in typed if Path(word).stem == run.config.name), path)


def _repeat_exec_step(campaign: Campaign, purpose: str, **changed: str | bool) -> SuggestedCommand:
    """The `exec` that repeats a campaign of a command with some options changed; `purpose`: what it does, a phrase."""
    old_options, command = _recorded_options(campaign), campaign.command
    dropped = {"command", "json", "dry_run", "details", "fresh", "extend", *changed}
    if campaign.is_of_service_job:
        dropped.add("results")  # the service's own folder
    options = {**_pick_options(old_options, old_options.keys() - dropped), **changed}
    words = tuple(command.argv) if command is not None and "named" not in options else ()  # a service knows it by name
    return SuggestedCommand(("exec",), purpose, options, command_words=words)


def next_step_after_tuning(
    campaign: Campaign, result: TuningResult, *, config_path: Path | None, seconds_to_decide: float | None
) -> SuggestedCommand:
    """The next command after a tuning; a tuning with other limits starts anew instead of resuming this one.

    `config_path`: the file of the config that the tuning found, None without one; `seconds_to_decide`: the time in
    which all candidates can be tried and judged.
    """
    from merge_bench.tune.tuning_plan import advised_budget_seconds, rounded_up_duration_text

    old_options, tuning = _recorded_options(campaign), campaign.plans[0].tune
    advised = advised_budget_seconds(result.stopped)  # what is printed above the next command
    if advised:
        seconds_to_decide = max(seconds_to_decide or 0.0, advised)
    budget = _budget_to_decide_tuning(campaign, result, seconds_to_decide)
    if config_path is not None:
        note = f"With --budget {budget} all candidates have all their blocks, and one a confirmation." if budget else ""
        return replace(_next_step_after_winner(campaign, result, config_path, old_options), note=note)
    if tuning is None:
        return report_command_step(campaign)
    launches, seconds = (*tuning.budget, None, None)[:2]
    limited = result.stopped is not None or bool(result.left_out_values)
    unjudged = [line.config for line in result.unconfirmed_gains]
    inconclusive = bool(unjudged)
    warned = any(line.code == BUSY_HOST for line in campaign.warnings)  # noise may be why there is no result
    busy = warned or len(launches_started_on_busy_host(campaign.launches)) >= _BUSY_SHARE * len(campaign.launches)
    waits = can_wait_for_quiet_host(campaign) and "wait_for_quiet" not in old_options
    changed, does = {}, "searches anew, with time for what was not tried or not decided"
    open_one = result.unconfirmed or next(iter(unjudged), None)
    alone = next((line.settings for line in campaign.added if line.config.name == open_one), [])
    if alone and not result.baseline_differs_from_itself and "only" not in old_options:
        limits = {"most_blocks": tuning.blocks, "confirm": tuning.confirm} if inconclusive else {}
        more = {name: str(2 * blocks) for name, blocks in limits.items() if blocks is not None}
        does = f"tests {open_one} alone{', with more blocks' if more else ''}{_QUIETLY if busy else ''}"
        more |= {"wait_for_quiet": "5m"} if busy and waits else {}
        more |= {"budget": rounded_up_duration_text(advised)} if advised > (seconds or advised) else {}
        alternative = f"; or all candidates, without --only and with --budget {budget}" if budget else ""
        return _repeat_tuning_step(campaign, old_options, does + alternative, only=",".join(alone), **more)
    unsure = result.undecided or result.no_gain_seen or inconclusive or not result.screened
    quiet = result.baseline_differs_from_itself or (busy and bool(unsure))
    if quiet and waits:
        changed["wait_for_quiet"], does = "5m", "searches anew"
    elif (result.undecided or inconclusive) and not limited:
        name, blocks = ("confirm", tuning.confirm) if inconclusive else ("most_blocks", tuning.blocks)
        changed |= {} if blocks is None else {name: str(2 * blocks)}
        does = "searches anew, with more blocks"
    if launches is not None and (limited or changed):
        changed["max_launches"] = f"{2 * launches:.0f}"
    if seconds is not None and (limited or changed):
        changed["budget"] = rounded_up_duration_text(
            max(2 * seconds, advised)
            if quiet and waits and not result.has_tried_nothing
            else max(2 * seconds, seconds_to_decide or 0.0)
        )
    if seconds is not None and result.has_tried_nothing:
        does = f"searches anew, with time for {count_with_noun(len(tuning.values), 'candidate')}"
    if changed:
        return _repeat_tuning_step(campaign, old_options, does + (_QUIETLY if quiet else ""), **changed)
    note = "Other candidates were not tried, because of --only." if "only" in old_options else ""
    return replace(report_command_step(campaign), note=note)


def _next_step_after_winner(
    campaign: Campaign, result: TuningResult, config_path: Path, old_options: GivenOptions
) -> SuggestedCommand:
    """The command that merges with the config that a tuning found, or compares it at sizes not measured yet."""
    if campaign.command is not None:
        return _measure_tuned_command_step(campaign, config_path, old_options)
    same = _add_chunk_option(_pick_options(old_options, _TUNE_KEYS - {"fresh"}), campaign)
    missing = [campaign.plans[plan].rows_per_chunk for plan in result.sizes_left_out]
    if not missing or None in missing:
        return SuggestedCommand((), "merges with the config that was found", {"config": str(config_path), **same})
    baseline = campaign.head.configs[0].path or f"{campaign.head.configs[0].name}.cfg"
    both = {"configs": f"{baseline},{config_path}", "blocks": "6"}
    options = {**both, **_pick_options(same, _RUN_KEYS - {"chunk"}), "chunk": ",".join(map(str, missing))}
    return SuggestedCommand((), "compares both where the budget had no time to", options)


def _measure_tuned_command_step(campaign: Campaign, config_path: Path, old_options: GivenOptions) -> SuggestedCommand:
    """The command that measures a command with the config that a tuning found for it."""
    kept = _pick_options(old_options, _COMMAND_KEYS - {"fresh", "lanes"})
    words = () if campaign.command is None else tuple(campaign.command.argv)
    does = "measures the command with the config that was found"
    return SuggestedCommand(("exec",), does, {"config": str(config_path), **kept}, command_words=words)


def _budget_to_decide_tuning(campaign: Campaign, result: TuningResult, seconds_to_decide: float | None) -> str:
    """The ``--budget`` with which a tuning would decide on all candidates; empty if none is needed or known."""
    from merge_bench.tune.tuning_plan import rounded_up_duration_text

    tuning = campaign.plans[0].tune
    seconds = (*tuning.budget, None, None)[1] if tuning is not None else None
    open_still = ((result.undecided or result.no_gain_seen) and result.stopped) or result.left_out or result.unconfirmed
    if tuning is None or seconds_to_decide is None or seconds is None or seconds_to_decide <= seconds or not open_still:
        return ""
    return rounded_up_duration_text(seconds_to_decide)


def next_step_after_recorded_tuning(campaign: Campaign) -> SuggestedCommand:
    """The next command after a tuning, from its records alone; if it was interrupted, the command that resumes it."""
    from merge_bench.tune.result import tuning_result_of
    from merge_bench.tune.tuning_plan import seconds_to_decide_candidates

    old_options, result = _recorded_options(campaign), tuning_result_of(campaign)
    if campaign.end is None or (campaign.end.status and not result.has_tried_nothing):
        return _repeat_tuning_step(campaign, old_options, "continues it, and keeps what was measured")
    workers = recorded_workers(campaign.launches)
    default = f"tuned-{make_safe_folder_name(workers[0].host.partition('.')[0])}.cfg" if workers else None
    output, space = old_options.get("output", default), old_options.get("space")
    config_path = Path(str(output)) if result.winner is not None and output is not None else None
    seconds_to_decide = seconds_to_decide_candidates(campaign, Path(str(space)) if space else None)
    return next_step_after_tuning(campaign, result, config_path=config_path, seconds_to_decide=seconds_to_decide)


def _error_severity(error_code: str) -> int:
    """The severity of an error code as a number for sorting, the lowest for the worst."""
    codes = (WrongResult.code, GateNotMet.code, GateWithoutBaseline.code)
    return codes.index(error_code) if error_code in codes else len(codes) + (error_code in _UNFINISHED)


def _next_step_after_error(
    campaign: Campaign, old_options: GivenOptions, run: Run, error: Failure
) -> SuggestedCommand | None:
    code = error.code
    if code == UsageError.code:
        return None  # the error names what to change
    again = _pick_options(old_options, _RUN_KEYS - {"fresh"})
    if code in _UNFINISHED:
        several = sum(each.planned_launches for each in campaign.runs) > 1
        return SuggestedCommand((), "goes on where this was interrupted" if several else "measures again", again)
    if code == WrongResult.code:
        return _repeat_run_step(old_options, "compares every row, and names those that are wrong", verify="full")
    if code == RecordsNotWritten.code:
        return SuggestedCommand((), "measures again, once the disk has room for the records", again)
    if code in (GateNotMet.code, GateWithoutBaseline.code):
        failures = (failure for run in campaign.runs for launch in run.launches for failure in launch.failures)
        if any(failure.code == code for failure in failures):
            return _transports_command_step(old_options, run)
        return _next_step_after_gate(campaign, old_options, run, error)
    return SuggestedCommand(("doctor",), "looks for problems of this host")


def _next_step_after_gate(campaign: Campaign, old_options: GivenOptions, run: Run, error: Failure) -> SuggestedCommand:
    """The next command after a comparison that did not pass its gate."""
    if error.code == GateWithoutBaseline.code:
        does = "measures again, and passes until there are enough earlier results"
        return _repeat_run_step(old_options, does, allow_no_baseline=True)
    if old_options.get("against") != HISTORY:
        return report_command_step(campaign)
    does = "shows the level it was held against; if the loss is meant, add --accept REASON"
    elsewhere = is_read_on_another_machine(campaign.head.environment_variable(JOB))  # the level is of its own results
    folder = _pick_options(old_options, set() if elsewhere else {"results"})
    return SuggestedCommand(("history",), does, {"config": run.config.name, **folder})


def _transports_command_step(old_options: GivenOptions, run: Run | None = None) -> SuggestedCommand:
    """The `transports` command for the same cluster, or with `run` for the config and workers of that run."""
    options = _pick_options(old_options, _CLUSTER_KEYS if run is None else _CLUSTER_KEYS - {"config", "workers"})
    if run is not None:
        config = {"config": run.config.path or run.config.name} if {"config", "configs"} & set(old_options) else {}
        options |= {**config, "workers": str(run.plan.workers)}
    does = "shows which transports carry the frames, and which could"
    return SuggestedCommand(("transports",), does, {"available": True, **options})


def report_command_step(*campaigns: Campaign, purpose_suffix: str = "") -> SuggestedCommand:
    """The command that writes a report of `campaigns`; `purpose_suffix`: what to add to the phrase on its purpose."""
    words = ("report", *(str(campaign.folder) for campaign in campaigns))
    return SuggestedCommand(words, f"draws everything on one page{purpose_suffix}", reports=True)


def timeline_export_command(campaign: Campaign) -> str:
    """The command line that writes the timelines of a campaign for Perfetto."""
    return SuggestedCommand(("export", str(campaign.folder)), "", {"format": "trace", "output": "trace.json"}).command


def _recorded_options(campaign: Campaign) -> GivenOptions:
    """The options of the command that made a campaign, as they were typed."""
    if campaign.head.options is not None:
        return campaign.head.options
    flags = {option.key for option in OPTIONS if option.flag}
    old_options: GivenOptions = {}
    words = iter(campaign.head.argv[1:])
    for word in words:
        name, joined, value = word.partition("=")
        key = name.removeprefix("--").replace("-", "_")
        key = BY_KEY[key].key if key in BY_KEY else key
        if word.startswith("--"):
            old_options[key] = True if key in flags else value if joined else next(words, "")
        elif word not in ("run", "tune"):
            old_options["config"] = word
    return old_options


def _recorded_run_options(campaign: Campaign) -> GivenOptions | None:
    """The options of the `run` that made a campaign; None if another command made it."""
    if campaign.head.imported_from is not None or is_tuning_campaign(campaign) or campaign.probe or campaign.command:
        return None
    old_options = _recorded_options(campaign)
    results = old_options.get("results")
    if campaign.is_of_service_job and results and Path(str(results)).resolve() != campaign.folder.parent.resolve():
        return _pick_options(old_options, set(old_options) - {"results"})  # the service's own folder
    return old_options


def _repeat_run_step(old_options: GivenOptions, purpose: str, **changed: str | bool) -> SuggestedCommand:
    """The `run` that repeats a run with some options changed; without ``--extend``, unless `changed` contains it."""
    return SuggestedCommand((), purpose, {**_pick_options(old_options, _RUN_KEYS - {*changed, "extend"}), **changed})


def _repeat_tuning_step(
    campaign: Campaign, old_options: GivenOptions, purpose: str, **changed: str
) -> SuggestedCommand:
    """The `tune` that repeats a tuning with some options changed; `purpose`: what it does, as a phrase."""
    words = () if campaign.command is None else tuple(campaign.command.argv)
    baseline = [str(old_options["config"])] if "config" in old_options else []
    options = {**_pick_options(old_options, set(old_options) - {"config", "json", "fresh", *changed}), **changed}
    return SuggestedCommand(("tune", *baseline), purpose, options, command_words=words)


def _add_chunk_option(old_options: GivenOptions, campaign: Campaign) -> GivenOptions:
    """Add the sizes of a campaign as ``--chunk`` to options, for a command with other default sizes."""
    rows = [plan.rows_per_chunk for plan in campaign.plans]
    if None in rows or {"chunk", "left", "workload"} & set(old_options):
        return old_options
    return {"chunk": ",".join(map(str, rows)), **old_options}


def _pick_options(old_options: GivenOptions, keys: Collection[str]) -> GivenOptions:
    """The options with these keys."""
    return {key: value for key, value in old_options.items() if key in keys}
