"""A campaign in memory: its runs and their launches."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merge_bench.errors import Caution
from merge_bench.records import schema as s
from merge_bench.records.recorded_plan import RecordedPlan, unreadable_options

INTERRUPTED = "interrupted"
"""The code of a failure that a signal or the end of the driver caused."""

JOB = "MERGE_BENCH_JOB"
"""A variable of every process of a service's job, and of the surroundings in its records."""

OWN_JOB = "-own"
"""How the value of `JOB` ends if the job is one of a person's dashboard, whose output is read on the same machine."""

IMPORTED = "imported"
"""The value of ``verify`` in the plan and of the launcher, if another program ran the merges."""


def read_elsewhere(mark: object) -> bool:
    """Whether `mark`, a value of `JOB`, is of a job whose output its client may read on another machine."""
    return mark is not None and not str(mark).endswith(OWN_JOB)


@dataclass(frozen=True)
class Launch:
    """The records of one launch. `line`: None if it failed before its cluster was up."""

    index: int
    line: s.LaunchLine | None = None
    iterations: tuple[s.IterationLine, ...] = ()
    verifications: tuple[s.VerificationLine, ...] = ()
    link: s.LinkLine | None = None
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
    def timed(self) -> tuple[s.IterationLine, ...]:
        """The iterations that count: those after the warm-up."""
        return tuple(iteration for iteration in self.iterations if not iteration.warmup)

    @property
    def complete(self) -> bool:
        """Whether it ended without a failure."""
        return self.end is not None and self.end.status == 0 and not self.failures

    @property
    def failed(self) -> bool:
        """Whether it failed for a reason of its own. An interrupted launch says nothing about its config."""
        own = any(failure.code != INTERRUPTED for failure in self.failures)
        return not self.complete and (own or not self.interrupted)

    @property
    def interrupted(self) -> bool:
        """Whether a signal or the end of its driver cut it short, which says nothing about its config.

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
    def block(self) -> int | None:
        """Its block; None if no line names it."""
        return next((line.block for line in self._identifying_lines if line.block is not None), None)

    @property
    def key(self) -> tuple[str, int] | None:
        """The config and the index of the plan that it ran; None if no line names them."""
        keys = ((x.config, x.plan) for x in self._identifying_lines if x.config is not None and x.plan is not None)
        return next(keys, None)


WAYS = ("engine", "exchange", "shuffle")
"""Options of a plan that may differ between runs of one config; `labels` names them in this order."""


def labels(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """A label of each of `runs` that tells it from the others; a run: the name of a config, and the options of a plan.

    The label names the config and, where runs of the config differ in `WAYS` (in the shuffle: those of one exchange),
    these options: ``tcp with polars``. With only one config it names the options alone: ``pandas over dask``.
    """
    alone = len({config for config, _ in runs}) < 2
    names = []
    for config, options in runs:
        alike = [each for name, each in runs if name == config]
        same = [each for each in alike if each.get("exchange") == options.get("exchange")]
        values = {way: {each.get(way) for each in (same if way == "shuffle" else alike)} - {None} for way in WAYS}
        ways = {way: str(options[way]) for way in WAYS if len(values[way]) > 1 and options.get(way) is not None}
        shuffle = ways.pop("shuffle", "")
        way = " ".join(filter(None, (" over ".join(ways.values()), shuffle)))
        names.append(config if not way else way if alone else f"{config} with {way}")
    return names


def planned_labels(head: s.CampaignLine) -> dict[tuple[str, int], str]:
    """The label (`labels`) of each planned run, by its config and the index of its plan."""
    names = labels([(run.config, head.plans[run.plan]) for run in head.runs])
    return {(run.config, run.plan): name for run, name in zip(head.runs, names, strict=True)}


@dataclass(frozen=True)
class Run:
    """One config with one plan, and its launches in their order.

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
        return unreadable_options(self.options)

    @property
    def planned_launches(self) -> int:
        """The number of launches in the plan."""
        return 1 if self.plan.launches is None else self.plan.launches

    @property
    def verify(self) -> str:
        """When results are checked: ``ends``, ``every``, ``full`` or ``off``; ``imported``: not by merge_bench."""
        return self.plan.verify or "ends"

    @property
    def imported(self) -> bool:
        """Whether it was imported from the output of another program."""
        return self.verify == IMPORTED


@dataclass(frozen=True)
class Campaign:
    """All records of a results folder.

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
    end: s.EndLine | None = None
    added: tuple[s.ConfigLine, ...] = ()
    tuning: tuple[s.TuneLine, ...] = ()
    extensions: tuple[s.ExtensionLine, ...] = ()

    @property
    def folder(self) -> Path:
        """The campaign's folder."""
        return self.records.parent

    @property
    def probe(self) -> str | None:
        """The name of the network measurement; None for merges."""
        return self.plans[0].probe if self.plans else None

    @property
    def of_a_job(self) -> bool:
        """Whether a job of a service or dashboard made the campaign."""
        return self.head.variable(JOB) is not None

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """Every warning in the records, each once; first those that belong to no launch."""
        warnings = [*self.warnings, *(warning for launch in self.standing for warning in launch.warnings)]
        return tuple(dict.fromkeys(line.caution for line in warnings))

    @property
    def unattributed_failures(self) -> tuple[s.FailureLine, ...]:
        """Failures that belong to no launch, or to a launch whose run no line names."""
        nameless = (failure for launch in self.standing if launch.key is None for failure in launch.failures)
        return self.failures if len(self.head.runs) == 1 else (*self.failures, *nameless)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The planned runs in their order, each with its `standing` launches; a run may have none yet."""
        by_key: dict[tuple[str, int], list[Launch]] = {(run.config, run.plan): [] for run in self.head.runs}
        only = next(iter(by_key)) if len(by_key) == 1 else None
        for launch in self.standing:
            key = launch.key or only
            if key is not None:
                by_key.setdefault(key, []).append(launch)
        configs = {config.name: config for config in (*self.head.configs, *(line.config for line in self.added))}
        return tuple(
            Run(configs[name], plan, self.plans[plan], self.head.plans[plan], tuple(launches))
            for (name, plan), launches in by_key.items()
        )

    @property
    def labels(self) -> list[str]:
        """The label of each of its `runs`, in their order."""
        return labels([(run.config.name, run.options) for run in self.runs])

    @property
    def standing(self) -> tuple[Launch, ...]:
        """The launches, without those that were interrupted and repeated later."""
        last = {(launch.key, launch.block): launch.index for launch in self.launches}
        return tuple(
            launch
            for launch in self.launches
            if not (launch.interrupted and launch.key and last[launch.key, launch.block] > launch.index)
        )
