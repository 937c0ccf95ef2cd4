"""The next command worth typing after a run."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from merge_bench.analysis import aggregate
from merge_bench.analysis.compare.fail_on import HISTORY
from merge_bench.analysis.diagnostics import short_of_cores
from merge_bench.analysis.documents.compare import Comparison
from merge_bench.analysis.documents.error import Failure
from merge_bench.analysis.documents.run import RunDocument
from merge_bench.analysis.host_load import BUSY_HOST, busy_host, busy_indexes
from merge_bench.analysis.predict.gather import gather
from merge_bench.cluster.base import LauncherKind
from merge_bench.cluster.launchers import launchers
from merge_bench.config.options import BY_KEY, CLUSTER_OPTIONS, OPTIONS, TUNE_OPTIONS, Option
from merge_bench.errors import GateNotMet, MergeBenchError, NothingCompared, NotRecorded, UsageError, WrongResult
from merge_bench.merge import engines
from merge_bench.merge.exchange import recorded_plane
from merge_bench.merge.workload.tables import FEW_ROW_GROUPS
from merge_bench.records.campaign import INTERRUPTED, JOB, Campaign, Run
from merge_bench.records.writer import safe_name
from merge_bench.tune.budget import round_up_duration
from merge_bench.tune.result import Result, result_of
from merge_bench.view.report.tuning_time import time_to_decide_all
from merge_bench.view.text import plural
from merge_bench.view.titles import tunes

_PYTHON, _SCRIPT = "python", "merge-bench"
_PROGRAM = f"{_PYTHON} -m merge_bench"
_BUDGET = "10m"
_MOST_MORE = 40  # launches of each config
_OFTEN = 0.1  # of a tuning's launches: then noise of a busy host may be why nothing was decided
_OUTPUT = frozenset(("json", "dry-run", "details", "write-result"))
WHEN_QUIET = "on a quiet host: add --wait-for-quiet 5m"
_QUIETLY = ", on a quiet host"
_WHAT_HELPS = "; docs/slow-merge.md says what helps"
_UNFINISHED = frozenset((INTERRUPTED, "unfinished"))


@dataclass(frozen=True)
class NextStep:
    """A command line, and what it does.

    `reports`: it writes the report, which does not name it itself; `note`: what it leaves open, a sentence.
    """

    command: str
    does: str
    reports: bool = False
    note: str = ""

    def here(self) -> NextStep:
        """The same, beginning as this command was typed."""
        return replace(self, command=_as_typed() + self.command.removeprefix(_PROGRAM))

    def quietly(self, campaign: Campaign) -> str:
        """What to add where this measures, if `campaign` was made on a busy host and did not wait; else empty."""
        words = shlex.split(self.command.removeprefix(_PROGRAM))
        measures = words[:1] == ["tune"] or words[:1] == [] or words[0].startswith("-")
        waits = _given(words, "wait-for-quiet")
        return WHEN_QUIET if measures and not waits and busy_host(campaign) and _can_wait(campaign) else ""

    def after(self, campaign: Campaign) -> NextStep:
        """The same, with where to type it if a service made `campaign`."""
        verb = self.command.removeprefix(f"{_PROGRAM} ").partition(" ")[0]
        if not campaign.of_a_job or self.reports or _given(shlex.split(self.command), "on"):
            return self
        if verb in ("doctor", "transports", "history"):
            return replace(self, does=f"{self.does}; type it on the service's machine")
        if BY_KEY["on"].variable in os.environ:
            return self
        return replace(self, does=f"{self.does}; a service made this result, so add --on with its address")


def typed(step: NextStep | None) -> NextStep | None:
    """`NextStep.here`; None in a job of a service, whose client prints its own."""
    return None if step is None or JOB in os.environ else step.here()


def elsewhere() -> str:
    """What follows the name of a file here, in the output of a job that its client reads on another machine."""
    return ", on the service's machine" if JOB in os.environ else ""


def _as_typed() -> str:
    """``merge-bench``, or a Python with ``-m merge_bench``: by name if that is found, else by its shorter path."""
    script = Path(sys.argv[0])
    if script.name == _SCRIPT:
        found = shutil.which(_SCRIPT)
        by_name = found is not None and script.exists() and Path(found).samefile(script)
        return _SCRIPT if by_name else _short(script)
    typed, own = sys.orig_argv[0], Path(sys.executable)
    found = shutil.which(_PYTHON)
    if found is not None and Path(found).parent.resolve() == own.parent.resolve():
        return _PROGRAM
    python = typed if typed and "/" not in typed and shutil.which(typed) else _short(own)
    return python + _PROGRAM.removeprefix(_PYTHON)


def _short(path: Path) -> str:
    """A path as a word of a command, from the current folder if it lies there."""
    here = Path.cwd()
    inside = path.is_relative_to(here) and len(path.relative_to(here).parts) > 1
    return shlex.quote(str(path.relative_to(here) if inside else path))


def after_run(campaign: Campaign, one: RunDocument) -> NextStep | None:
    """After a campaign of one run; of one that was imported, and cannot be repeated from here, its report."""
    words = _words(campaign)
    if words is None:
        return _report(campaign)
    if one.error is not None:
        return _after_error(campaign, words, campaign.runs[0], one.error)
    if not one.verified:
        return NextStep(_run(words, verify="ends"), "measures again and verifies the result")
    found = one.bottleneck
    if found is None:
        return _report(campaign)
    crowd, limit = short_of_cores(aggregate.counted(campaign.runs[0])), found.besides or found.what
    if limit in ("slow-link", "straggler"):
        return NextStep(_command("doctor"), "looks for what slows this rank; run it on its host")
    if limit == "overload":
        return _report(campaign, _WHAT_HELPS)
    if crowd is not None:
        if crowd.bound or not _one_host(one):
            return None
        return NextStep(_run(words, workers=str(crowd.fits)), "gives each worker a core")
    if limit == "link":
        return _transports(words)
    if limit != "exchange":
        return _compute(campaign, words, one, limit)
    if any(warning.code == FEW_ROW_GROUPS for warning in one.warnings):
        return _report(campaign, _WHAT_HELPS)  # workers without rows wait for the others, whatever the settings
    if not _owns_processes(campaign):
        return _report(campaign, _WHAT_HELPS)  # tuning changes settings that a running cluster has already read
    baseline = (_only(words, [BY_KEY["config"]]) or _only(words, [BY_KEY["configs"]]))[-1:]
    same = _with_rows(_only(words, TUNE_OPTIONS), campaign)
    return NextStep(_command("tune", *baseline, "--budget", _BUDGET, *same), "looks for settings that make it faster")


def _compute(campaign: Campaign, words: Sequence[str], one: RunDocument, limit: str) -> NextStep:
    """What helps a merge that its cores or its memory limit: tuning changes settings of the exchange only.

    The engine of ``auto`` where another one was used, except at the rate of memory; on one host else the report, which
    draws where the time goes; on several a forecast.
    """
    plan = campaign.runs[0].plan
    used = next((engine for engine in engines.descriptions() if engine.name == plan.engine), None)
    usual = engines.first(device_memory=False, dask=not recorded_plane(plan.exchange).by_workers)
    if used is not None and not used.device_memory and used != usual and limit != "memory":
        return NextStep(_run(words, engine=usual.name), f"measures the same with the engine {usual.name}")
    if _one_host(one):
        return _report(campaign, _WHAT_HELPS)
    try:
        gather([campaign], None)
    except MergeBenchError:
        return _report(campaign, _WHAT_HELPS)
    workers = one.bandwidth_bytes_per_second.per_worker
    hosts = len({worker.host for worker in workers})
    size = ("--workers", str(2 * len(workers)), "--hosts", str(2 * hosts))
    return NextStep(_command("predict", str(campaign.folder), *size), "forecasts it on twice as many hosts")


def after_sweep(
    campaign: Campaign, documents: Sequence[RunDocument], comparisons: Sequence[Comparison]
) -> NextStep | None:
    """After a campaign of several runs, whose `documents` are in the order of the campaign's runs."""
    words = _words(campaign)
    if words is None:
        return None
    failed = [(run, one.error) for run, one in zip(campaign.runs, documents, strict=True) if one.error is not None]
    if failed:
        return _after_error(campaign, words, *min(failed, key=lambda each: _severity(each[1].code)))
    needed = [each.more_launches or 0 for each in comparisons]
    more = max((each for each in needed if each <= _MOST_MORE), default=0)  # of more than that, noise hides it
    if more:
        blocks = str(more + max(each.launches for each in comparisons))
        if campaign.of_a_job:  # no job may name a result to add to
            return NextStep(_run(words, blocks=blocks), "measures anew, as often as a verdict needs")
        added = _run(words, blocks=blocks, extend=str(campaign.folder))
        return NextStep(added, f"adds {plural(more, 'block')}, as many as a verdict needs")
    return _report(campaign)


def after_compare(campaigns: Sequence[Campaign]) -> NextStep:
    """After a comparison: all campaigns on one page."""
    return NextStep(
        _command("report", *(str(campaign.folder) for campaign in campaigns)), "draws everything on one page", True
    )


def after_tuning(campaign: Campaign, result: Result, *, written: Path | None, enough: float | None) -> NextStep:
    """After a tuning, which another one with other limits does not resume.

    `written`: the config that was found; `enough`: seconds in which everything can be tried and judged, if known.
    """
    words, asked = campaign.head.argv[1:], campaign.plans[0].tune
    words = words[1:] if words[:1] == ["tune"] else words
    budget = _budget_for_all(campaign, result, enough)
    if written is not None:
        note = f"With --budget {budget} all candidates have all their blocks, and one a confirmation." if budget else ""
        same = _with_rows(_only(words, [option for option in TUNE_OPTIONS if option.key != "fresh"]), campaign)
        missing = [campaign.plans[plan].rows_per_chunk for plan in result.sizes_left_out]
        if not missing or None in missing:
            merge = _command("--config", str(written), *same)
            return NextStep(merge, "merges with the config that was found", note=note)
        baseline = campaign.head.configs[0].path or f"{campaign.head.configs[0].name}.cfg"
        both, rows = f"{baseline},{written}", ",".join(map(str, missing))
        rest = _replaced(_only(same, [option for option in OPTIONS if option.key != "config"]), {"chunk": rows})
        compared = _command("--configs", both, "--blocks", "6", *rest)
        return NextStep(compared, "compares both where the budget had no time to", note=note)
    if asked is None:
        return _report(campaign)
    launches, seconds = (*asked.budget, None, None)[:2]
    limited = result.stopped is not None or bool(result.absent)
    unjudged = [line.config for line in result.open_in_confirmation]
    inconclusive = bool(unjudged)
    busy, waits = _was_busy(campaign), _can_wait(campaign) and not _given(words, "wait-for-quiet")
    changed, does = {}, "searches anew, with time for what was not tried or not decided"
    open_one = result.unconfirmed or next(iter(unjudged), None)
    alone = next((line.settings for line in campaign.added if line.config.name == open_one), [])
    if alone and not result.doubtful and not _given(words, "only"):
        limits = {"most-blocks": asked.blocks, "confirm": asked.confirm} if inconclusive else {}
        more = {name: str(2 * blocks) for name, blocks in limits.items() if blocks is not None}
        does = f"tests {open_one} alone{', with more blocks' if more else ''}"
        more |= {"wait-for-quiet": "5m"} if busy and waits else {}
        words = _replaced(words, {"only": ",".join(alone), **more})
        others = f"; or all candidates, without --only and with --budget {budget}" if budget else ""
        return NextStep(_command("tune", *words), does + _QUIETLY * busy + others)
    unsure = result.undecided or result.no_gain_seen or inconclusive or not result.screened
    quiet = result.doubtful or (busy and bool(unsure))
    if quiet and waits:
        changed["wait-for-quiet"], does = "5m", "searches anew"
    elif (result.undecided or inconclusive) and not limited:
        name, blocks = ("confirm", asked.confirm) if inconclusive else ("most-blocks", asked.blocks)
        changed |= {} if blocks is None else {name: str(2 * blocks)}
        does = "searches anew, with more blocks"
    if launches is not None and (limited or changed):
        changed["max-launches"] = f"{2 * launches:.0f}"
    if seconds is not None and (limited or changed):
        changed["budget"] = round_up_duration(
            2 * seconds if quiet and waits and not result.untried else max(2 * seconds, enough or 0.0)
        )
    if changed:
        return NextStep(_command("tune", *_replaced(words, changed)), does + _QUIETLY * quiet)
    others = "Other candidates were not tried, because of --only." if _given(words, "only") else ""
    return replace(_report(campaign), note=others)


def _budget_for_all(campaign: Campaign, result: Result, enough: float | None) -> str:
    """The budget that would decide more, where something is open; `enough`: as in `after_tuning`."""
    asked = campaign.plans[0].tune
    seconds = (*asked.budget, None, None)[1] if asked is not None else None
    open_still = ((result.undecided or result.no_gain_seen) and result.stopped) or result.left_out or result.unconfirmed
    if asked is None or enough is None or seconds is None or enough <= seconds or not open_still:
        return ""
    return round_up_duration(enough)


def after_recorded_tuning(campaign: Campaign) -> NextStep:
    """The same from the records alone: of one that was interrupted, the command that resumes it."""
    words = campaign.head.argv[1:]
    result = result_of(campaign)
    if campaign.end is None or (campaign.end.status and not result.untried):
        return NextStep(_command(*_replaced(words, {})), "continues it, and keeps what was measured")
    hosts = [each.line.workers[0].host for each in campaign.launches if each.line is not None and each.line.workers]
    default = f"tuned-{safe_name(hosts[0].partition('.')[0])}.cfg" if hosts else None
    given = _value(words, "output") or default
    written = Path(given) if result.winner is not None and given is not None else None
    space = _value(words, "space")
    return after_tuning(
        campaign, result, written=written, enough=time_to_decide_all(campaign, Path(space) if space else None)
    )


def _was_busy(campaign: Campaign) -> bool:
    """Whether other processes kept the host busy, so that noise may be why a tuning has no result."""
    warned = any(line.code == BUSY_HOST for line in campaign.warnings)
    return warned or len(busy_indexes(campaign.launches)) >= _OFTEN * len(campaign.launches)


def _severity(code: str) -> int:
    """The lower, the worse: what ended a campaign comes before what is missing because it ended."""
    known = (WrongResult.code, GateNotMet.code, NothingCompared.code)
    return known.index(code) if code in known else len(known) + (code in _UNFINISHED)


def _after_error(campaign: Campaign, words: Sequence[str], run: Run, error: Failure) -> NextStep | None:
    code = error.code
    if code == UsageError.code:
        return None  # the error names what to change
    if code in _UNFINISHED:
        again = _only(words, [option for option in OPTIONS if option.key != "fresh"])
        several = sum(each.planned_launches for each in campaign.runs) > 1
        return NextStep(_command(*again), "goes on where this was interrupted" if several else "measures again")
    if code == WrongResult.code:
        return NextStep(_run(words, verify="full"), "compares every row, and names those that are wrong")
    if code == NotRecorded.code:
        again = _only(words, [option for option in OPTIONS if option.key != "fresh"])
        return NextStep(_command(*again), "measures again, once the disk has room for the records")
    if code in (GateNotMet.code, NothingCompared.code):
        failed = any(
            failure.code == code for run in campaign.runs for each in run.launches for failure in each.failures
        )
        return _transports(words, run) if failed else _after_gate(campaign, words, run, error)
    return NextStep(_command("doctor"), "looks for problems of this host")


def _after_gate(campaign: Campaign, words: Sequence[str], run: Run, error: Failure) -> NextStep:
    """After a comparison that a gate did not let pass."""
    if error.code == NothingCompared.code:
        command = f"{_run(words)} --allow-no-baseline"
        return NextStep(command, "measures again, and passes until there are enough earlier results")
    if _value(words, "against") != HISTORY:
        return _report(campaign)
    same = ["--results", str(_value(words, "results"))] if _given(words, "results") else []
    shown = _command("history", "--config", run.config.name, *same)
    return NextStep(shown, "shows the level it was held against; if the loss is meant, add --accept REASON")


def _transports(words: Sequence[str], run: Run | None = None) -> NextStep:
    """Of the cluster of `words`, or of that one of theirs which `run` had."""
    own = ("config", "workers") if run is not None else ()
    same = _only(words, [option for option in CLUSTER_OPTIONS if option.key not in own])
    if run is not None:
        config = run.config.path or run.config.name
        named = "configs" in _keys(words) or "config" in _keys(words)
        same += [*(["--config", config] if named else []), "--workers", str(run.plan.workers)]
    return NextStep(
        _command("transports", "--available", *same), "shows which transports carry the frames, and which could"
    )


def _owns_processes(campaign: Campaign) -> bool:
    return all(kind.owns_processes for kind in _launchers(campaign))


def _can_wait(campaign: Campaign) -> bool:
    return all(kind.starts_here for kind in _launchers(campaign))


def _launchers(campaign: Campaign) -> list[LauncherKind]:
    names = {launch.line.cluster.launcher for launch in campaign.launches if launch.line is not None}
    return [launchers()[name] for name in names & set(launchers())]


def _one_host(one: RunDocument) -> bool:
    return len({worker.host for worker in one.bandwidth_bytes_per_second.per_worker}) == 1


def _report(campaign: Campaign, more: str = "") -> NextStep:
    return NextStep(_command("report", str(campaign.folder)), "draws everything on one page" + more, True)


def export_command(campaign: Campaign) -> str:
    """The command that writes the timelines of a campaign."""
    return _command("export", str(campaign.folder), "--format", "trace", "--output", "trace.json")


def _words(campaign: Campaign) -> list[str] | None:
    """The options that `run` was given, as words."""
    if campaign.head.imported_from is not None or tunes(campaign) or campaign.probe:
        return None
    words = campaign.head.argv[1:]
    words = words[1:] if words[:1] == ["run"] else words
    results = _value(words, "results")
    if campaign.of_a_job and results and Path(results).resolve() != campaign.folder.parent.resolve():
        words = _replaced(words, {"results": ""})[:-2]  # the service's own folder
    return words


def _run(words: Sequence[str], **changed: str) -> str:
    """The same run with some options changed; no campaign is extended, unless that is among them."""
    instead = {*changed, "extend", *(["launches"] if "blocks" in changed else [])}  # blocks exclude launches
    kept = _only(words, [option for option in OPTIONS if option.key not in instead])
    return _command(*kept, *(word for key, value in changed.items() for word in (f"--{BY_KEY[key].name}", value)))


def _with_rows(words: Sequence[str], campaign: Campaign) -> list[str]:
    """Options with ``--chunk``: other commands have other sizes by default."""
    rows = [plan.rows_per_chunk for plan in campaign.plans]
    if None in rows or {"--chunk", "--left", "--workload"} & set(words):
        return list(words)
    return ["--chunk", ",".join(map(str, rows)), *words]


def _given(words: Sequence[str], name: str) -> bool:
    return any(word.partition("=")[0] == f"--{name}" for word in words)


def _value(words: Sequence[str], name: str) -> str | None:
    """The value of an option in a command line."""
    found = None
    for at, word in enumerate(words):
        option, joined, value = word.partition("=")
        if option == f"--{name}":
            found = value if joined else next(iter(words[at + 1 :]), None)
    return found


def _replaced(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """A command line with other values of some options, without options of its output."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        name, joined, _ = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in values:
            if not joined:
                next(rest, "")
        elif word not in ("--json", "--fresh"):
            kept.append(word)
    return [*kept, *(word for name, value in values.items() for word in (f"--{name}", value))]


def _command(*words: str) -> str:
    return shlex.join([_PYTHON, "-m", "merge_bench", *words])


def _keys(words: Sequence[str]) -> set[str]:
    """The options that a command line has."""
    return {option.key for option in OPTIONS if _only(words, [option])}


def _only(words: Sequence[str], options: Sequence[Option]) -> list[str]:
    """Of a command line, these options with their values; a config without its option gets it."""
    known = {f"--{option.name}": option for option in OPTIONS}
    names = {option.name for option in options}
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        name, joined, value = word.partition("=")
        option = known.get(name)
        if option is None:
            kept += ["--config", word] if "config" in names and not word.startswith("-") else []
            continue
        values = [] if option.flag else [value if joined else next(rest, "")]
        if option.name in names - _OUTPUT:
            kept += [name, *values]
    return kept
