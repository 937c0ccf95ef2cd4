"""The `report` command: read campaigns, build the report, write it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign
from merge_bench.view.report.full.write import (
    REPORT,
    Outputs,
    check_campaigns,
    check_outputs,
    ucx_defaults,
    write,
)

if TYPE_CHECKING:
    from merge_bench.view.report.full.build import References


def report_command(
    results: Sequence[str], *, output: str | None, markdown: str | None, figures: str | None, references: Sequence[str]
) -> int:
    """`report`: a page about stored results, and what was asked for beside it."""
    if "list" in references:
        _print_references()
        return 0
    if not results:
        raise UsageError("name a RESULT, a campaign's folder or its records.jsonl")
    campaigns = [read_campaign(result) for result in results]
    check_campaigns(campaigns)
    page = Path(output) if output else campaigns[0].folder / REPORT
    outputs = Outputs(page, Path(markdown) if markdown else None, Path(figures) if figures else None)
    check_outputs(outputs, campaigns)
    published = _references(references)
    from merge_bench.view.report.full.build import build

    return write(build(campaigns, published, ucx_defaults(campaigns)), outputs)


def _references(names: Sequence[str]) -> References:
    from merge_bench.analysis import published
    from merge_bench.view.report.full.build import References

    found = References()
    for name in dict.fromkeys(names):
        kind = published.dataset(name).kind
        if kind == published.MERGE:
            found = References((*found.merges, *published.merge_results(name)), found.settings, found.rows)
        elif kind == published.SETTINGS:
            found = References(found.merges, (*found.settings, *published.settings_effects(name)), found.rows)
        elif kind == published.NETWORK:
            found = References(found.merges, found.settings, (*found.rows, *published.network_rows(name)))
        else:
            folder = published.campaign_folder(name)
            raise UsageError(f"--reference {name} is a campaign; name it as a RESULT: {folder}")
    return found


def _print_references() -> None:
    from merge_bench.analysis.published import CAMPAIGN, datasets

    known = {name: found for name, found in sorted(datasets().items()) if found.kind != CAMPAIGN}
    width = max(map(len, known), default=0)
    for name, found in known.items():
        print(f"{name:{width}}  {found.kind}: {found.title} ({found.cite})")
