"""A campaign in memory: its launches, and the runs that they are launches of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merge_bench.errors import Caution
from merge_bench.records import schema as s
from merge_bench.records.plan import Plan

INTERRUPTED = "interrupted"
"""The code of a failure that a signal or the end of the driver caused."""

IMPORTED = "imported"
"""``verify`` of a plan, and launcher of a cluster, that another program ran."""


@dataclass(frozen=True)
class Launch:
    """The records of one launch. ``line`` is ``None`` where it failed before its cluster was up."""

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

    @property
    def timed(self) -> tuple[s.IterationLine, ...]:
        """The iterations that count: those after the warm-up."""
        return tuple(iteration for iteration in self.iterations if not iteration.warmup)

    @property
    def complete(self) -> bool:
        """Whether it ended, and ended well."""
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
    def block(self) -> int | None:
        """The block that it belongs to, where any of its lines says so."""
        if self.line is not None:
            return self.line.block
        return next((failure.block for failure in self.failures if failure.block is not None), None)

    @property
    def key(self) -> tuple[str, int] | None:
        """Config and plan that this launch ran, where any of its lines says so."""
        if self.line is not None:
            return self.line.config, self.line.plan
        for failure in self.failures:
            if failure.config is not None and failure.plan is not None:
                return failure.config, failure.plan
        return None


@dataclass(frozen=True)
class Run:
    """One config with one plan, and its launches in the order they were made.

    `plan_index`: of the plan in the campaign's first line. `options`: the plan as it stands there, for what shows or
    compares every option.
    """

    config: s.Config
    plan_index: int
    plan: Plan
    options: Mapping[str, Any]
    launches: tuple[Launch, ...]

    @property
    def planned_launches(self) -> int:
        """How many launches were asked for."""
        return 1 if self.plan.launches is None else self.plan.launches

    @property
    def verify(self) -> str:
        """When the result was to be checked: ``ends``, ``every``, ``full`` or ``off``; ``imported``: not by us."""
        return self.plan.verify or "ends"

    @property
    def imported(self) -> bool:
        """Whether another program made it, and its text was imported."""
        return self.verify == IMPORTED


@dataclass(frozen=True)
class Campaign:
    """Everything that a results folder's records hold.

    Attributes
    ----------
    records : Path
        The file that was read; its folder is the campaign's.
    head : CampaignLine
        The first line.
    plans : tuple of Plan
        Its plans, read.
    launches : tuple of Launch
        By index.
    warnings, failures : tuple
        Those that belong to no launch.
    end : EndLine or None
        ``None`` if the campaign was killed or is still running.
    truncated : bool
        Whether a half-written last line was left out.
    skipped : mapping of str to int
        How many lines of kinds unknown to this version were passed over.
    added : tuple of ConfigLine
        Configs that joined later, in their order.
    tuning : tuple of TuneLine
        The steps of tuning, in their order; empty for other campaigns.
    """

    records: Path
    head: s.CampaignLine
    plans: tuple[Plan, ...]
    launches: tuple[Launch, ...]
    warnings: tuple[s.WarningLine, ...]
    failures: tuple[s.FailureLine, ...]
    end: s.EndLine | None
    truncated: bool
    skipped: Mapping[str, int]
    added: tuple[s.ConfigLine, ...] = ()
    tuning: tuple[s.TuneLine, ...] = ()

    @property
    def folder(self) -> Path:
        """The campaign's folder."""
        return self.records.parent

    @property
    def probe(self) -> str | None:
        """Which network measurement this is; None for merges."""
        return self.plans[0].probe if self.plans else None

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """Every warning in the records, each once; those of no launch first."""
        found = [*self.warnings, *(warning for launch in self.standing for warning in launch.warnings)]
        return tuple(dict.fromkeys(line.caution for line in found))

    @property
    def unattributed_failures(self) -> tuple[s.FailureLine, ...]:
        """Failures of no launch, and of launches of which no line says what they ran."""
        nameless = (failure for launch in self.standing if launch.key is None for failure in launch.failures)
        return self.failures if len(self.head.runs) == 1 else (*self.failures, *nameless)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The planned runs in their order, each with its launches; a run may have none yet.

        A launch that was interrupted and made again later is left out.
        """
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
    def standing(self) -> tuple[Launch, ...]:
        """The launches, without those that were interrupted and made again later."""
        last = {(launch.key, launch.block): launch.index for launch in self.launches}

        def made_again(launch: Launch) -> bool:
            place = launch.key, launch.block
            return launch.interrupted and launch.key is not None and last[place] > launch.index

        return tuple(launch for launch in self.launches if not made_again(launch))
