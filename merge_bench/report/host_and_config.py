"""What people read before they measure: a config as UCX sees it, the findings of `doctor`, a cluster's transports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TextIO

import msgspec

from merge_bench.analysis.documents import (
    CheckedConfig,
    ConfigCheckDocument,
    SelectedProtocols,
    TransportsDocument,
    UcxReleaseCheck,
)
from merge_bench.config.check import BRINGS_CODE, ConfigCheckResult
from merge_bench.host.description import Finding
from merge_bench.host.doctor import BAD, OK, WARN
from merge_bench.host.pinning import WorkerBinding
from merge_bench.report.run_sections import write_selected_protocols, write_selected_transports
from merge_bench.units import count_with_noun
from merge_bench.view.content import PageBuilder, columns_from_rows, group_by_key, rank_matrix_columns
from merge_bench.view.streams import print_document
from merge_bench.view.terminal import print_page_at_exit

_REMARKS = ("unknown", "invalid", BRINGS_CODE, "module-absent", "no-effect", "deprecated")
_STYLES = {WARN: "yellow", BAD: "bold red"}
HEADINGS = ("Rank", "Worker", "Host", "GPU", "NUMA node\nof GPU", "NUMA nodes\nof cores", "RDMA ports", "Nearest port")


def print_config_check(
    checked: ConfigCheckResult,
    other_releases: Mapping[str, ConfigCheckResult] | None = None,
    *,
    json_output: bool = False,
    file: TextIO | None = None,
) -> None:
    """Print how UCX reads each setting of a config, as a table or as one JSON document.

    `other_releases`: how other releases of UCX read the config, by version.
    """
    others = [_check_other_release(checked, other) for other in (other_releases or {}).values()]
    if json_output:
        print_document(msgspec.structs.replace(config_check_document(checked), releases=others), indent=2)
        return
    settings, below = checked.variables, [*checked.error_messages, *checked.warnings]
    rows = []
    for setting in settings:
        remark = "" if any(setting.message in text for text in below) else setting.message
        line = str(setting.line or "")
        rows.append((line, f"{setting.name}={setting.value}", setting.state, setting.source, remark))
    with print_page_at_exit(file) as page:
        page.add_heading(f"{checked.config.path} against UCX {checked.ucx or '(none installed)'}")
        page.add_table(*columns_from_rows(("Line", "Setting", "State", "Source", "Remark"), rows, range(1, 5)))
        for conflict in checked.conflicts:
            page.add_paragraph(f"{conflict.code}: {conflict.message}", "yellow")
            page.add_paragraph(f"documented: {conflict.documented}", indent=4)
        for text in checked.warnings:
            page.add_paragraph(f"warning: {text}", "yellow")
        for text in checked.error_messages:
            page.add_paragraph(f"error: {text}", "bold red")
        for other in others:
            _write_release_differences(page, other)
        if checked.ok:
            warnings = len(checked.conflicts) + len(checked.warnings)
            remarks = sum(setting.state in _REMARKS for setting in settings)
            counts = [count_with_noun(warnings, "warning")] if warnings else []
            counts += [f"{count_with_noun(remarks, 'setting')} with a remark"] if remarks else []
            page.add_paragraph(f"ok: {', '.join(counts) or 'nothing to mend'}", "green")


def _check_other_release(checked: ConfigCheckResult, other_release: ConfigCheckResult) -> UcxReleaseCheck:
    """How another release of UCX reads the config of `checked`: its verdict, and the settings in other states."""
    states = {(each.name, each.line): each.state for each in checked.variables}
    differing = [
        each
        for each in other_release.variables
        if each.source == "config" and states.get((each.name, each.line)) != each.state
    ]
    return UcxReleaseCheck(ucx=other_release.ucx or "", ok=other_release.ok, variables=differing)


def _write_release_differences(page: PageBuilder, release: UcxReleaseCheck) -> None:
    """Put the settings that another release of UCX reads otherwise on a page."""
    reads = "reads these settings otherwise" if release.variables else "reads the config in the same way"
    page.add_paragraph(f"UCX {release.ucx} {reads}{'' if release.ok else ', and `run` refuses it'}")
    for variable in release.variables:
        message = f", {variable.message}" if variable.message else ""
        page.add_paragraph(
            f"line {variable.line}: {variable.name}={variable.value}: {variable.state}{message}",
            indent=4,
        )


def config_check_document(checked: ConfigCheckResult) -> ConfigCheckDocument:
    """Make the document that ``check --json`` prints."""
    config = checked.config
    return ConfigCheckDocument(
        ok=checked.ok,
        config=CheckedConfig(name=config.name, path=str(config.path), sha256=config.sha256),
        ucx=checked.ucx,
        variables=list(checked.variables),
        conflicts=list(checked.conflicts),
        errors=list(checked.error_messages),
        warnings=list(checked.warnings),
    )


def print_doctor_findings(
    findings: Sequence[Finding], file: TextIO | None = None, *, bindings: Sequence[WorkerBinding] = ()
) -> None:
    """Print tables of the findings of ``doctor`` and of workers, then the effect and remedy of each problem."""
    with print_page_at_exit(file) as page:
        hosts = {finding.host for finding in findings if finding.host}
        page.add_heading(f"merge_bench doctor · {', '.join(sorted(hosts))}")
        rows = [(each.host if len(hosts) > 1 else "", each.check, each.state, each.fact) for each in findings]
        page.add_table(*columns_from_rows(("Host", "Check", "State", "Found"), rows, range(4)))
        write_worker_bindings(page, bindings)
        wrong = [finding for state in (BAD, WARN) for finding in findings if finding.state == state]
        if wrong:
            page.add_heading("Effects and remedies")
        for finding in wrong:
            where = f"{finding.host}: " if len(hosts) > 1 else ""
            spoils = f": {finding.spoils}" if finding.spoils else ""
            page.add_paragraph(
                f"{finding.state}  {where}{finding.check} ({finding.fact}){spoils}", _STYLES[finding.state]
            )
            if finding.remedy:
                page.add_paragraph(f"→ {finding.remedy}", indent=2)
        counts = ", ".join(f"{sum(f.state == state for f in findings)} {state}" for state in (BAD, WARN, OK))
        page.add_paragraph(counts, "dim")


def print_transports(document: TransportsDocument, *, show_available: bool) -> None:
    """Print the transports of a cluster on standard output."""
    with print_page_at_exit() as page:
        write_selected_transports(page, document.pairs, document.requested)
        cells = {(pair.from_rank, pair.to_rank): " ".join(pair.transports) or "none" for pair in document.pairs}
        if columns := rank_matrix_columns(cells, are_texts=True):
            page.add_heading("Transports from a worker (row) to another (column)")
            page.add_table(*columns)
        groups_of_pairs = []
        for ranges, alike in group_by_key(document.pairs, lambda pair: tuple(pair.protocols)).items():
            pairs = [(pair.from_rank, pair.to_rank) for pair in alike]
            groups_of_pairs.append(SelectedProtocols(pairs=pairs, ranges=list(ranges)))
        write_selected_protocols(page, groups_of_pairs)
        write_worker_bindings(page, document.bindings)
        if show_available:
            hosts = document.available
            groups = group_by_key(
                hosts, lambda host: tuple(sorted((name, *found) for name, found in hosts[host].items()))
            )
            page.add_heading("Transports available on each host")
            rows = [(", ".join(names), name, ", ".join(found)) for key, names in groups.items() for name, *found in key]
            page.add_table(*columns_from_rows(("Hosts", "Transport", "Devices"), rows, range(3)))
        page.add_warnings(document.warnings)


def write_worker_bindings(page: PageBuilder, bindings: Sequence[WorkerBinding]) -> None:
    """Put a table of the workers with their GPUs, NUMA nodes and RDMA ports on a page, if there is a GPU or a port."""
    if not any(each.gpu is not None or each.ports or each.near for each in bindings):
        return
    page.add_heading("Workers, their GPUs and RDMA ports")
    rows, problems = [], []
    for binding in bindings:
        numbers = (binding.rank, binding.gpu, binding.gpu_node)
        rank, gpu, gpu_node = ("" if number is None else str(number) for number in numbers)
        nodes, ports = ", ".join(map(str, binding.core_nodes)), ", ".join(binding.ports) or "none"
        fits = "no" if binding.problems else "yes" if binding.near and binding.ports else ""
        worker, places = "" if rank else binding.worker, (nodes, ports, binding.distance or "")
        rows.append((rank, worker, binding.host, gpu, gpu_node, *places, fits))
        who = f"rank {rank}" if rank else binding.worker
        problems += [f"{who} on {binding.host}: {problem}" for problem in binding.problems]
    page.add_table(*columns_from_rows((*HEADINGS, "Fits"), rows, range(len(HEADINGS) + 1)))
    for problem in problems:
        page.add_paragraph(problem, "yellow")
