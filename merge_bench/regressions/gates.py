"""Gates: whether a comparison that a command was asked for lets it end with 0 (``--fail-on``, ``--against``)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from merge_bench.analysis.comparable_runs import NothingToCompare
from merge_bench.analysis.compare import common_metrics, compare_campaigns, empty_compare_document
from merge_bench.analysis.documents import CompareDocument, Comparison, Failure
from merge_bench.analysis.statistics.verdict import ALPHA, can_reach_significance, least_launches_for_significance
from merge_bench.config.options import RunOptions
from merge_bench.config.parsers import find_stored_result
from merge_bench.errors import GateNotMet, GateWithoutBaseline, UsageError, WrongResult, require_library
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.results_folder import ResultsFolder, is_result_folder
from merge_bench.units import count_with_noun

HISTORY = "history"
"""The value of ``--against`` that means the present level of all earlier results."""
NO_BASELINE_REMEDY = "--allow-no-baseline lets this pass"
"""The end of the message of a gate that compared nothing; the client of a service knows the kind of failure by it."""
GATES = {
    "slower": ("SLOWER", "FAILED", "WRONG"),
    "inconclusive": ("INCONCLUSIVE", "FAILED", "WRONG"),
    "not-faster": ("SLOWER", "EQUIVALENT", "INCONCLUSIVE", "FAILED", "WRONG"),
}
"""The verdicts that each value of ``--fail-on`` does not let pass."""


@dataclass(frozen=True)
class RegressionGate:
    """The result or level that a campaign is compared with, and the verdicts that fail the command.

    `against`: an earlier result, or the folder of results whose level counts; None: the campaign's first config.
    `allow_no_baseline`: whether a campaign passes when there is nothing to compare with.
    """

    against: Campaign | Path | None
    fail_on: Sequence[str]
    threshold: float
    allow_no_baseline: bool = False

    @classmethod
    def from_options(cls, options: RunOptions, *, choice_count: int, run_count: int) -> Self | None:
        """Make the gate that the options of `run` ask for, None without any; reads the earlier result.

        `choice_count`: how many configs, engines or exchanges there are; `run_count`: how many runs, with all sizes.

        Raises UsageError if there is nothing to compare with, or the earlier result cannot be read.
        """
        against, fail_on, allowed = options.against, options.fail_on, options.allow_no_baseline
        if fail_on and not against and choice_count < 2:
            raise UsageError(
                "--fail-on needs a comparison; use --against RESULT, or name several configs with --configs"
            )
        if not against and not fail_on:
            return None
        if against == HISTORY:
            require_library("scipy", "history", f"--against {HISTORY}")
            if run_count > 1:
                raise UsageError(f"--against {HISTORY} takes one config and one size; run each by itself")
            return cls(Path(options.results), fail_on, options.threshold, allowed)
        path = find_stored_result(str(against), options.results) if against else None
        earlier = read_campaign(_earlier_result_path(path)) if path else None
        return cls(earlier, fail_on, options.threshold, allowed)

    def too_few_launches_warning(self, planned_launches: int) -> str | None:
        """A warning if the planned launches are too few for a verdict other than INCONCLUSIVE; else None."""
        if not isinstance(self.against, Campaign):
            return None
        counted = max((sum(launch.complete for launch in run.launches) for run in self.against.runs), default=0)
        if not counted or can_reach_significance(counted, planned_launches, alpha=ALPHA):
            return None
        least = least_launches_for_significance(alpha=ALPHA, paired=False)
        warning = (
            f"the baseline {self.against.folder} has {count_with_noun(counted, 'launch')}, and this run makes"
            f" {planned_launches:,}: a verdict needs at least {least} of each, so it can only be INCONCLUSIVE"
        )
        names = "--fail-on " + ",".join(self.fail_on)
        if not self.fail_on:
            return warning
        if any("INCONCLUSIVE" in GATES[gate] for gate in self.fail_on):
            return f"{warning}, and {names} ends with status {GateNotMet.exit_status}"
        return f"{warning}, and {names} cannot fail; with {names},inconclusive it ends with status 5"

    def judge_campaign(self, campaign: Campaign) -> tuple[CompareDocument, int]:
        """Compare a campaign; returns the document with its ``error``, and the exit status, as `apply_gates` does.

        Raises NothingToCompare if nothing can be compared and there is no ``--fail-on``; the campaign is kept.
        """
        from merge_bench.regressions.document import compare_with_earlier_result, compare_with_reference_level

        against, threshold, needed = self.against, self.threshold, isinstance(self.against, Path)

        def make_comparison() -> CompareDocument:
            if isinstance(against, Path):
                return compare_with_reference_level(campaign, against, threshold)
            if isinstance(against, Campaign):
                return compare_with_earlier_result(campaign, against, threshold)
            return compare_campaigns([campaign], threshold=threshold)

        document = compare_for_gates(() if needed else self.fail_on, make_comparison, threshold=threshold)
        metric, allowed = common_metrics(campaign.runs)[0].name, self.allow_no_baseline
        return apply_gates(
            document, metric_name=metric, fail_on=self.fail_on, comparison_required=needed, allow_no_baseline=allowed
        )


def _earlier_result_path(against: str) -> str:
    """The path of the result that ``--against`` names: a campaign, or the only campaign in a folder of results.

    Raises UsageError if the folder has several campaigns; the message names the newest.
    """
    folder = Path(against)
    if not folder.is_dir() or is_result_folder(folder):
        return against
    results = ResultsFolder(folder).entries()
    if len(results) > 1:
        raise UsageError(
            f"--against takes one result, but the folder {against} contains {len(results)}; name one of them, such as"
            f" the newest: --against {shlex.quote(results[0].id)}"
        )
    return results[0].id if results else against


def compare_for_gates(
    fail_on: Sequence[str], make_comparison: Callable[[], CompareDocument], *, threshold: float
) -> CompareDocument:
    """Make a comparison; if nothing can be compared, return a document without comparisons, whose note says why.

    Raises NothingToCompare if nothing can be compared and there are no gates.
    """
    try:
        return make_comparison()
    except NothingToCompare as why:
        if not fail_on:
            raise
        return empty_compare_document(str(why), threshold)


def apply_gates(
    document: CompareDocument,
    *,
    metric_name: str,
    fail_on: Sequence[str],
    comparison_required: bool = False,
    allow_no_baseline: bool = False,
) -> tuple[CompareDocument, int]:
    """Set the ``error`` of a document; returns it and the exit status: 4 for a wrong result, 5 for a gate not met.

    `fail_on`: the gates, keys of `GATES`. A document without a comparison in the metric meets no gate, unless
    `allow_no_baseline`; with `comparison_required` it fails without gates, too. A/A comparisons pass every gate: they
    are made to show the noise.
    """
    comparisons = [each for each in document.comparisons if each.metric == metric_name]
    chosen = [each for each in comparisons if not each.aa]
    wrong = [each for each in chosen if each.verdict == "WRONG"]
    failing = [each for each in chosen if any(each.verdict in GATES[gate] for gate in fail_on)]
    kind: type[GateNotMet] | type[WrongResult]
    if wrong:
        kind, message = WrongResult, f"{wrong[0].reason}: {', '.join(each.candidate for each in wrong)}"
    elif failing:
        verdicts, *caveats = _verdicts_and_caveats(failing)
        kind, message = GateNotMet, "; ".join([f"--fail-on {','.join(fail_on)}: {verdicts}", *caveats])
    elif not comparisons and (comparison_required or fail_on) and not allow_no_baseline:
        kind, message = GateWithoutBaseline, "; ".join([*document.notes, NO_BASELINE_REMEDY])
    else:
        return document, 0
    return msgspec.structs.replace(document, error=Failure(kind.code, message)), kind.exit_status


def gate_summary(document: CompareDocument, *, metric_name: str, fail_on: Sequence[str]) -> str:
    """A sentence that names the gates that did not fail, and the verdicts; empty if a gate failed, or there is none.

    Gates that did not fail because a verdict is INCONCLUSIVE are not called passed.
    """
    comparisons = [each for each in document.comparisons if each.metric == metric_name]
    candidates = [each for each in comparisons if not each.aa]
    if document.error is None and not comparisons:
        return "; ".join([*document.notes, "this passes, because of --allow-no-baseline"])
    if document.error is not None or not fail_on or not candidates:
        return ""
    options = "--fail-on " + ",".join(fail_on)
    verdicts, *caveats = _verdicts_and_caveats(candidates)
    unsure = [each.verdict == "INCONCLUSIVE" for each in candidates]
    if not any(unsure):
        return "; ".join([f"{options} passed: {verdicts}", *caveats])
    decided = "nothing" if all(unsure) else "not everything"
    more = "" if candidates[0].level_of else "; more launches may decide it"
    hint = f"with {options},inconclusive it ends with status 5{more}"
    return "; ".join([f"{options} did not fail, but {decided} was decided: {verdicts}", *caveats, hint])


def _verdicts_and_caveats(comparisons: Sequence[Comparison]) -> list[str]:
    """The verdicts as a text, then each caveat once."""
    verdicts = ", ".join(f"{each.candidate} is {each.verdict} in {each.metric}" for each in comparisons)
    return [verdicts, *dict.fromkeys(caveat for each in comparisons for caveat in each.caveats)]
