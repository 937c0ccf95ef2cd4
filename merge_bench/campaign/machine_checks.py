"""Checks that the machine that starts a run has what the run needs, before any process is started."""

from __future__ import annotations

import functools
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from merge_bench.cluster.base import exit_status_text
from merge_bench.cluster.dask_commands import THREAD_COUNTS
from merge_bench.cluster.host_check import refuse_unconnected_mig_gpus
from merge_bench.config import allowed_transports
from merge_bench.config.files import TOKENS
from merge_bench.config.installation import setup_command
from merge_bench.config.ucx_info import NAME_LISTS, find_installed_ucx, usable_transports
from merge_bench.errors import GateNotMet, UsageError, WarningMessage
from merge_bench.host import gpu
from merge_bench.host.machine import available_memory_bytes, shared_memory_problem, usable_core_count
from merge_bench.host.pinning import visible_gpu_name
from merge_bench.merge.distribution import table_bytes_by_side
from merge_bench.merge.engines import EngineDescription
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.plan import PROCESS_BYTES, Plan
from merge_bench.merge.workload.tables import TableSpec, estimate_output_bytes
from merge_bench.units import format_bytes, format_count

if TYPE_CHECKING:
    from merge_bench.merge.verification.duckdb_reference import ResultRowCounts

TABLE_COPIES = 3  # the chunks, the parcels sent and the parcels received
LIBRARY_SECONDS = 60.0
_LIBRARY_VARIABLES = re.compile(
    r"(NUMBA|POLARS|ARROW|OPENBLAS|MKL|OMP|GOMP|KMP|RAYON|MALLOC|GLIBC|_RJEM)_\w+|PYTHON\w+"
)
_LIBRARY_USE = """
import numba, numpy as np, polars as pl
frame = pl.DataFrame({"key": np.arange(9)})
total = numba.njit(nogil=True)(lambda values: values.sum())
assert total(frame.join(frame, on="key")["key"].to_numpy()) == 36
"""
"""What a worker does first: it compiles a loop with numba, and joins two frames with polars."""


@dataclass(frozen=True)
class MachineResources:
    """The resources of the machine that starts a run, on which its plan depends; by default, those of this machine.

    `environ`: its environment; `gpus`, `cores`: the numbers that processes may use; `memory`: available bytes; `looks`:
    whether tables of benchmarks are generated and running clusters are asked. If not, synthetic tables and two workers
    are assumed.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    gpus: int = field(default_factory=lambda: gpu.count_visible_gpus())
    cores: int = field(default_factory=usable_core_count)
    memory: int = field(default_factory=available_memory_bytes)
    looks: bool = True


def check_engine(
    engine: EngineDescription, environment: Mapping[str, str], gpus: int, *, workers_are_here: bool
) -> None:
    """Refuse a GPU engine without GPU or package, or with settings that change the order of GPU numbers.

    `workers_are_here`: whether workers run on this machine; elsewhere they check GPU and package themselves once they
    are up.
    """
    if not engine.device_memory:
        return
    names = f"--engine {engine.name} and --memory cuda"
    if workers_are_here and not gpus:
        raise UsageError(f"{names} need an NVIDIA GPU, but none is visible on this host")
    if workers_are_here and engine.missing_package is not None:
        setup = f"{setup_command('cu13')}, or with a CUDA 12 driver: {setup_command('cu12')}"
        raise UsageError(f"{names} each need the package {engine.missing_package}; run: {setup}")
    for name, order in gpu.IN_ORDER.items():
        if environment.get(name, order) != order:
            differ = f"with {name}={environment[name]}, GPU numbers differ from those of nvidia-smi"
            raise UsageError(f"{differ}; unset it, or set it to {order}")


def check_gpu_count(workers: int, gpus: int, workers_per_gpu: int) -> None:
    """Refuse more than `workers_per_gpu` workers on each of this machine's GPUs; without GPUs, there is no limit."""
    if gpus and workers > gpus * workers_per_gpu:
        needs = (
            f"--workers {workers} with --workers-per-gpu {workers_per_gpu} needs {-(-workers // workers_per_gpu)} GPUs"
        )
        share = f"use --workers-per-gpu {-(-workers // gpus)} to share GPUs"
        raise UsageError(f"{needs}, but only {gpus} can be used; {share}")


def check_mig_parts(workers: int, workers_per_part: int) -> None:
    """Refuse workers on MIG parts of this machine's GPUs that cannot exchange data.

    `workers_per_part`: the number of workers on each part.
    """
    names = gpu.visible_gpu_names()
    used = dict.fromkeys(visible_gpu_name(names, number // workers_per_part) for number in range(workers))
    refuse_unconnected_mig_gpus({name: gpu.gpu_instance_id(name) for name in used}, "workers on this host")


def check_packages_installed(plan: Plan) -> None:
    """Refuse a plan whose data plane, or whose ``ucx_perftest`` for --check-link, is not installed here."""
    if plan.data_plane.missing_package is not None:
        needs = f"--exchange {plan.exchange} needs the package {plan.data_plane.missing_package}"
        raise UsageError(f"{needs}, which is not installed in this environment; run: {setup_command()}")
    if plan.check_link:
        from merge_bench.cluster import ucx_perftest

        ucx_perftest.find_perftest_program()


def check_transports(required: Sequence[str], environment: Mapping[str, str], workers: int = 2) -> None:
    """Check that this machine's UCX can connect the workers; `environment`: the variables that workers start with.

    Raises UsageError if UCX_TLS and lists of devices leave no transport between two processes (UCX itself would only
    say "no such device"), or there is too little shared memory for the workers; GateNotMet if this machine has none of
    the `required` transports.
    """
    installed = find_installed_ucx(environment.get("MERGE_BENCH_UCX", "auto"), environment)
    allowed = allowed_transports.find_allowed_transports(environment.get("UCX_TLS", "all"))
    usable = allowed
    if installed is not None and installed.transports:  # else the workers will report theirs
        usable &= usable_transports(installed, environment)
    if "posix" in (usable if _can_connect_processes(usable) else allowed):  # UCX leaves it out where nothing is free
        problem = shared_memory_problem(Path(environment.get("UCX_POSIX_DIR") or "/dev/shm"), workers)
        if problem:
            raise UsageError(problem)
    if installed is None or not installed.transports:
        return
    ucx = f"UCX {installed.version} ({installed.info.origin})"
    if not _can_connect_processes(usable):
        lists = " with ".join(f"{name}={environment[name]}" for name in NAME_LISTS if name in environment)
        offered = (
            f"{name} on {', '.join(devices)}" if name == "tcp" else name
            for name, devices in sorted(installed.transports.items())
            if name not in allowed_transports.WITHIN_A_PROCESS
        )
        leaves = f"{lists or 'UCX'} leaves no transport for two workers to communicate"
        raise UsageError(f"{leaves}; add one that {ucx} offers on this host: {'; '.join(offered)}")
    if required and not allowed_transports.resolve_transport_aliases(required) & set(installed.transports):
        only = f"{ucx} on this host offers only {', '.join(sorted(installed.transports))}"
        raise GateNotMet(f"--require-transport {','.join(required)} cannot be met: {only}")


def _can_connect_processes(transports: frozenset[str]) -> bool:
    return bool(transports - allowed_transports.WITHIN_A_PROCESS - allowed_transports.ONLY_BESIDE_ANOTHER)


def check_tables_fit_in_memory(
    spec: TableSpec,
    workers: int,
    available_bytes: int,
    join_kind: JoinKind = JoinKind.INNER,
    broadcast_side: Side | None = None,
) -> tuple[WarningMessage, ...]:
    """Refuse a merge of tables that does not fit into memory; returns warnings about rows with null keys.

    `available_bytes`: of memory; `broadcast_side`: the table that is sent whole to every worker. Raises UsageError if
    the tables and the result need more memory than is available.
    """
    counts, sizes = _count_result_rows(spec, join_kind), table_bytes_by_side(spec)
    tables, result = int(sum(sizes.values())), estimate_output_bytes(spec, counts.rows, join_kind)
    # Of a broadcast: the chunks, what is partitioned of the table that stays, and the other one once on every worker.
    copies: float = TABLE_COPIES * tables
    if broadcast_side is not None:
        copies = tables + sizes[broadcast_side.opposite] + workers * sizes[broadcast_side]
    needed = int(workers * PROCESS_BYTES + copies + result)
    if needed > available_bytes:
        remedy = "use smaller tables, or keys that repeat less often"
        if broadcast_side is not None and workers * sizes[broadcast_side] > TABLE_COPIES * tables:
            copied = f"the {broadcast_side.value} table to all {workers} workers"
            remedy = f"use --distribution shuffle, which does not copy {copied}"
        needs = f"a merge with {format_count(counts.rows)} result rows needs about {format_bytes(needed)} of memory"
        raise UsageError(f"{needs}, but {socket.gethostname()} has {format_bytes(available_bytes)}; {remedy}")
    return null_key_warnings(spec, counts.keyless)


@functools.lru_cache(maxsize=1)
def _count_result_rows(spec: TableSpec, join_kind: JoinKind) -> ResultRowCounts:
    """Count the rows of the merge result with DuckDB, once for all runs that merge the same tables."""
    from merge_bench.merge.verification import duckdb_reference

    return duckdb_reference.count_result_rows(spec, join_kind)


def null_key_warnings(spec: TableSpec, null_key_rows: Mapping[Side, int]) -> tuple[WarningMessage, ...]:
    """A warning with the number of rows that have a null key; none if there are no such rows."""
    counted = [
        f"{format_count(null_key_rows[side])} of {format_count(spec.side(side).rows)} rows of the {side.value} table"
        for side in Side
        if null_key_rows[side]
    ]
    if not counted:
        return ()
    floats = any(field.is_floating for field in spec.left.fields if field.name in spec.keys)
    null = "null or NaN" if floats else "null"
    has = "have" if sum(null_key_rows.values()) > 1 else "has"
    what = f"{' and '.join(counted)} {has} a {null} key; a {null} key matches nothing, as in SQL"
    return (WarningMessage("null-keys", f"{what}; pandas matches them with each other"),)


def check_library_variables(config_variables: Mapping[str, str], own_environment: Mapping[str, str]) -> None:
    """Refuse variables that make a library end the worker's process, such as ``NUMBA_CPU_FEATURES``.

    `config_variables`: the variables that processes get; `own_environment`: this process's environment. Python's own
    variables there have not ended this process either, and Polars sets that of its allocator itself when it is
    imported. Only if one of the libraries has a variable, a child process uses them, which takes a second. Raises
    UsageError, which names the variables and the last line that the child printed.
    """
    outside = {name: value for name, value in own_environment.items() if not name.startswith(("PYTHON", "_RJEM"))}
    suspects = {
        name: value
        for name, value in sorted({**outside, **config_variables}.items())
        if _LIBRARY_VARIABLES.fullmatch(name) and not (name in THREAD_COUNTS and value.isdecimal() and int(value) > 0)
    }
    environment = tuple(
        (name, value) for name, value in {**own_environment, **config_variables}.items() if name not in TOKENS
    )
    if suspects and (problem := _worker_start_error(environment)):
        names = ", ".join(f"{name}={value}" for name, value in suspects.items())
        raise UsageError(f"a worker would end at its start with {names}: {problem}; correct or leave out")


@functools.cache
def _worker_start_error(environment: tuple[tuple[str, str], ...]) -> str:
    """Use a worker's libraries in a process with these variables; returns how it failed, empty if it succeeded."""
    argv, nothing = [sys.executable, "-P", "-c", _LIBRARY_USE], subprocess.DEVNULL
    try:
        done = subprocess.run(argv, env=dict(environment), stdin=nothing, capture_output=True, timeout=LIBRARY_SECONDS)
    except subprocess.TimeoutExpired:
        return ""
    if done.returncode == 0:
        return ""
    lines = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if re.search(r"rror|ssertion|Exception", line)] or lines or ["it printed nothing"]
    return f"its process {exit_status_text(done.returncode)} ({errors[-1].strip()[-160:]})"
