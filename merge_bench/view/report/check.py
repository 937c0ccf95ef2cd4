"""What UCX makes of a config, for people."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from merge_bench.analysis.documents.check import CheckDocument, CheckedConfig
from merge_bench.config.check import BRINGS_CODE, CheckResult
from merge_bench.view.document import print_document
from merge_bench.view.streams import raw
from merge_bench.view.text import plural, visible

_COLOURS = dict.fromkeys(("unknown", "invalid", BRINGS_CODE), "red")
_COLOURS |= dict.fromkeys(("module-absent", "no-effect", "deprecated"), "yellow")


def show_check(result: CheckResult, *, json_output: bool = False) -> None:
    """Print the outcome, as a table or one JSON document."""
    if json_output:
        print_document(document_of(result), indent=2)
    else:
        print_check(result, Console(file=raw(sys.stdout)))


def _safe(text: str) -> str:
    """`text` out of a config, neither markup nor a control character."""
    return escape(visible(text, "\n"))


def print_check(result: CheckResult, console: Console) -> None:
    """The outcome for people."""
    table = Table(
        title=f"{_safe(str(result.config.path))} against UCX {result.ucx or '(none installed)'}", title_justify="left"
    )
    table.add_column("line", justify="right")
    table.add_column("setting", overflow="fold", ratio=1)
    table.add_column("state", no_wrap=True)
    table.add_column("source", no_wrap=True)
    below = [*result.errors, *result.warnings]
    for each in result.variables:
        colour = _COLOURS.get(each.state, "green")
        note = (
            f"\n  [dim]{_safe(each.message)}[/dim]"
            if each.message and not any(each.message in text for text in below)
            else ""
        )
        table.add_row(
            str(each.line or ""),
            _safe(f"{each.name}={each.value}") + note,
            f"[{colour}]{each.state}[/{colour}]",
            each.source,
        )
    console.print(table)
    for conflict in result.conflicts:
        console.print(f"[yellow]{conflict.code}[/yellow] {_safe(conflict.message)}", soft_wrap=True)
        console.print(f"    documented: {_safe(conflict.documented)}", soft_wrap=True)
    for warning in result.warnings:
        console.print(f"[yellow]warning[/yellow] {_safe(warning)}", soft_wrap=True)
    for sentence in result.errors:
        console.print(f"[red]error[/red] {_safe(sentence)}", soft_wrap=True)
    if result.ok:
        console.print(f"[green]ok[/green]: {_remaining(result)}", soft_wrap=True)


def _remaining(result: CheckResult) -> str:
    """How many warnings and remarks a config has that `run` accepts."""
    warnings = len(result.conflicts) + len(result.warnings)
    remarks = sum(each.state in _COLOURS for each in result.variables)
    found = [plural(warnings, "warning")] if warnings else []
    found += [f"{plural(remarks, 'setting')} with a remark"] if remarks else []
    return ", ".join(found) or "nothing to mend"


def document_of(result: CheckResult) -> CheckDocument:
    """The document of ``check --json``."""
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
