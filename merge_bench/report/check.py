"""What UCX makes of a config, for people."""

from __future__ import annotations

from typing import TextIO

from merge_bench.analysis.documents import CheckDocument, CheckedConfig
from merge_bench.config.check import BRINGS_CODE, CheckResult
from merge_bench.units import plural
from merge_bench.view.content import Column
from merge_bench.view.document import print_document
from merge_bench.view.terminal import page_on

_REMARKS = ("unknown", "invalid", BRINGS_CODE, "module-absent", "no-effect", "deprecated")


def print_check(result: CheckResult, *, json_output: bool = False, file: TextIO | None = None) -> None:
    """Print what UCX makes of each setting of a config, as a table or as one JSON document."""
    if json_output:
        print_document(check_document(result), indent=2)
        return
    settings, below = result.variables, [*result.errors, *result.warnings]
    notes = ["" if any(each.message in text for text in below) else each.message for each in settings]
    with page_on(file) as page:
        page.heading(f"{result.config.path} against UCX {result.ucx or '(none installed)'}")
        page.table(
            Column("Line", [str(each.line or "") for each in settings]),
            Column("Setting", [f"{each.name}={each.value}" for each in settings], text=True),
            Column("State", [each.state for each in settings], text=True),
            Column("Source", [each.source for each in settings], text=True),
            Column("Remark", notes, text=True),
        )
        for conflict in result.conflicts:
            page.line(f"{conflict.code} {conflict.message}", "yellow")
            page.line(f"documented: {conflict.documented}", indent=4)
        for text in result.warnings:
            page.line(f"warning {text}", "yellow")
        for text in result.errors:
            page.line(f"error {text}", "bold red")
        if result.ok:
            warnings = len(result.conflicts) + len(result.warnings)
            remarks = sum(each.state in _REMARKS for each in settings)
            counts = [plural(warnings, "warning")] if warnings else []
            counts += [f"{plural(remarks, 'setting')} with a remark"] if remarks else []
            page.line(f"ok: {', '.join(counts) or 'nothing to mend'}", "green")


def check_document(result: CheckResult) -> CheckDocument:
    """The document that ``check --json`` prints."""
    config = result.config
    return CheckDocument(
        ok=result.ok,
        config=CheckedConfig(name=config.name, path=str(config.path), sha256=config.sha256),
        ucx=result.ucx,
        variables=list(result.variables),
        conflicts=list(result.conflicts),
        errors=list(result.errors),
        warnings=list(result.warnings),
    )
