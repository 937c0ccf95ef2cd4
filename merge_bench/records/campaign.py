"""A campaign in memory, as a reader returns it: its runs and their launches, with the records of each."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merge_bench.errors import WarningMessage
from merge_bench.records import schema as s
from merge_bench.records.recorded_plan import CommandPlan, RecordedPlan, find_unreadable_options

COMMAND = "command"
"""The launcher of a launch that runs a command."""
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
    def cautions(self) -> tuple[WarningMessage, ...]:
        """Every warning in the records, each once; first those that belong to no launch."""
        warnings = [*self.warnings, *(warning for launch in self.launches_not_replaced for warning in launch.warnings)]
        return tuple(dict.fromkeys(line.caution for line in warnings))

    @property
    def unattributed_failures(self) -> tuple[s.FailureLine, ...]:
        """Failures that belong to no launch, or to a launch whose run no line names."""
        nameless = (
            failure for launch in self.launches_not_replaced if launch.run_key is None for failure in launch.failures
        )
        return self.failures if len(self.head.runs) == 1 else (*self.failures, *nameless)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The campaign's planned runs in their order, each with its `launches_not_replaced`; there may be none."""
        by_key: dict[tuple[str, int], list[Launch]] = {(run.config, run.plan): [] for run in self.head.runs}
        only = next(iter(by_key)) if len(by_key) == 1 else None
        for launch in self.launches_not_replaced:
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
    def launches_not_replaced(self) -> tuple[Launch, ...]:
        """The campaign's launches, without those that were interrupted and that a later launch replaces."""
        last = {(launch.run_key, launch.block_index): launch.index for launch in self.launches}
        return tuple(
            launch
            for launch in self.launches
            if not (launch.interrupted and launch.run_key and last[launch.run_key, launch.block_index] > launch.index)
        )
