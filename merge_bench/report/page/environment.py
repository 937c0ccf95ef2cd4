"""What a campaign ran on and with: command, state of the program, hosts, packages, UCX and its settings, configs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath

import msgspec

from merge_bench.analysis.compare import properties
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import Worker
from merge_bench.view.content import Page, by_row, grouped
from merge_bench.view.numbers import NULL, cell, gib


def command_of(argv: Sequence[str]) -> str:
    """A command line with which a shell repeats `argv`; merge_bench is called as ``python -m merge_bench``."""
    program, *words = argv or ("",)
    if PurePath(program).name in ("__main__.py", "merge-bench"):
        return shlex.join(["python", "-m", "merge_bench", *words])
    return shlex.join([PurePath(program).name, *words])


def write_command(page: Page, campaign: Campaign) -> None:
    """Put the command that repeats a campaign, and the version of merge_bench that it ran with, on a page."""
    imported = campaign.head.imported_from
    if imported is not None:
        page.line(f"Imported from {imported.file}, which {imported.program} printed.")
        page.code(imported.command or "the imported text does not contain the command line")
        return
    words = list(campaign.head.argv)
    if campaign.extensions and "--extend" in words:  # what adds launches does not measure it again
        del words[(at := words.index("--extend")) : at + 2]
    words = [word for word in words if not word.startswith("--extend=")]
    page.code(command_of(words))
    git = campaign.head.git
    commit = (git and git.commit) or "not known"
    changed = ", with local changes" if git and git.dirty else ""
    page.line(f"merge_bench {campaign.head.version}, commit {commit}{changed}.", "dim")


def write_environment(page: Page, campaign: Campaign, defaults: Mapping[str, str] | None) -> None:
    """Put hosts, packages, UCX settings and configs on a page; `defaults`: settings of the same UCX if none are set."""
    # Every worker of every launch. Launches on the same hosts record the same values, so sets of values stay small.
    workers = [worker for launch in campaign.launches if launch.line is not None for worker in launch.line.workers]
    if workers:
        _write_hosts(page, workers)
        _write_devices(page, workers)
        page.heading("Packages")
        page.pairs(*sorted(properties.joined_values(worker.versions for worker in workers).items()))
        _write_ucx(page, workers, defaults)
    else:
        page.line("The records do not describe the machine: no launch started, or the result was imported.", "dim")
    _write_configs(page, campaign)


def _write_hosts(page: Page, workers: Sequence[Worker]) -> None:
    hosts = grouped(workers, lambda worker: worker.host)
    page.heading("Hosts")
    rows = []
    for host, workers_here in hosts.items():
        ranks, hardware = sorted({worker.rank for worker in workers_here}), workers_here[0].hardware
        counts = map(cell, (hardware.cpu_model, hardware.cores_online, hardware.numa_nodes))
        settings = map(cell, (hardware.kernel, hardware.huge_pages, hardware.tcp_congestion_control))
        rows.append((host, _ranks_text(ranks), *counts, gib(hardware.memory_bytes), *settings))
    headings = ("Host", "Ranks", "Processor", "Cores", "NUMA nodes", "Memory\n(GiB)", "Kernel", "Huge pages", "TCP")
    page.table(*by_row(headings, rows, (0, 1, 2, 6, 7, 8)))


def _write_devices(page: Page, workers: Sequence[Worker]) -> None:
    """Put a table of the GPUs and network devices of each host on a page."""
    rows: dict[tuple[str, str, str], None] = {}
    for worker in workers:
        hardware = worker.hardware
        for name, about in (hardware.interfaces or {}).items():
            if about.up:
                speed = about.megabits_per_second
                rate = f"{speed:,} Mbit/s" if speed is not None else "speed not known"
                rows[worker.host, f"network {name}", f"{rate}, MTU {about.mtu}"] = None
        for name in hardware.infiniband or ():
            rows[worker.host, "InfiniBand", name] = None
        for gpu in hardware.gpus or ():
            rows[worker.host, "GPU", _known_values(msgspec.to_builtins(gpu))] = None
    if rows:
        page.heading("Devices")
        page.table(*by_row(("Host", "Device", "Description"), rows, range(3)))


def _write_ucx(page: Page, workers: Sequence[Worker], defaults: Mapping[str, str] | None) -> None:
    about = properties.joined_values(
        {"version": worker.ucx.version, "origin": worker.ucx.origin, "path": worker.ucx.path} for worker in workers
    )
    settings = properties.joined_values(worker.ucx.config for worker in workers)
    if about:
        page.heading("UCX")
        page.pairs(*about.items())
    if not settings:
        return
    environment = properties.joined_values(worker.environment for worker in workers)
    if defaults is not None:
        shown = {name for name in settings if settings[name] != defaults.get(name)} - set(properties.OF_A_PROCESS)
        page.heading("UCX settings that differ from the defaults")
    else:
        shown = {name for name, value in settings.items() if name in environment or " / " in value}
        page.heading("UCX settings that the environment sets or that differ between workers")
        page.line("The defaults are unknown: this machine has no UCX of that version.", "dim")
    rows = [
        (name, settings[name], (defaults or {}).get(name, NULL if defaults else ""))
        for name in settings
        if name in shown
    ]
    page.table(*by_row(("Setting", "Value", "Default"), rows, range(3)))
    if not shown:
        page.line("None.")
    page.line(f"The records contain all {len(settings)} settings; a / separates values of different workers.", "dim")


def _write_configs(page: Page, campaign: Campaign) -> None:
    page.heading("Configs")
    for config in (*campaign.head.configs, *(line.config for line in campaign.added)):
        page.line(f"{config.name}" + (f" ({config.path})" if config.path else ""))
        if config.variables:
            page.code("\n".join(f"{name}={shlex.quote(value)}" for name, value in config.variables.items()))


def _ranks_text(ranks: Sequence[int]) -> str:
    """``0 to 7``, or ``0, 2`` for ranks that do not follow each other."""
    complete = len(ranks) > 2 and ranks[-1] - ranks[0] + 1 == len(ranks)
    return f"{ranks[0]} to {ranks[-1]}" if complete else ", ".join(map(str, ranks))


def _known_values(values: Mapping[str, object]) -> str:
    """``index 0, name H200, nvlink bus 2 4``: names and values, without the unknown ones."""
    texts = {name: _known_values(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return ", ".join(f"{name} {value}" for name, value in texts.items() if value is not None)
