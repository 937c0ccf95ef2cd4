"""Which runs are compared with which: within one campaign by config, between campaigns by problem and config.

The settings and the machine of a run, and the differences of two runs, say whether the two can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from merge_bench.analysis.aggregate import VerificationState, complete_launches, verification_state
from merge_bench.config.options import RunOptions
from merge_bench.config.ucx_choice import CHOOSING_UCX
from merge_bench.errors import UsageError, WrongResult
from merge_bench.records.campaign import INTERRUPTED, JOB, WAYS, Campaign, Run, label_runs
from merge_bench.records.recorded_plan import CommandPlan, RecordedTable
from merge_bench.records.schema import Worker

_V = TypeVar("_V")
Properties = Mapping[str, Mapping[str, str]]
"""The properties of a run: kind → name → value as text. A kind of which nothing was recorded is missing."""

CONFIG, UCX_SETTING, UCX = "config", "UCX setting", "UCX"
PROBLEM, OPTION, MACHINE, PACKAGE, PROGRAM = "problem", "option", "machine", "package", "program"
ENVIRONMENT = "environment"

_PATH, _CONTENT = " path", " content"  # of a table; content: the fingerprint

SIZE = ("rows_per_chunk", "workers")
"""The options that every problem has."""

_NO_PROBLEM = frozenset(("seed", "rows", "warnings"))  # rows: those of a chunk, on all workers
_NO_OPTIONS = {*SIZE, "ucx", "how", "workload", "hosts", "launches", "timeout", "distribution_reason", "write_result"}
_BEFORE = {
    **RunOptions().worker_option_values(),
    "distribution": "shuffle",
    "pipeline": False,
    "stores": "plain",
    "runtime_filter": False,
    "timeline": "auto",
}
"""The value of options that older plans do not have."""
PARTITION_WRITES = "partition writes"
"""The name in tables for the recorded option ``stores``."""
PARTITION_WRITE_NAMES = {"lines": "streaming"}
"""The values of ``--partition-writes`` that have another name in records."""
_CHANGING = frozenset(("available_bytes", "interfaces"))
OF_A_PROCESS = ("MERGE_BENCH_PARENT", JOB, "UCX_DYNAMIC_TL_PROGRESS_FACTOR")
"""Variables of a single process, no settings: its parent, the service's job, and what UCX measures at its start."""

MUST_AGREE = (
    (PROBLEM, None),
    *((MACHINE, name) for name in ("hosts", "cpu_model", "cpu_id", "gpus")),
)
"""Kinds, and names in them (None: all), that must be the same in runs that are compared..."""

MUST_AGREE_APART = ((OPTION, "engine"), (OPTION, "exchange"), (UCX, "version"))
"""...and these too, if the two are of different campaigns."""


@dataclass(frozen=True)
class RunDifference:
    """A property in which two runs differ, with the value of each; ``None``: that run lacks the property."""

    kind: str
    name: str
    baseline_value: str | None
    candidate_value: str | None


def run_properties(campaign: Campaign, run: Run) -> Properties:
    """The properties of `run` that may explain a difference from another run, by kind and name.

    Values that vary within the run are joined by `` / ``.
    """
    lines = [launch.line for launch in run.launches if launch.line is not None]
    workers = [worker for line in lines for worker in line.workers]
    properties: dict[str, dict[str, str]] = {
        CONFIG: dict(run.config.variables),
        UCX_SETTING: join_values_by_name(worker.ucx.config for worker in workers),
        UCX: join_values_by_name({"version": worker.ucx.version, "origin": worker.ucx.origin} for worker in workers),
        PROBLEM: problem_definition_texts(run),
        OPTION: _command_options(run, run.plan.command) if run.plan.command is not None else _merge_options(run),
        MACHINE: _machine_properties(workers),
        PACKAGE: join_values_by_name(worker.versions for worker in workers),
        ENVIRONMENT: join_values_by_name(worker.environment for worker in workers),
        PROGRAM: _program_properties(campaign),
    }
    for name in OF_A_PROCESS:
        properties[ENVIRONMENT].pop(name, None)
        properties[UCX_SETTING].pop(name, None)
    if run.plan.ucx is not None:
        for name in CHOOSING_UCX:  # the properties of UCX say which one that is
            properties[ENVIRONMENT].pop(name, None)
    return {kind: values for kind, values in properties.items() if values or kind in (CONFIG, OPTION)}


def problem_definition_texts(run: Run) -> dict[str, str]:
    """The problem of a run as text by name: the tables, their join and the number of workers, or the command.

    The seed of synthetic tables is no part of the problem.
    """
    return {name: format_property_value(value) for name, value in problem_definition(run).items()}


def problem_definition(run: Run) -> dict[str, object]:
    """The problem of a run, by name of the value: the tables, their join and the number of workers, or the command."""
    plan = run.plan
    if plan.command is not None:
        return _command_problem_definition(plan.command)
    values: dict[str, object] = {name: getattr(plan, name) for name in SIZE}
    if plan.workload is not None:
        of_workload = msgspec.structs.asdict(plan.workload).items()
        values |= {f"workload {name}": value for name, value in of_workload if name not in _NO_PROBLEM}
    if plan.how not in (None, "inner"):
        values |= {"how": plan.how}
    for name, text in run.unreadable_options.items():
        if _defines_merge_problem(name):
            values["workload name" if name == "workload" else name] = f"unreadable: {text}"
    for name in [name for name, value in values.items() if isinstance(value, RecordedTable)]:
        values |= _table_identity(name, values[name])
    return {name: value for name, value in values.items() if value is not None}


def _command_problem_definition(command: CommandPlan) -> dict[str, object]:
    """The problem of a command: its command line, its metrics in the order of their names, and its checks."""
    metrics = (f"{each.name} ({', '.join(filter(None, (each.unit, each.better)))})" for each in command.metrics)
    return {"command": command.shell_line, "metrics": sorted(metrics), "checks": list(command.checks)}


_COMMAND_PROBLEM = frozenset(("argv", "metrics", "checks"))


def _command_options(run: Run, command: CommandPlan) -> dict[str, str]:
    """The options of a command besides its problem, as text by name: expected status, timeout, sources of metrics, …"""
    own = {name: value for name, value in msgspec.structs.asdict(command).items() if name not in _COMMAND_PROBLEM}
    metric_definitions = {
        f"metric {each.name}": f"{each.source}, {each.pick}" for each in command.metrics if each.source
    }
    others = {name: value for name, value in run.options.items() if name not in {*_NO_OPTIONS, "command"}}
    return {name: format_property_value(value) for name, value in {**own, **metric_definitions, **others}.items()}


def _merge_options(run: Run) -> dict[str, str]:
    """The options of a merge besides its problem, as text by name."""
    options = {**_BEFORE, **run.options}
    texts = {name: format_property_value(value) for name, value in options.items() if name not in _NO_OPTIONS}
    way = texts.pop("stores")
    return texts | {PARTITION_WRITES: PARTITION_WRITE_NAMES.get(way, way)}


def _defines_merge_problem(option_name: str) -> bool:
    """Whether an option, such as ``workload left rows``, is part of the problem of a merge."""
    match option_name.split():
        case ["workload", field]:
            return field not in _NO_PROBLEM
        case ["workload", _, field]:
            return field in ("path", "rows", "columns", "fingerprint")  # as in `_table_identity`
    return option_name in (*SIZE, "how", "workload")


def property_differences(baseline: Properties, candidate: Properties) -> tuple[RunDifference, ...]:
    """The properties in which two runs differ; kinds of properties that only one run recorded are left out.

    A name with the same two values is in it once, even if several kinds have it.
    """
    different: dict[tuple[str, str | None, str | None], RunDifference] = {}
    other_release = len({each.get(UCX, {}).get("version") for each in (baseline, candidate)}) > 1
    for kind in (kind for kind in baseline if kind in candidate):
        before, after = baseline[kind], candidate[kind]
        if kind == PROBLEM:
            before, after = distinguishing_values(before, after), distinguishing_values(after, before)
        elif kind == UCX_SETTING and other_release:  # which has other settings, too
            before, after = _values_with_shared_names(before, after), _values_with_shared_names(after, before)
        for name in sorted({*before, *after}):
            old, new = before.get(name), after.get(name)
            if old != new:
                different.setdefault((name, old, new), RunDifference(kind, name, old, new))
    return tuple(different.values())


def _values_with_shared_names(values: Mapping[str, str], other_values: Mapping[str, str]) -> dict[str, str]:
    """The `values` whose names are also in `other_values`."""
    return {name: value for name, value in values.items() if name in other_values}


def have_same_problem(run: Run, other_run: Run) -> bool:
    """Whether two runs have the same problem, equal tables or the same command, as far as the records of both say."""
    old, new = problem_definition_texts(run), problem_definition_texts(other_run)
    old, new = distinguishing_values(old, new), distinguishing_values(new, old)
    return all(old[name] == new[name] for name in old.keys() & new.keys())


def join_values_by_name(mappings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The values of several mappings by name, as text; different values of one name are joined by `` / ``."""
    values: dict[str, dict[str, None]] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            if value is not None:
                values.setdefault(name, {})[format_property_value(value)] = None
    return {name: " / ".join(sorted(each)) for name, each in values.items()}


def _machine_properties(workers: Sequence[Worker]) -> dict[str, str]:
    plain = (msgspec.to_builtins(worker.hardware) for worker in workers)
    properties = join_values_by_name(
        {name: value for name, value in each.items() if name not in _CHANGING} for each in plain
    )
    properties |= join_values_by_name(
        {f"{PARTITION_WRITES} in use": PARTITION_WRITE_NAMES.get(worker.stores.way, worker.stores.way)}
        for worker in workers
        if worker.stores is not None
    )
    hosts = ", ".join(sorted({worker.host for worker in workers}))
    return properties | ({"hosts": hosts} if hosts else {})


def _program_properties(campaign: Campaign) -> dict[str, str]:
    if campaign.head.imported_from is not None:  # the commit is that of the import
        return {}
    git = campaign.head.git
    commit = ((git and git.commit) or "")[:12]
    changed = ", with local changes" if git and git.dirty else ""
    return {"merge_bench": campaign.head.version} | ({"commit": commit + changed} if commit else {})


def _table_identity(table_name: str, table: Any) -> dict[str, object]:
    """The values that identify a table of files: rows and columns, path, fingerprint."""
    columns = ", ".join(column.name for column in table.columns)
    return {
        table_name: f"{format_property_value(table.rows)} rows of {columns}",
        table_name + _PATH: format_property_value(table.path),
        table_name + _CONTENT: table.fingerprint,
    }


def distinguishing_values(values: Mapping[str, _V], other_values: Mapping[str, object]) -> dict[str, _V]:
    """The `values` of a merge problem that can distinguish it from the problem with `other_values`.

    Tables are compared by the fingerprint of their content, and by their paths only if one result has no fingerprint.
    """
    both = {name.removesuffix(_CONTENT) for name in values.keys() & other_values.keys() if name.endswith(_CONTENT)}
    return {
        name: value
        for name, value in values.items()
        if not name.endswith((_PATH, _CONTENT)) or name.endswith(_CONTENT) == (name.rpartition(" ")[0] in both)
    }


def format_property_value(value: object) -> str:
    """A value of a plan or of a machine as text: ``yes``, ``none``, ``1,000``, ``a, b``."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(format_property_value, value)) or "none"
    return str(value)


class NothingToCompare(UsageError):
    """Raised if nothing can be compared: no other run, none with a complete launch, or none that is comparable."""


class NotComparable(NothingToCompare):
    """Raised if runs differ in problem or machine; `compare --anyway` compares them nevertheless."""


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A run to compare, with its campaign and its properties.

    `label`: the name of its config, after the letter of its result if there are several results.
    """

    campaign: Campaign
    run: Run
    label: str
    properties: Properties

    @property
    def measures_command(self) -> bool:
        """Whether the run measured a command instead of a merge."""
        return self.run.plan.command is not None

    @property
    def result_noun(self) -> str:
        """The noun for the checked result in sentences: ``merge result``, or for a command ``result``."""
        return "result" if self.measures_command else "merge result"

    @property
    def has_complete_launch(self) -> bool:
        """Whether the run has a complete launch."""
        return any(launch.complete and launch.timed_iterations for launch in self.run.launches)

    @cached_property
    def failed_launch_count(self) -> int:
        """The number of failed launches of the run."""
        return sum(launch.failed for launch in self.run.launches)

    @cached_property
    def is_verified(self) -> bool:
        """Whether every check that the plan asks for was made, and found the result right."""
        return verification_state(self.run, complete_launches(self.run)) is VerificationState.VERIFIED

    @cached_property
    def has_wrong_result(self) -> bool:
        """Whether a check found the result wrong in any launch."""
        codes = {failure.code for launch in self.run.launches for failure in launch.failures}
        return (
            verification_state(self.run, complete_launches(self.run)) is VerificationState.WRONG
            or WrongResult.code in codes
        )


@dataclass(frozen=True, eq=False)
class RunPair:
    """A candidate and the baseline that it is compared with."""

    baseline: ComparedRun
    candidate: ComparedRun

    @property
    def is_within_one_campaign(self) -> bool:
        """Whether both runs are of one campaign, so that their launches were interleaved."""
        return self.baseline.campaign is self.candidate.campaign

    @property
    def is_aa_comparison(self) -> bool:
        """Whether this is an A/A comparison: two runs of one campaign that differ only in the config's name."""
        old, new = self.baseline.run, self.candidate.run
        return (
            self.is_within_one_campaign and old.config.variables == new.config.variables and old.options == new.options
        )

    @cached_property
    def disqualifying_differences(self) -> tuple[RunDifference, ...]:
        """The differences of the runs in problem, machine, … that make a ratio of their figures meaningless."""
        rules = MUST_AGREE if self.is_within_one_campaign else (*MUST_AGREE, *MUST_AGREE_APART)
        return tuple(
            each
            for each in property_differences(self.baseline.properties, self.candidate.properties)
            if None not in (each.baseline_value, each.candidate_value)
            and any(each.kind == kind and name in (None, each.name) for kind, name in rules)
        )


@dataclass(frozen=True)
class RunPairSelection:
    """The pairs of runs to compare, and sentences about runs that were left out, and why."""

    pairs: tuple[RunPair, ...]
    notes: tuple[str, ...]


def select_run_pairs(campaigns: Sequence[Campaign], *, allow_incomparable: bool) -> RunPairSelection:
    """Pair every run of the campaigns with its baseline; returns the pairs and notes about the runs left out.

    Baselines have the same problem. Of one campaign they are the runs of its first config; of several campaigns the
    runs of the first one, with the same config or else with the first config. `allow_incomparable`: pair runs that are
    not comparable, too.

    Raises NothingToCompare if there is nothing to compare, or runs are not comparable without `allow_incomparable`;
    the message says why; UsageError if a result contains neither merges nor a command, or is named twice; WrongResult
    if the result was wrong in a baseline.
    """
    _refuse_incomparable_campaigns(campaigns)
    sources = _compared_runs_by_campaign(campaigns)
    notes: list[str] = []
    pairs = (
        _run_pairs_within_campaign(sources[0], notes)
        if len(sources) == 1
        else _run_pairs_between_campaigns(sources[0], sources[1:], notes)
    )
    usable = [pair for pair in pairs if _can_be_compared(pair, notes)]
    if not usable:
        raise NothingToCompare("; ".join(dict.fromkeys(notes)))
    apart = {
        pair: ", ".join(map(_difference_text, pair.disqualifying_differences))
        for pair in usable
        if pair.disqualifying_differences
    }
    differ = (f"{pair.baseline.label} and {pair.candidate.label} differ in {text}" for pair, text in apart.items())
    reasons = list(dict.fromkeys(differ))
    if reasons and not allow_incomparable:
        names = {(each.kind, each.name) for pair in apart for each in pair.disqualifying_differences}
        reasons += [
            f"to compare {_one_campaign_advice(kind, name)} A,B"
            for kind, name in MUST_AGREE_APART
            if (kind, name) in names
        ]
        raise NotComparable(f"not comparable: {'; '.join(reasons)}")
    notes += [f"compared despite this difference: {reason}" for reason in reasons]
    for source in dict.fromkeys(source for pair in usable for source in (pair.baseline, pair.candidate)):
        notes += _missing_records_notes(source, single_campaign=len(campaigns) == 1)
    for campaign in campaigns:
        if nameless := [each for each in campaign.unattributed_failures if each.code != INTERRUPTED]:
            notes.append(f"{campaign.folder}: {len(nameless)} failures belong to no known launch")
    return RunPairSelection(tuple(usable), tuple(dict.fromkeys(notes)))


def _one_campaign_advice(property_kind: str, property_name: str) -> str:
    """Advice for a property that only the runs of one campaign can differ in: ``engines, run one campaign with …``."""
    things, option = ("releases of UCX", "ucx") if property_kind == UCX else (f"{property_name}s", property_name)
    return f"{things}, run one campaign with all of them, such as --{option}"


def planned_run_pairs(campaign: Campaign) -> list[RunPair]:
    """The pairs of runs that a campaign is to compare, with or without launches; [] if no two are comparable."""
    try:
        return _run_pairs_within_campaign(_compared_runs_by_campaign([campaign])[0], [])
    except NothingToCompare:
        return []


def _refuse_incomparable_campaigns(campaigns: Sequence[Campaign]) -> None:
    for index, campaign in enumerate(campaigns):
        if campaign.probe:
            raise UsageError(f"{campaign.folder} contains no merges, only the network measurement {campaign.probe}")
        if any(campaign.records.samefile(other.records) for other in campaigns[:index]):
            raise UsageError(f"{campaign.folder} is named twice; name two different results")
    commands = [campaign.command is not None for campaign in campaigns]
    if any(commands) and not all(commands):
        merge, command = campaigns[commands.index(False)].folder, campaigns[commands.index(True)].folder
        raise NothingToCompare(f"{merge} contains merges and {command} runs of a command, which have no common metric")
    if len(campaigns) == 1 and len(campaigns[0].runs) < 2:
        raise NothingToCompare(f"{campaigns[0].folder} contains only one run; name a second result to compare it with")


def result_letter(result_index: int, result_count: int) -> str | None:
    """The letter of a result in labels: A, B, …; ``None`` if there is only one result."""
    if result_count == 1:
        return None
    return chr(ord("A") + result_index) if result_count <= 26 else str(result_index + 1)


def run_labels(campaigns: Sequence[Campaign]) -> list[list[str]]:
    """The label of each run, by campaign: the campaign's letter, and a name that no other run has."""
    every = [run for campaign in campaigns for run in campaign.runs]
    names = iter(label_runs([(run.config.name, run.options) for run in every]))
    letters = [result_letter(index, len(campaigns)) for index in range(len(campaigns))]
    return [
        [f"{short}: {next(names)}" if short else next(names) for _ in campaign.runs]
        for short, campaign in zip(letters, campaigns, strict=True)
    ]


def _compared_runs_by_campaign(campaigns: Sequence[Campaign]) -> list[list[ComparedRun]]:
    """The runs of each campaign, with their labels and properties."""
    by_campaign = []
    for campaign, names in zip(campaigns, run_labels(campaigns), strict=True):
        named_runs = list(zip(names, campaign.runs, strict=True))
        sources = []
        for name, run in named_runs:
            same_named_runs = [each for other, each in named_runs if other == name and have_same_problem(run, each)]
            label = name + _distinguishing_options_text(run, same_named_runs)
            sources.append(ComparedRun(campaign, run, label, run_properties(campaign, run)))
        by_campaign.append(sources)
    return by_campaign


def _distinguishing_options_text(run: Run, same_named_runs: Sequence[Run]) -> str:
    """The options in which a run differs from others of the same name and problem, as text: `` (seed 3)``."""
    names = [
        name
        for name, value in run.options.items()
        if isinstance(value, (str, int, float)) and any(each.options.get(name) != value for each in same_named_runs)
    ]
    return f" ({', '.join(f'{name} {run.options[name]}' for name in names)})" if names else ""


def _run_pairs_within_campaign(runs: Sequence[ComparedRun], notes: list[str]) -> list[RunPair]:
    """Pair the runs of one campaign with their baselines; adds to `notes` why a run has none."""
    first_config = runs[0].run.config.name
    pairs: list[RunPair] = []
    left = list(runs)
    while left:
        alike = [source for source in left if have_same_problem(left[0].run, source.run)]
        left = [source for source in left if source not in alike]
        baseline = next((source for source in alike if source.run.config.name == first_config), alike[0])
        pairs += [RunPair(baseline, source) for source in alike if source is not baseline]
        if len(alike) == 1:
            notes.append(f"{baseline.label} is not compared: no other run {_same_problem_text(baseline)}")
    if not pairs:
        differing = "command, metrics or checks" if runs[0].measures_command else "rows per chunk, workers or tables"
        raise NothingToCompare(f"no two runs of this campaign can be compared: they differ in {differing}")
    return pairs


def _run_pairs_between_campaigns(
    baseline_runs: Sequence[ComparedRun], candidate_runs: Sequence[Sequence[ComparedRun]], notes: list[str]
) -> list[RunPair]:
    """Pair the runs of other campaigns with baselines of the first; adds to `notes` why a run has none."""
    pairs: list[RunPair] = []
    unmatched: list[ComparedRun] = []
    for candidate in (source for sources in candidate_runs for source in sources):
        alike = [source for source in baseline_runs if have_same_problem(source.run, candidate.run)]
        if alike:
            pairs.append(RunPair(_closest_baseline(alike, candidate), candidate))
        else:
            unmatched.append(candidate)
    if not pairs:  # refused with the reasons, unless --anyway is given
        return [RunPair(_closest_baseline(baseline_runs, candidate), candidate) for candidate in unmatched]
    notes += [
        f"{source.label} is not compared: no run of the baseline {_same_problem_text(source)}" for source in unmatched
    ]
    return pairs


def _same_problem_text(compared_run: ComparedRun) -> str:
    """The phrase for a run with the same problem: ``merges equal tables on as many workers``."""
    return (
        "measures the same command alike" if compared_run.measures_command else "merges equal tables on as many workers"
    )


def _closest_baseline(baselines: Sequence[ComparedRun], candidate: ComparedRun) -> ComparedRun:
    """The baseline with the same config as the candidate and, of several, with the same engine and exchange."""
    run = candidate.run

    def similarity_to_candidate(baseline: ComparedRun) -> tuple[bool, int]:
        ways = sum(baseline.run.options.get(way) == run.options.get(way) for way in WAYS)
        return baseline.run.config.name == run.config.name, ways

    return max(baselines, key=similarity_to_candidate)


def _can_be_compared(pair: RunPair, notes: list[str]) -> bool:
    """Whether both runs of a pair have launches to compare; if not, adds the reason to `notes`."""
    if pair.baseline.has_wrong_result:
        named = f"the {pair.baseline.result_noun} of {pair.baseline.label}"
        raise WrongResult(f"{named} was wrong, so nothing can be compared with it")
    if not pair.baseline.has_complete_launch:
        notes.append(f"{pair.baseline.label} has no complete launch, so nothing can be compared with it")
    elif not pair.candidate.run.launches:
        notes.append(f"{pair.candidate.label} is not compared: it has no launches yet")
    else:
        return True
    return False


def _difference_text(difference: RunDifference) -> str:
    name = f"{difference.kind} {difference.name}" if difference.kind == UCX else difference.name
    return f"{name.replace('_', ' ')} ({difference.baseline_value} and {difference.candidate_value})"


def _missing_records_notes(compared_run: ComparedRun, *, single_campaign: bool) -> Iterator[str]:
    """Sentences about launches and properties that the records of a run lack.

    `single_campaign`: leave properties out, as all runs of one campaign have the same machine.
    """
    run = compared_run.run
    launches = sum(launch.complete or launch.failed for launch in run.launches)
    if launches < run.planned_launches:
        yield f"{compared_run.label}: the records stop after {launches} of {run.planned_launches} launches"
    kinds = {MACHINE: "machine", UCX: "UCX", UCX_SETTING: "UCX settings", PACKAGE: "packages"}
    if compared_run.measures_command:  # what it loads, and how UCX reads its settings, is not known
        kinds = {MACHINE: "machine", UCX: "UCX"}
    missing = [name for kind, name in kinds.items() if kind not in compared_run.properties]  # an imported run lacks all
    if missing and not single_campaign:
        yield f"{compared_run.label}: the records do not describe {', '.join(missing)}; these may differ"
