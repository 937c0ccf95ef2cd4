"""What the doctor found, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from merge_bench.host.doctor import BAD, OK, WARN, Finding
from merge_bench.host.pinning import Binding
from merge_bench.report.bindings import write_bindings
from merge_bench.view.content import by_row
from merge_bench.view.terminal import page_on

_STYLES = {WARN: "yellow", BAD: "bold red"}


def print_findings(
    findings: Sequence[Finding], file: TextIO | None = None, *, bindings: Sequence[Binding] = ()
) -> None:
    """Print tables of findings and workers, then what each finding that is not ok spoils, and its remedy."""
    with page_on(file) as page:
        hosts = {finding.host for finding in findings if finding.host}
        page.heading(f"merge_bench doctor · {', '.join(sorted(hosts))}")
        rows = [(each.host if len(hosts) > 1 else "", each.check, each.state, each.found) for each in findings]
        page.table(*by_row(("Host", "Check", "State", "Found"), rows, range(4)))
        write_bindings(page, bindings)
        wrong = [finding for state in (BAD, WARN) for finding in findings if finding.state == state]
        if wrong:
            page.heading("Effects and remedies")
        for finding in wrong:
            where = f"{finding.host}: " if len(hosts) > 1 else ""
            spoils = f": {finding.spoils}" if finding.spoils else ""
            page.line(f"{finding.state}  {where}{finding.check} ({finding.found}){spoils}", _STYLES[finding.state])
            if finding.remedy:
                page.line(f"→ {finding.remedy}", indent=2)
        counts = ", ".join(f"{sum(f.state == state for f in findings)} {state}" for state in (BAD, WARN, OK))
        page.line(counts, "dim")
