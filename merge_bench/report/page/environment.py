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
    """The command line that a shell runs again; the program by its module, wherever it lay."""
    program, *words = argv or ("",)
    if PurePath(program).name in ("__main__.py", "merge-bench"):
        return shlex.join(["python", "-m", "merge_bench", *words])
    return shlex.join([PurePath(program).name, *words])


def write_command(page: Page, campaign: Campaign) -> None:
    """What runs this campaign again, and with which state of the program."""
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
    """Hosts, packages, UCX, configs; `defaults`: what UCX of the same version has where nothing is set, if known."""
    # Every worker of every launch. Launches on the same hosts record the same values, so sets of values stay small.
    workers = [worker for launch in campaign.launches if launch.line is not None for worker in launch.line.workers]
    if workers:
        _hosts(page, workers)
        _devices(page, workers)
        page.heading("Packages")
        page.pairs(*sorted(properties.joined_values(worker.versions for worker in workers).items()))
        _ucx(page, workers, defaults)
    else:
        page.line("The records do not describe the machine: no launch started, or the result was imported.", "dim")
    _configs(page, campaign)


def _hosts(page: Page, workers: Sequence[Worker]) -> None:
    hosts = grouped(workers, lambda worker: worker.host)
    page.heading("Hosts")
    rows = []
    for host, mine in hosts.items():
        ranks, hardware = sorted({worker.rank for worker in mine}), mine[0].hardware
        counts = map(cell, (hardware.cpu_model, hardware.cores_online, hardware.numa_nodes))
        settings = map(cell, (hardware.kernel, hardware.huge_pages, hardware.tcp_congestion_control))
        rows.append((host, _span(ranks), *counts, gib(hardware.memory_bytes), *settings))
    headings = ("Host", "Ranks", "Processor", "Cores", "NUMA nodes", "Memory\n(GiB)", "Kernel", "Huge pages", "TCP")
    page.table(*by_row(headings, rows, (0, 1, 2, 6, 7, 8)))


def _devices(page: Page, workers: Sequence[Worker]) -> None:
    """GPUs and network devices by host."""
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
            rows[worker.host, "GPU", _listed(msgspec.to_builtins(gpu))] = None
    if rows:
        page.heading("Devices")
        page.table(*by_row(("Host", "Device", "Description"), rows, range(3)))


def _ucx(page: Page, workers: Sequence[Worker], defaults: Mapping[str, str] | None) -> None:
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


def _configs(page: Page, campaign: Campaign) -> None:
    page.heading("Configs")
    for config in (*campaign.head.configs, *(line.config for line in campaign.added)):
        page.line(f"{config.name}" + (f" ({config.path})" if config.path else ""))
        if config.variables:
            page.code("\n".join(f"{name}={shlex.quote(value)}" for name, value in config.variables.items()))


def _span(ranks: Sequence[int]) -> str:
    whole = len(ranks) > 2 and ranks[-1] - ranks[0] + 1 == len(ranks)
    return f"{ranks[0]} to {ranks[-1]}" if whole else ", ".join(map(str, ranks))


def _listed(values: Mapping[str, object]) -> str:
    """``index 0, name H200, nvlink bus 2 4``: what is known."""
    texts = {name: _listed(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return ", ".join(f"{name} {value}" for name, value in texts.items() if value is not None)
