"""The part of a run's report about energy, clocks and throttling."""

from __future__ import annotations

from merge_bench.analysis.documents import GpuEnergy, RunDocument
from merge_bench.host.gpu import THROTTLING
from merge_bench.view.content import Column, Page
from merge_bench.view.numbers import NULL, cell, number


def write_energy(page: Page, document: RunDocument, mark: str | None) -> None:
    """Put the energy of a merge, and a row for each GPU, on a page; nothing where no GPU or energy could be read."""
    energy = document.energy
    if energy is None or (energy.joules_per_merge is None and not energy.gpus and not energy.hosts):
        return
    page.heading("Energy and clocks during the timed iterations")
    of = f" ({energy.counts})" if energy.counts else ""
    page.pairs(("Energy per merge (J)", number(energy.joules_per_merge) + of), mark=mark)
    gpus = energy.gpus
    if gpus:
        several = len({gpu.host for gpu in gpus}) > 1
        page.table(
            Column("Host", [gpu.host for gpu in gpus] if several else [], text=True),
            Column("GPU", [str(gpu.index) for gpu in gpus]),
            Column("Energy per\nmerge (J)", [number(gpu.joules_per_merge) for gpu in gpus]),
            Column("Mean power\n(W)", [_of_limit(gpu.watts, gpu.limit_watts) for gpu in gpus]),
            Column("SM clock\n(MHz)", [_of_limit(gpu.sm_mhz, gpu.max_sm_mhz) for gpu in gpus]),
            Column("Memory clock\n(MHz)", [_of_limit(gpu.memory_mhz, gpu.max_memory_mhz) for gpu in gpus]),
            Column("Temperature\n(°C)", [cell(gpu.celsius) for gpu in gpus]),
            Column("Throttled", [_throttling(gpu) for gpu in gpus], text=True),
            mark=mark,
        )
        page.line("Power and clocks: of the most that the GPU may take. Clocks: as read before and after.", "dim")
    if energy.hosts:
        page.table(
            Column("Host", [host.host for host in energy.hosts], text=True),
            Column("Packages", [str(host.packages) for host in energy.hosts]),
            Column("Energy per\nmerge (J)", [number(host.joules_per_merge) for host in energy.hosts]),
            Column("Mean power\n(W)", [number(host.watts) for host in energy.hosts]),
            mark=mark,
        )
    for reason in energy.unknown:
        page.note(f"energy unknown: {reason}")


def _of_limit(value: float | None, limit: float | None) -> str:
    """``412 of 700``; without a limit the value alone."""
    shown = NULL if value is None else f"{value:.0f}"
    return shown if limit is None else f"{shown} of {limit:.0f}"


def _throttling(gpu: GpuEnergy) -> str:
    """``23 % (power cap)``; ``no``; where no time is counted, the causes as they were read, or ``-``."""
    shares = gpu.throttled_share or {}
    counted = [f"{share:.0%} ({cause})" for cause, share in shares.items() if share >= 0.001]
    seen = [cause for cause in gpu.reasons or () if cause in THROTTLING and cause not in shares]
    return ", ".join([*counted, *seen]) or (NULL if gpu.throttled_share is None and gpu.reasons is None else "no")
