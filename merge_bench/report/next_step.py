"""The next command worth typing after a run, a comparison or a tuning."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from merge_bench.analysis import aggregate
from merge_bench.analysis.diagnostics import short_of_cores
from merge_bench.analysis.documents.compare import Comparison
from merge_bench.analysis.documents.error import Failure
from merge_bench.analysis.documents.run import RunDocument
from merge_bench.analysis.host_load import BUSY_HOST, busy_indexes
from merge_bench.config.options import BY_KEY, CLUSTER_OPTIONS, OPTIONS, TUNE_OPTIONS
from merge_bench.errors import GateNotMet, MergeBenchError, NothingCompared, NotRecorded, UsageError, WrongResult
from merge_bench.history.gates import HISTORY
from merge_bench.merge import engines
from merge_bench.merge.exchange import recorded_plane
from merge_bench.merge.workload.tables import FEW_ROW_GROUPS
from merge_bench.predict.gather import gather
from merge_bench.records.campaign import INTERRUPTED, Campaign, Run
from merge_bench.records.schema import GivenOptions
from merge_bench.records.writer import safe_name
from merge_bench.tune.budget import round_up_duration, time_to_decide_all
from merge_bench.tune.result import Result, result_of
from merge_bench.units import plural
from merge_bench.view.next_command import NextStep, can_wait, launchers_of
from merge_bench.view.titles import tunes

_BUDGET = "10m"
_MOST_MORE = 40  # launches of each config
_OFTEN = 0.1  # of a tuning's launches: then noise of a busy host may be why nothing was decided
_RUN = {option.key for option in OPTIONS} - {"json", "dry_run", "details", "write_result"}
_TUNE = {option.key for option in TUNE_OPTIONS} & _RUN
_CLUSTER = {option.key for option in CLUSTER_OPTIONS} & _RUN
_QUIETLY = ", on a quiet host"
_WHAT_HELPS = "; docs/slow-merge.md says what helps"
_UNFINISHED = frozenset((INTERRUPTED, "unfinished"))


def after_run(campaign: Campaign, document: RunDocument) -> NextStep | None:
    """After a campaign of one run; of one that was imported, and cannot be repeated from here, its report."""
    given = _given_to_run(campaign)
    if given is None:
        return _report(campaign)
    if document.error is not None:
        return _after_error(campaign, given, campaign.runs[0], document.error)
    if not document.verified:
        return NextStep((), "measures again and verifies the result", _run(given, verify="ends"))
    bottleneck = document.bottleneck
    if bottleneck is None:
        return _report(campaign)
    crowd, limit = short_of_cores(aggregate.complete_launches(campaign.runs[0])), bottleneck.besides or bottleneck.what
    if limit in ("slow-link", "straggler"):
        return NextStep(("doctor",), "looks for what slows this rank; run it on its host")
    if limit == "overload":
        return _report(campaign, more=_WHAT_HELPS)
    if crowd is not None:
        if crowd.bound or not _one_host(document):
            return None
        return NextStep((), "gives each worker a core", _run(given, workers=str(crowd.fits)))
    if limit == "link":
        return _transports(given)
    if limit != "exchange":
        return _compute(campaign, given, document, limit)
    if any(warning.code == FEW_ROW_GROUPS for warning in document.warnings):
        return _report(campaign, more=_WHAT_HELPS)  # workers without rows wait for the others, whatever the settings
    if not all(kind.owns_processes for kind in launchers_of(campaign)):
        return _report(campaign, more=_WHAT_HELPS)  # tuning changes settings that a running cluster has already read
    baseline = [str(given[key]) for key in ("config", "configs") if key in given][:1]
    options = {"budget": _BUDGET, **_with_rows(_only(given, _TUNE), campaign)}
    return NextStep(("tune", *baseline), "looks for settings that make it faster", options)


def _compute(campaign: Campaign, given: GivenOptions, document: RunDocument, limit: str) -> NextStep:
    """What helps a merge that its cores or its memory limit: tuning changes settings of the exchange only.

    The engine of ``auto`` where another one was used, except at the rate of memory; on one host else the report, which
    draws where the time goes; on several a forecast.
    """
    plan = campaign.runs[0].plan
    used = next((engine for engine in engines.descriptions() if engine.name == plan.engine), None)
    usual = engines.first_engine(device_memory=False, dask=not recorded_plane(plan.exchange).by_workers)
    if used is not None and not used.device_memory and used != usual and limit != "memory":
        return NextStep((), f"measures the same with the engine {usual.name}", _run(given, engine=usual.name))
    if _one_host(document):
        return _report(campaign, more=_WHAT_HELPS)
    try:
        gather([campaign], None)
    except MergeBenchError:
        return _report(campaign, more=_WHAT_HELPS)
    workers = document.bandwidth_bytes_per_second.per_worker
    hosts = len({worker.host for worker in workers})
    size: GivenOptions = {"workers": str(2 * len(workers)), "hosts": str(2 * hosts)}
    return NextStep(("predict", str(campaign.folder)), "forecasts it on twice as many hosts", size)


def after_sweep(
    campaign: Campaign, documents: Sequence[RunDocument], comparisons: Sequence[Comparison]
) -> NextStep | None:
    """After a campaign of several runs, whose `documents` are in the order of the campaign's runs."""
    given = _given_to_run(campaign)
    if given is None:
        return None
    failed = [(run, one.error) for run, one in zip(campaign.runs, documents, strict=True) if one.error is not None]
    if failed:
        return _after_error(campaign, given, *min(failed, key=lambda each: _severity(each[1].code)))
    needed = [each.more_launches or 0 for each in comparisons]
    more = max((each for each in needed if each <= _MOST_MORE), default=0)  # of more than that, noise hides it
    if more:
        blocks = str(more + max(each.launches for each in comparisons))
        if campaign.of_a_job:  # no job may name a result to add to
            return NextStep((), "measures anew, as often as a verdict needs", _run(given, launches=blocks))
        added = _run(given, launches=blocks, extend=str(campaign.folder))
        return NextStep((), f"adds {plural(more, 'block')}, as many as a verdict needs", added)
    return _report(campaign)


def after_compare(campaigns: Sequence[Campaign]) -> NextStep:
    """After a comparison: all campaigns on one page."""
    return _report(*campaigns)


def after_tuning(campaign: Campaign, result: Result, *, written: Path | None, enough: float | None) -> NextStep:
    """After a tuning, which another one with other limits does not resume.

    `written`: the config that was found; `enough`: seconds in which everything can be tried and judged, if known.
    """
    given, tuning = _given(campaign), campaign.plans[0].tune
    budget = _budget_for_all(campaign, result, enough)
    if written is not None:
        note = f"With --budget {budget} all candidates have all their blocks, and one a confirmation." if budget else ""
        return replace(_after_winner(campaign, result, written, given), note=note)
    if tuning is None:
        return _report(campaign)
    launches, seconds = (*tuning.budget, None, None)[:2]
    limited = result.stopped is not None or bool(result.absent)
    unjudged = [line.config for line in result.open_in_confirmation]
    inconclusive = bool(unjudged)
    busy, waits = _was_busy(campaign), can_wait(campaign) and "wait_for_quiet" not in given
    changed, does = {}, "searches anew, with time for what was not tried or not decided"
    open_one = result.unconfirmed or next(iter(unjudged), None)
    alone = next((line.settings for line in campaign.added if line.config.name == open_one), [])
    if alone and not result.doubtful and "only" not in given:
        limits = {"most_blocks": tuning.blocks, "confirm": tuning.confirm} if inconclusive else {}
        more = {name: str(2 * blocks) for name, blocks in limits.items() if blocks is not None}
        does = f"tests {open_one} alone{', with more blocks' if more else ''}{_QUIETLY if busy else ''}"
        more |= {"wait_for_quiet": "5m"} if busy and waits else {}
        others = f"; or all candidates, without --only and with --budget {budget}" if budget else ""
        return _tune(given, does + others, only=",".join(alone), **more)
    unsure = result.undecided or result.no_gain_seen or inconclusive or not result.screened
    quiet = result.doubtful or (busy and bool(unsure))
    if quiet and waits:
        changed["wait_for_quiet"], does = "5m", "searches anew"
    elif (result.undecided or inconclusive) and not limited:
        name, blocks = ("confirm", tuning.confirm) if inconclusive else ("most_blocks", tuning.blocks)
        changed |= {} if blocks is None else {name: str(2 * blocks)}
        does = "searches anew, with more blocks"
    if launches is not None and (limited or changed):
        changed["max_launches"] = f"{2 * launches:.0f}"
    if seconds is not None and (limited or changed):
        changed["budget"] = round_up_duration(
            2 * seconds if quiet and waits and not result.untried else max(2 * seconds, enough or 0.0)
        )
    if changed:
        return _tune(given, does + (_QUIETLY if quiet else ""), **changed)
    others = "Other candidates were not tried, because of --only." if "only" in given else ""
    return replace(_report(campaign), note=others)


def _after_winner(campaign: Campaign, result: Result, written: Path, given: GivenOptions) -> NextStep:
    """A merge with the config that was found, or a comparison at the sizes that the budget had no time for."""
    same = _with_rows(_only(given, _TUNE - {"fresh"}), campaign)
    missing = [campaign.plans[plan].rows_per_chunk for plan in result.sizes_left_out]
    if not missing or None in missing:
        return NextStep((), "merges with the config that was found", {"config": str(written), **same})
    baseline = campaign.head.configs[0].path or f"{campaign.head.configs[0].name}.cfg"
    both = {"configs": f"{baseline},{written}", "blocks": "6"}
    options = {**both, **_only(same, _RUN - {"chunk"}), "chunk": ",".join(map(str, missing))}
    return NextStep((), "compares both where the budget had no time to", options)


def _budget_for_all(campaign: Campaign, result: Result, enough: float | None) -> str:
    """The budget that would decide more, where something is open; `enough`: as in `after_tuning`."""
    tuning = campaign.plans[0].tune
    seconds = (*tuning.budget, None, None)[1] if tuning is not None else None
    open_still = ((result.undecided or result.no_gain_seen) and result.stopped) or result.left_out or result.unconfirmed
    if tuning is None or enough is None or seconds is None or enough <= seconds or not open_still:
        return ""
    return round_up_duration(enough)


def after_recorded_tuning(campaign: Campaign) -> NextStep:
    """The same from the records alone: of one that was interrupted, the command that resumes it."""
    given, result = _given(campaign), result_of(campaign)
    if campaign.end is None or (campaign.end.status and not result.untried):
        return _tune(given, "continues it, and keeps what was measured")
    hosts = [each.line.workers[0].host for each in campaign.launches if each.line is not None and each.line.workers]
    default = f"tuned-{safe_name(hosts[0].partition('.')[0])}.cfg" if hosts else None
    output, space = given.get("output", default), given.get("space")
    written = Path(str(output)) if result.winner is not None and output is not None else None
    enough = time_to_decide_all(campaign, Path(str(space)) if space else None)
    return after_tuning(campaign, result, written=written, enough=enough)


def _was_busy(campaign: Campaign) -> bool:
    """Whether other processes kept the host busy, so that noise may be why a tuning has no result."""
    warned = any(line.code == BUSY_HOST for line in campaign.warnings)
    return warned or len(busy_indexes(campaign.launches)) >= _OFTEN * len(campaign.launches)


def _severity(code: str) -> int:
    """The lower, the worse: what ended a campaign comes before what is missing because it ended."""
    codes = (WrongResult.code, GateNotMet.code, NothingCompared.code)
    return codes.index(code) if code in codes else len(codes) + (code in _UNFINISHED)


def _after_error(campaign: Campaign, given: GivenOptions, run: Run, error: Failure) -> NextStep | None:
    code = error.code
    if code == UsageError.code:
        return None  # the error names what to change
    again = _only(given, _RUN - {"fresh"})
    if code in _UNFINISHED:
        several = sum(each.planned_launches for each in campaign.runs) > 1
        return NextStep((), "goes on where this was interrupted" if several else "measures again", again)
    if code == WrongResult.code:
        return NextStep((), "compares every row, and names those that are wrong", _run(given, verify="full"))
    if code == NotRecorded.code:
        return NextStep((), "measures again, once the disk has room for the records", again)
    if code in (GateNotMet.code, NothingCompared.code):
        failed = any(
            failure.code == code for run in campaign.runs for each in run.launches for failure in each.failures
        )
        return _transports(given, run) if failed else _after_gate(campaign, given, run, error)
    return NextStep(("doctor",), "looks for problems of this host")


def _after_gate(campaign: Campaign, given: GivenOptions, run: Run, error: Failure) -> NextStep:
    """After a comparison that a gate did not let pass."""
    if error.code == NothingCompared.code:
        options = {**_run(given), "allow_no_baseline": True}
        return NextStep((), "measures again, and passes until there are enough earlier results", options)
    if given.get("against") != HISTORY:
        return _report(campaign)
    does = "shows the level it was held against; if the loss is meant, add --accept REASON"
    return NextStep(("history",), does, {"config": run.config.name, **_only(given, {"results"})})


def _transports(given: GivenOptions, run: Run | None = None) -> NextStep:
    """Of the cluster that was asked for, or of that one of several which `run` had."""
    options = _only(given, _CLUSTER if run is None else _CLUSTER - {"config", "workers"})
    if run is not None:
        named = {"config": run.config.path or run.config.name} if {"config", "configs"} & set(given) else {}
        options |= {**named, "workers": str(run.plan.workers)}
    does = "shows which transports carry the frames, and which could"
    return NextStep(("transports",), does, {"available": True, **options})


def _one_host(document: RunDocument) -> bool:
    return len({worker.host for worker in document.bandwidth_bytes_per_second.per_worker}) == 1


def _report(*campaigns: Campaign, more: str = "") -> NextStep:
    words = ("report", *(str(campaign.folder) for campaign in campaigns))
    return NextStep(words, f"draws everything on one page{more}", reports=True)


def export_command(campaign: Campaign) -> str:
    """The command that writes the timelines of a campaign."""
    return NextStep(("export", str(campaign.folder)), "", {"format": "trace", "output": "trace.json"}).command


def _given(campaign: Campaign) -> GivenOptions:
    """The options that the command had, as they were typed; of older records those of the command line."""
    if campaign.head.options is not None:
        return campaign.head.options
    flags = {option.key for option in OPTIONS if option.flag}
    given: GivenOptions = {}
    words = iter(campaign.head.argv[1:])
    for word in words:
        name, joined, value = word.partition("=")
        key = name.removeprefix("--").replace("-", "_")
        key = BY_KEY[key].key if key in BY_KEY else key
        if word.startswith("--"):
            given[key] = True if key in flags else value if joined else next(words, "")
        elif word not in ("run", "tune"):
            given["config"] = word
    return given


def _given_to_run(campaign: Campaign) -> GivenOptions | None:
    """The options that `run` had; None if it was another command."""
    if campaign.head.imported_from is not None or tunes(campaign) or campaign.probe:
        return None
    given = _given(campaign)
    results = given.get("results")
    if campaign.of_a_job and results and Path(str(results)).resolve() != campaign.folder.parent.resolve():
        return _only(given, set(given) - {"results"})  # the service's own folder
    return given


def _run(given: GivenOptions, **changed: str) -> GivenOptions:
    """The same run with some options changed; no campaign is extended, unless that is among them."""
    excluded = {*changed, "extend"}
    return {**_only(given, _RUN - excluded), **changed}


def _tune(given: GivenOptions, does: str, **changed: str) -> NextStep:
    """The same tuning with some options changed."""
    baseline = [str(given["config"])] if "config" in given else []
    options = {**_only(given, set(given) - {"config", "json", "fresh", *changed}), **changed}
    return NextStep(("tune", *baseline), does, options)


def _with_rows(given: GivenOptions, campaign: Campaign) -> GivenOptions:
    """Options with ``--chunk``: other commands have other sizes by default."""
    rows = [plan.rows_per_chunk for plan in campaign.plans]
    if None in rows or {"chunk", "left", "workload"} & set(given):
        return given
    return {"chunk": ",".join(map(str, rows)), **given}


def _only(given: GivenOptions, keys: Collection[str]) -> GivenOptions:
    return {key: value for key, value in given.items() if key in keys}
