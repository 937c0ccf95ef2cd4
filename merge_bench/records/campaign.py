"""A campaign in memory: its plans as far as readers use them, its runs and launches, its rows of network measurements.

The records keep each plan as its command wrote it (`Run.options`). An option that a plan does not have is None here.
The rows of a campaign of network measurements are one for each series and size, over its launches.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self, TypeAlias, TypeVar

import msgspec

from merge_bench.config.ucx_releases import PERFTEST_OVERSTATES, perftest_overstates_bandwidth
from merge_bench.errors import Caution
from merge_bench.records import schema as s
from merge_bench.records.schema import ProbeLine


class TableColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table: `source` is its name in the files, `name` the one in the result, `type` Arrow's."""

    source: str | None = None
    name: str
    type: str | None = None
    nullable: bool | None = None


class UnusedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files in a table's folder that are no part of the table: why (``hidden``, ``no data``), how many, first names."""

    reason: str
    count: int
    names: list[str] = []


class RecordedTable(msgspec.Struct, frozen=True, kw_only=True):
    """The left or the right table of Parquet files, as a recorded plan describes it.

    `chunks`: the (file, row group) pairs of each worker; `chunk_rows`: the sum of their rows. `fingerprint`: of the
    files' footers, sizes and partitions, equal for equal tables, wherever they lie.
    """

    path: str | None = None
    rows: s.Count | None = None
    files: list[str] = []
    columns: list[TableColumn] = []
    chunks: list[list[tuple[str, int]]] = []
    chunk_rows: list[s.Count] = []
    left_out: list[UnusedFiles] = []
    fingerprint: str | None = None


class RecordedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """The tables that are merged, as a recorded plan describes them.

    `name`: ``synthetic``, with `rows` to `zipf`, or ``tables``, with `keys` to `warnings`. `benchmark`: of which the
    tables are generated, such as ``h2o``, with its `question`.
    """

    name: str | None = None
    benchmark: str | None = None
    question: str | None = None
    rows: s.Count | None = None
    fraction: float | None = None
    seed: int | None = None
    payload_columns: s.Count | None = None
    zipf: float | None = None
    keys: list[str] | None = None
    left: RecordedTable | None = None
    right: RecordedTable | None = None
    warnings: list[Caution] | None = None


class RecordedTuning(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `tune` in a recorded plan.

    `space`: the digest of the tuning space; `budget`: launches and seconds, None without a limit.
    """

    strategy: str | None = None
    space: str | None = None
    values: list[str] = []
    metric: str | None = None
    threshold: float | None = None
    blocks: s.Count | None = None
    confirm: s.Count | None = None
    budget: list[float | None] = []


COMMAND = "command"
"""The launcher of a launch that runs a command."""
WALL = "wall"
"""The metric that every launch of a command has: its wall-clock in seconds."""


class CommandMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A number that is measured of a command in each launch; ``wall`` is its wall-clock.

    `better`: ``more`` or ``less``. `source`: where it is found, as it was typed: ``re:Bandwidth: (\\S+)``; None for
    the wall-clock. `pick`: which of several matches counts: ``last``, ``median``, ``min`` or ``max``.
    """

    name: str
    unit: str | None = None
    better: str = "less"
    source: str | None = None
    pick: str = "last"


class CommandPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The command that `exec` measures. Its first metric is the main one, which gates and short lists use.

    `argv`: its words as they were typed, with their placeholders. `metric_file`: the file that metrics are read from;
    None: what it prints. `checks`: what decides that a launch is right, besides `expect_status`. `timeout`: seconds,
    None without a limit. `shell`: whether a shell reads the command. `lanes`: whether it runs once more in the first
    launch of each config, so that UCX logs its lanes.
    """

    argv: list[str] = []
    metrics: list[CommandMetric] = []
    metric_file: str | None = None
    checks: list[str] = []
    expect_status: int = 0
    timeout: float | None = None
    shell: bool = False
    lanes: bool = False

    @property
    def shell_line(self) -> str:
        """The measured command as one line for a shell."""
        return self.argv[0] if self.shell and self.argv else shlex.join(self.argv)

    @property
    def main_metric(self) -> CommandMetric:
        """The command's first metric, which decides; its wall-clock if the record has none."""
        return self.metrics[0] if self.metrics else CommandMetric(name=WALL, unit="s")


class RecordedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a recorded plan that readers use; None for an option that the record does not have.

    `probe`: the network measurement, `command`: the command that is measured; both None for merges.
    """

    rows_per_chunk: s.Count | None = None
    workers: s.Count | None = None
    iterations: s.Count | None = None
    warmup: s.Count | None = None
    launches: s.Count | None = None
    engine: str | None = None
    exchange: str | None = None
    how: str | None = None
    distribution: str | None = None
    broadcast_side: str | None = None
    distribution_reason: str | None = None
    protocol: str | None = None
    verify: str | None = None
    timeout: float | None = None
    seed: int | None = None
    error_handling: bool | None = None
    message_bytes: s.Count | None = None
    pipeline: bool | None = None
    stores: str | None = None
    runtime_filter: bool | None = None
    link_rounds: s.Count | None = None
    check_link: bool | None = None
    shuffle: str | None = None
    threads: s.Count | None = None
    require_transport: list[str] | None = None
    timeline: str | None = None
    write_result: str | None = None
    workload: RecordedWorkload | None = None
    tune: RecordedTuning | None = None
    probe: str | None = None
    command: CommandPlan | None = None
    ucx: str | None = None

    @property
    def question(self) -> str:
        """The benchmark and its question, such as ``h2o q1``; empty without one."""
        work = self.workload
        return " ".join(filter(None, (work.benchmark, work.question))) if work is not None else ""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> RecordedPlan:
        """Read a plan of a campaign line; an option whose value has an unexpected type counts as missing."""
        return _read_recorded_structure(cls, options)[0]


def is_tuning(plans: Sequence[RecordedPlan]) -> bool:
    """Whether a campaign with these plans is a tuning."""
    return any(plan.tune is not None for plan in plans)


def remove_table_names(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded plan without the names of its tables, so that plans of equal tables become equal.

    Tables of older records have no fingerprint, and keep their paths.
    """
    kept_plan, workload = dict(plan), plan.get("workload")
    if isinstance(workload, Mapping):
        kept_plan["workload"] = {name: value for name, value in workload.items() if name != "warnings"}
        for side in ("left", "right"):
            table = workload.get(side)
            if isinstance(table, Mapping) and table.get("fingerprint"):
                kept = {name: value for name, value in table.items() if name not in _NAMING_FIELDS}
                kept_plan["workload"][side] = kept
    return kept_plan


_NAMING_FIELDS = frozenset(("path", "files", "chunks", "left_out"))
_STRUCTURES: Mapping[str, type[msgspec.Struct]] = {
    "workload": RecordedWorkload,
    "left": RecordedTable,
    "right": RecordedTable,
    "tune": RecordedTuning,
    "command": CommandPlan,
}
_Structure = TypeVar("_Structure", bound=msgspec.Struct)


def find_unreadable_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the recorded options of an unexpected type: names such as ``workload left rows``, and values as JSON."""
    _, odd = _read_recorded_structure(RecordedPlan, options)
    return {name: msgspec.json.encode(value).decode() for name, value in odd.items()}


def _read_recorded_structure(
    structure_type: type[_Structure], options: Mapping[str, Any]
) -> tuple[_Structure, dict[str, Any]]:
    """Read options into a structure; returns it, and by name the options whose types are not those of its fields."""
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(options, structure_type), {}
    values: dict[str, Any] = {}
    odd: dict[str, Any] = {}
    for field in msgspec.structs.fields(structure_type):
        value = options.get(field.name)
        if field.name in _STRUCTURES and isinstance(value, Mapping):
            values[field.name], inner = _read_recorded_structure(_STRUCTURES[field.name], value)
            odd |= {f"{field.name} {name}": each for name, each in inner.items()}
        elif value is not None:
            try:
                values[field.name] = msgspec.convert(value, field.type)
            except msgspec.ValidationError:
                odd[field.name] = value
    return structure_type(**values), odd


INTERRUPTED = "interrupted"
"""The code of a failure that a signal or the end of the driver caused."""

JOB = "MERGE_BENCH_JOB"
"""A variable of every process of a service's job, and of the surroundings in its records."""

OWN_JOB = "-own"
"""How the value of `JOB` ends if the job is one of a person's dashboard, whose output is read on the same machine."""

IMPORTED = "imported"
"""The value of ``verify`` in the plan and of the launcher, if another program ran the merges."""


def is_read_on_another_machine(job_mark: object) -> bool:
    """Whether the output of a job is perhaps read on another machine; `job_mark`: a value of the variable `JOB`."""
    return job_mark is not None and not str(job_mark).endswith(OWN_JOB)


@dataclass(frozen=True)
class Launch:
    """The records of one launch.

    `line`: the launch line; None if the launch failed before its cluster was up.
    """

    index: int
    line: s.LaunchLine | None = None
    iterations: tuple[s.IterationLine, ...] = ()
    verifications: tuple[s.VerificationLine, ...] = ()
    link: s.LinkLimitLine | None = None
    lanes: s.LanesLine | None = None
    memory: s.MemoryLine | None = None
    warnings: tuple[s.WarningLine, ...] = ()
    failures: tuple[s.FailureLine, ...] = ()
    end: s.LaunchEndLine | None = None
    traffic: tuple[s.TrafficLine, ...] = ()
    probes: tuple[s.ProbeLine, ...] = ()
    timeline: s.TimelineLine | None = None
    power: s.PowerLine | None = None

    @property
    def timed_iterations(self) -> tuple[s.IterationLine, ...]:
        """The launch's timed iterations: those after the warm-up."""
        return tuple(iteration for iteration in self.iterations if not iteration.warmup)

    @property
    def is_of_command(self) -> bool:
        """Whether the launch ran a command instead of merges."""
        return self.line is not None and self.line.cluster.launcher == COMMAND

    @property
    def complete(self) -> bool:
        """Whether the launch ended without a failure."""
        return self.end is not None and self.end.status == 0 and not self.failures

    @property
    def failed(self) -> bool:
        """Whether the launch failed for a reason of its own, and not only because it was interrupted."""
        own = any(failure.code != INTERRUPTED for failure in self.failures)
        return not self.complete and (own or not self.interrupted)

    @property
    def interrupted(self) -> bool:
        """Whether a signal or the end of the driver process cut the launch short, which says nothing about its config.

        A launch that had already failed counts as failed, even if its driver ended before it wrote the end line.
        """
        if self.failures:
            return any(failure.code == INTERRUPTED for failure in self.failures)
        return self.end is None

    @property
    def _identifying_lines(self) -> tuple[s.LaunchLine | s.FailureLine, ...]:
        """The lines of the launch that may name its run and its block."""
        return self.failures if self.line is None else (self.line,)

    @property
    def block_index(self) -> int | None:
        """The index of the launch's block; None if no line names it."""
        return next((line.block for line in self._identifying_lines if line.block is not None), None)

    @property
    def run_key(self) -> tuple[str, int] | None:
        """The config and the index of the plan that the launch ran; None if no line names them."""
        keys = ((x.config, x.plan) for x in self._identifying_lines if x.config is not None and x.plan is not None)
        return next(keys, None)


WAYS = ("engine", "exchange", "shuffle", "ucx")
"""Options of a plan that may differ between runs of one config; `label_runs` names them in this order."""


def label_runs(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Make a label for each run that distinguishes it from the others.

    A run is given as a config's name and the options of its plan. The label names the config and, where runs of the
    config differ in `WAYS` (in the shuffle: those of one exchange), these options: ``tcp with polars``. With only one
    config it names the options alone: ``pandas over dask``, or ``UCX 1.21.0``.
    """
    alone = len({config for config, _ in runs}) < 2
    names = []
    for config, options in runs:
        alike = [each for name, each in runs if name == config]
        same = [each for each in alike if each.get("exchange") == options.get("exchange")]
        values = {way: {each.get(way) for each in (same if way == "shuffle" else alike)} - {None} for way in WAYS}
        ways = {way: str(options[way]) for way in WAYS if len(values[way]) > 1 and options.get(way) is not None}
        shuffle, ucx = ways.pop("shuffle", ""), ways.pop("ucx", "")
        way = " ".join(filter(None, (" over ".join(ways.values()), shuffle)))
        way = " on ".join(filter(None, (way, ucx and f"UCX {ucx}")))
        names.append(config if not way else way if alone else f"{config} with {way}")
    return names


def label_planned_runs(campaign_line: s.CampaignLine) -> dict[tuple[str, int], str]:
    """A label of each planned run that distinguishes it from the others, by its config and the index of its plan."""
    names = label_runs([(run.config, campaign_line.plans[run.plan]) for run in campaign_line.runs])
    return {(run.config, run.plan): name for run, name in zip(campaign_line.runs, names, strict=True)}


@dataclass(frozen=True)
class Run:
    """One config with one plan, and the launches of both in their order.

    `plan_index`: of the plan in the campaign's first line. `options`: the whole plan as recorded there, to show or
    compare every option.
    """

    config: s.Config
    plan_index: int
    plan: RecordedPlan
    options: Mapping[str, Any]
    launches: tuple[Launch, ...]

    @functools.cached_property
    def unreadable_options(self) -> Mapping[str, str]:
        """The options whose values have an unexpected type, as text."""
        return find_unreadable_options(self.options)

    @property
    def planned_launches(self) -> int:
        """The number of launches that the run's plan asks for; those that were made if it has no number, 1 at least."""
        return max(len(self.launches), 1) if self.plan.launches is None else self.plan.launches

    @property
    def verification_mode(self) -> str:
        """When results are checked: ``ends``, ``every``, ``full`` or ``off``; ``imported``: not by merge_bench."""
        return self.plan.verify or "ends"

    @property
    def is_imported(self) -> bool:
        """Whether the run was imported from the output of another program."""
        return self.verification_mode == IMPORTED


@dataclass(frozen=True)
class Campaign:
    """All records of a campaign.

    `records`: the file that was read; `head`: its first line, with `plans`; `launches`: by index; `truncated`: a
    half-written last line was left out; `skipped`: the number of lines of each kind that this version does not know;
    `warnings`, `failures`: those that belong to no launch; `end`: None if the campaign was killed or is still running;
    `added`: configs that were added after the first line; `tuning`: the steps of tuning; `extensions`: launches
    that were added, which the plans of `head` and `plans` have.
    """

    records: Path
    head: s.CampaignLine
    plans: tuple[RecordedPlan, ...]
    launches: tuple[Launch, ...]
    truncated: bool
    skipped: Mapping[str, int]
    warnings: tuple[s.WarningLine, ...] = ()
    failures: tuple[s.FailureLine, ...] = ()
    end: s.CampaignEndLine | None = None
    added: tuple[s.AddedConfigLine, ...] = ()
    tuning: tuple[s.TuningStepLine, ...] = ()
    extensions: tuple[s.ExtensionLine, ...] = ()

    @property
    def folder(self) -> Path:
        """The campaign's folder."""
        return self.records.parent

    @property
    def probe(self) -> str | None:
        """The name of the campaign's network measurement; None for merges and commands."""
        return self.plans[0].probe if self.plans else None

    @property
    def command(self) -> CommandPlan | None:
        """The command that the campaign measured; None for merges and network measurements."""
        return self.plans[0].command if self.plans else None

    @property
    def is_of_service_job(self) -> bool:
        """Whether a job of a service or dashboard made the campaign."""
        return self.head.environment_variable(JOB) is not None

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """Every warning in the records, each once; first those that belong to no launch."""
        warnings = [*self.warnings, *(warning for launch in self.unrepeated_launches for warning in launch.warnings)]
        return tuple(dict.fromkeys(line.caution for line in warnings))

    @property
    def unattributed_failures(self) -> tuple[s.FailureLine, ...]:
        """Failures that belong to no launch, or to a launch whose run no line names."""
        nameless = (
            failure for launch in self.unrepeated_launches if launch.run_key is None for failure in launch.failures
        )
        return self.failures if len(self.head.runs) == 1 else (*self.failures, *nameless)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The campaign's planned runs in their order, each with its `unrepeated_launches`; a run may have none yet."""
        by_key: dict[tuple[str, int], list[Launch]] = {(run.config, run.plan): [] for run in self.head.runs}
        only = next(iter(by_key)) if len(by_key) == 1 else None
        for launch in self.unrepeated_launches:
            key = launch.run_key or only
            if key is not None:
                by_key.setdefault(key, []).append(launch)
        configs = {config.name: config for config in (*self.head.configs, *(line.config for line in self.added))}
        return tuple(
            Run(configs[name], plan, self.plans[plan], self.head.plans[plan], tuple(launches))
            for (name, plan), launches in by_key.items()
        )

    @property
    def run_labels(self) -> list[str]:
        """A label for each of the campaign's runs that distinguishes it from the others, in their order."""
        return label_runs([(run.config.name, run.options) for run in self.runs])

    @property
    def unrepeated_launches(self) -> tuple[Launch, ...]:
        """The campaign's launches, without those that were interrupted and repeated later."""
        last = {(launch.run_key, launch.block_index): launch.index for launch in self.launches}
        return tuple(
            launch
            for launch in self.launches
            if not (launch.interrupted and launch.run_key and last[launch.run_key, launch.block_index] > launch.index)
        )


FROM_FILE = "file "
"""The start of the `source` of rows that a user's file contains."""
Extremes: TypeAlias = tuple[float | None, float | None]
_PERFTEST = re.compile(r"ucx_perftest of UCX (\d+\.\d+[\d.]*)")
_UNCHANGED = ("probe", "test", "method", "placement", "size", "memory", "count")
"""Fields that all lines of a row have in common."""


@dataclass(frozen=True)
class MedianAndRange:
    """The median of a quantity over launches, with its smallest and largest value."""

    median: float
    low: float
    high: float

    @classmethod
    def from_values(cls, middle: float | None, ends: tuple[float, float] | None) -> Self | None:
        """Make a range of a median and its smallest and largest value, by default the median; None without a median."""
        return None if middle is None else cls(middle, *(ends or (middle, middle)))


class ProbeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One message size of one series of a network measurement, as ``probe --json`` prints it.

    `config`: the name of the config, or of a published series; `test`, `method`, `placement`, `memory`: as in
    `ProbeLine`. `seconds`: as the test defines them (latency tests: one way; else the mean time of an operation);
    `bandwidth`: bytes per second; of both, the median over launches, the smallest and the largest value (`*_range`),
    and the extremes over ranks (`*_ranks`). `seconds_mean`, `bus_bandwidth`, `link_limit`: as in `ProbeLine`, medians
    over launches; `link_share`: of the limit, what the busiest rank reached. `source`: of published numbers, or of
    those in a file; None for measured ones. `note`: what is wrong with a published number, or one of an old tool.
    """

    probe: str
    test: str
    method: str
    config: str
    placement: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    memory: str = "host"
    size: int
    count: int | None = None
    launches: int = 1
    seconds_median: float | None = msgspec.field(name="seconds", default=None)
    seconds_range: tuple[float, float] | None = None
    seconds_ranks: Extremes = msgspec.field(name="seconds_over_ranks", default=(None, None))
    bandwidth_median: float | None = msgspec.field(name="bandwidth_bytes_per_second", default=None)
    bandwidth_range: tuple[float, float] | None = None
    bandwidth_ranks: Extremes = msgspec.field(name="bandwidth_over_ranks", default=(None, None))
    seconds_mean: float | None = None
    bus_bandwidth: float | None = msgspec.field(name="bus_bandwidth_bytes_per_second", default=None)
    link_limit: float | None = msgspec.field(name="link_limit_bytes_per_second", default=None)
    link_limit_from: str | None = None
    link_share: float | None = None
    messages_per_second: float | None = None
    wrong: int | None = None
    requested: dict[str, str] = msgspec.field(name="requested_transports", default_factory=dict)
    selected: tuple[str, ...] = msgspec.field(name="selected_transports", default=())
    protocol: str | None = None
    as_requested: bool | None = None
    source: str | None = None
    note: str | None = None

    @property
    def seconds(self) -> MedianAndRange | None:
        """The time of an operation over launches; None if no time was measured."""
        return MedianAndRange.from_values(self.seconds_median, self.seconds_range)

    @property
    def bandwidth(self) -> MedianAndRange | None:
        """Bytes per second over launches; None if no rate was measured."""
        return MedianAndRange.from_values(self.bandwidth_median, self.bandwidth_range)

    @property
    def series_key(self) -> tuple[str, str, str, tuple[int, ...], str]:
        """Config, test, placement, ranks and memory, which are the same for all points of a line in a plot."""
        return self.config, self.test, self.placement, self.ranks, self.memory

    @property
    def is_from_user_file(self) -> bool:
        """Whether the row comes from a user's file: neither measured nor published."""
        return self.source is not None and self.source.startswith(FROM_FILE)


def make_probe_rows(campaign: Campaign) -> list[ProbeRow]:
    """Make the rows of a campaign's network measurements: by series, as they were first measured, then by size."""
    groups: dict[tuple[Any, ...], list[ProbeLine]] = {}
    for launch in campaign.unrepeated_launches:
        config = launch.line.config if launch.line is not None else ""
        for line in launch.probes:
            key = (config, line.test, line.placement, tuple(line.ranks), line.memory)
            groups.setdefault(key, []).append(line)
    return [
        _make_probe_row(key[0], list(alike))
        for key, lines in groups.items()
        for _, alike in itertools.groupby(sorted(lines, key=_probe_size_and_count), _probe_size_and_count)
    ]


def _probe_size_and_count(line: ProbeLine) -> tuple[int, int]:
    """The message size of a measurement, and its number of messages, 0 if that is unknown."""
    return line.size, line.count or 0


def _make_probe_row(config: str, lines: Sequence[ProbeLine]) -> ProbeRow:
    """Make one row of the records of all launches that measured the same test and size."""
    last = lines[-1]
    seconds, seconds_range = _median_and_range_of_field(lines, "seconds")
    bandwidth, bandwidth_range = _median_and_range_of_field(lines, "bandwidth_bytes_per_second")
    doubts = [line.as_requested for line in lines]
    return ProbeRow(
        **{name: getattr(last, name) for name in _UNCHANGED},
        config=config,
        ranks=tuple(last.ranks),
        hosts=tuple(last.hosts),
        launches=len(lines),
        seconds_median=seconds,
        seconds_range=seconds_range,
        seconds_ranks=(_extreme_of_field(lines, "seconds_min", min), _extreme_of_field(lines, "seconds_max", max)),
        bandwidth_median=bandwidth,
        bandwidth_range=bandwidth_range,
        bandwidth_ranks=(
            _extreme_of_field(lines, "bandwidth_min", min),
            _extreme_of_field(lines, "bandwidth_max", max),
        ),
        seconds_mean=_median_and_range_of_field(lines, "seconds_mean")[0],
        bus_bandwidth=_median_and_range_of_field(lines, "bus_bandwidth_bytes_per_second")[0],
        link_limit=_median_and_range_of_field(lines, "limit_bytes_per_second")[0],
        link_limit_from=last.limit_from,
        link_share=median_and_range([_link_limit_share(line) for line in lines])[0],
        messages_per_second=_median_and_range_of_field(lines, "messages_per_second")[0],
        wrong=None if all(line.wrong is None for line in lines) else sum(line.wrong or 0 for line in lines),
        requested=dict(sorted(last.requested.items())),
        selected=tuple(dict.fromkeys(lane for line in lines for lane in line.selected)),
        protocol=" / ".join(dict.fromkeys(line.protocol for line in lines if line.protocol)) or None,
        as_requested=False if False in doubts else None if None in doubts else True,
        note=next(filter(None, map(_overstated_bandwidth_note, lines)), None),
    )


def _overstated_bandwidth_note(line: ProbeLine) -> str | None:
    """A sentence that an old ``ucx_perftest`` overstates the bandwidth of this record; None for other measurements."""
    release = _PERFTEST.match(line.method)
    if release is None or not line.test.endswith(("_bw", "bandwidth")):
        return None
    return PERFTEST_OVERSTATES if perftest_overstates_bandwidth(release[1]) else None


def _median_and_range_of_field(
    lines: Sequence[ProbeLine], name: str
) -> tuple[float | None, tuple[float, float] | None]:
    """The median of a field over the records of several launches, and its smallest and largest value."""
    return median_and_range([getattr(line, name) for line in lines])


def _link_limit_share(line: ProbeLine) -> float | None:
    """The share of the link limit that the busiest rank reached: its bytes ÷ seconds ÷ limit; None without a limit."""
    if not line.limit_bytes_per_second or not line.seconds or line.busiest_bytes is None:
        return None
    return line.busiest_bytes / line.seconds / line.limit_bytes_per_second


def median_and_range(values: Sequence[float | None]) -> tuple[float | None, tuple[float, float] | None]:
    """The median of the known values, and their smallest and largest one; None if none is known."""
    measured = [value for value in values if value is not None]
    return (median(measured), (min(measured), max(measured))) if measured else (None, None)


def _extreme_of_field(
    lines: Sequence[ProbeLine], name: str, min_or_max: Callable[[Sequence[float]], float]
) -> float | None:
    """The smallest or largest value of a field over the records of several launches; None if no value is known."""
    measured = [value for line in lines if (value := getattr(line, name)) is not None]
    return min_or_max(measured) if measured else None
