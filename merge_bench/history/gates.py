"""Gates: whether a comparison that a command was asked for lets it end with 0 (``--fail-on``, ``--against``)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from merge_bench.analysis.compare.document import compare
from merge_bench.analysis.compare.judging import METRIC
from merge_bench.analysis.compare.select import NothingToCompare
from merge_bench.analysis.documents.compare import CompareDocument
from merge_bench.analysis.documents.error import Failure
from merge_bench.analysis.statistics.power import can_differ, least_launches
from merge_bench.analysis.statistics.verdict import ALPHA
from merge_bench.config.options import RunOptions
from merge_bench.errors import GateNotMet, NothingCompared, UsageError, WrongResult, require
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.results_folder import ResultsFolder, is_result
from merge_bench.units import plural

HISTORY = "history"
"""The value of ``--against`` that means the present level of all earlier results."""
GATES = {
    "slower": ("SLOWER", "FAILED", "WRONG"),
    "inconclusive": ("INCONCLUSIVE", "FAILED", "WRONG"),
    "not-faster": ("SLOWER", "EQUIVALENT", "INCONCLUSIVE", "FAILED", "WRONG"),
}
"""Which verdicts each ``--fail-on`` does not let pass."""


@dataclass(frozen=True)
class Gate:
    """`against`: the earlier result, or the folder of the results whose present level a campaign is held against.

    None where a campaign's configs are held against its first. `allow_no_baseline`: as in `with_gate_error`.
    """

    against: Campaign | Path | None
    fail_on: Sequence[str]
    threshold: float
    allow_no_baseline: bool = False

    @classmethod
    def from_options(cls, options: RunOptions, *, compared: int, runs: int) -> Self | None:
        """The gate that the options of `run` ask for; the earlier result is read before anything is launched.

        `compared`: how many configs, engines or exchanges there are; `runs`: with how many sizes in all.

        Raises UsageError if there is nothing to compare with, or the earlier result cannot be read.
        """
        against, fail_on, allowed = options.against, options.fail_on, options.allow_no_baseline
        if fail_on and not against and compared < 2:
            raise UsageError(
                "--fail-on needs a comparison; use --against RESULT, or name several configs with --configs"
            )
        if not against and not fail_on:
            return None
        if against == HISTORY:
            require("scipy", "history", f"--against {HISTORY}")
            if runs > 1:
                raise UsageError(f"--against {HISTORY} takes one config and one size; run each by itself")
            return cls(Path(options.results), fail_on, options.threshold, allowed)
        earlier = read_campaign(_result(str(against))) if against else None
        return cls(earlier, fail_on, options.threshold, allowed)

    def power_warning(self, launches: int) -> str | None:
        """Why the gate is decided before anything is measured, where a run of `launches` can have no verdict."""
        if not isinstance(self.against, Campaign):
            return None
        has = max((sum(launch.complete for launch in run.launches) for run in self.against.runs), default=0)
        if not has or can_differ(has, launches, alpha=ALPHA):
            return None
        least = least_launches(alpha=ALPHA, paired=False)
        warning = (
            f"the baseline {self.against.folder} has {plural(has, 'launch')}, and this run makes {launches:,}:"
            f" a verdict needs at least {least} of each, so it can only be INCONCLUSIVE"
        )
        names = "--fail-on " + ",".join(self.fail_on)
        if not self.fail_on:
            return warning
        if any("INCONCLUSIVE" in GATES[gate] for gate in self.fail_on):
            return f"{warning}, and {names} ends with status {GateNotMet.exit_status}"
        return f"{warning}, and {names} cannot fail; with {names},inconclusive it ends with status 5"

    def evaluate(self, campaign: Campaign) -> tuple[CompareDocument, int]:
        """The comparison's document, its ``error`` filled, and the exit status: 4, 5 or 0, as by `with_gate_error`.

        Raises NothingToCompare if the two cannot be compared and no verdict was to fail; what was measured is kept.
        """
        from merge_bench.history.level import compare_with_level, compare_with_result

        against = self.against

        def compared() -> CompareDocument:
            if isinstance(against, Campaign):
                return compare_with_result(campaign, against, self.threshold)
            return compare([campaign], threshold=self.threshold)

        if isinstance(against, Path):
            document = compare_with_level(campaign, against, self.threshold)
        else:
            document = compare_for(self.fail_on, compared, threshold=self.threshold)
        return with_gate_error(
            document,
            metric=METRIC,
            fail_on=self.fail_on,
            needed=isinstance(against, Path),
            allow_no_baseline=self.allow_no_baseline,
        )


def _result(against: str) -> str:
    """The result that ``--against`` names: a campaign, or the only one of a folder of results.

    Raises UsageError if the folder has several; the message names the newest.
    """
    folder = Path(against)
    if not folder.is_dir() or is_result(folder):
        return against
    results = ResultsFolder(folder).entries()
    if len(results) > 1:
        raise UsageError(
            f"--against takes one result, but the folder {against} contains {len(results)}; name one of them, such as"
            f" the newest: --against {shlex.quote(results[0].id)}"
        )
    return results[0].id if results else against


def compare_for(
    fail_on: Sequence[str], compared: Callable[[], CompareDocument], *, threshold: float
) -> CompareDocument:
    """What `compared` gives; if nothing can be compared, gates get a document without comparisons, with a note of why.

    Raises NothingToCompare if nothing can be compared and there are no gates.
    """
    try:
        return compared()
    except NothingToCompare as why:
        if not fail_on:
            raise
        return CompareDocument(
            results=[], threshold=threshold, alpha=ALPHA, comparisons=[], differences=[],
            notes=[f"nothing was compared: {why}"], verified=True,
        )  # fmt: skip


def with_gate_error(
    document: CompareDocument, *, metric: str, fail_on: Sequence[str], needed: bool = False,
    allow_no_baseline: bool = False,
) -> tuple[CompareDocument, int]:  # fmt: skip
    """The document with its ``error``, and the exit status: 4 for a wrong result, 5 for a gate not met.

    A document without a comparison in `metric` meets no gate, unless `allow_no_baseline`; nor does it if the comparison
    is `needed` without `fail_on`. A/A comparisons pass every gate: they are there to show the noise.
    """
    every = [each for each in document.comparisons if each.metric == metric]
    chosen = [each for each in every if not each.aa]
    wrong = [each.candidate for each in chosen if each.verdict == "WRONG"]
    held = [each for each in chosen if any(each.verdict in GATES[gate] for gate in fail_on)]
    kind: type[GateNotMet] | type[WrongResult]
    if wrong:
        kind, message = WrongResult, f"the merge result was wrong: {', '.join(wrong)}"
    elif held:
        named = ", ".join(f"{each.candidate} is {each.verdict} in {metric}" for each in held)
        options = "--fail-on " + ",".join(fail_on)
        caveats = dict.fromkeys(caveat for each in held for caveat in each.caveats)
        kind, message = GateNotMet, "; ".join([f"{options}: {named}", *caveats])
    elif not every and (needed or fail_on) and not allow_no_baseline:
        kind, message = NothingCompared, "; ".join([*document.notes, "--allow-no-baseline lets this pass"])
    else:
        return document, 0
    return msgspec.structs.replace(document, error=Failure(kind.code, message)), kind.exit_status


def gate_summary(document: CompareDocument, *, metric: str, fail_on: Sequence[str]) -> str:
    """Which gates did not fail, by which verdicts, and what may explain them; empty if one failed, or none was asked.

    A gate that did not fail only because nothing was decided is not called passed.
    """
    every = [each for each in document.comparisons if each.metric == metric]
    chosen = [each for each in every if not each.aa]
    if document.error is None and not every:
        return "; ".join([*document.notes, "this passes, because of --allow-no-baseline"])
    if document.error is not None or not fail_on or not chosen:
        return ""
    options = "--fail-on " + ",".join(fail_on)
    named = ", ".join(f"{each.candidate} is {each.verdict} in {metric}" for each in chosen)
    caveats = dict.fromkeys(caveat for each in chosen for caveat in each.caveats)
    unsure = [each.verdict == "INCONCLUSIVE" for each in chosen]
    if not any(unsure):
        return "; ".join([f"{options} passed: {named}", *caveats])
    decided = "nothing" if all(unsure) else "not everything"
    more = "" if chosen[0].level_of else "; more launches may decide it"
    hint = f"with {options},inconclusive it ends with status 5{more}"
    return "; ".join([f"{options} did not fail, but {decided} was decided: {named}", *caveats, hint])
