"""Named ways to run `ucxx.benchmarks.cudf_merge`, the most likely to work well first. `docs/gpu.md` says what they try.

On an H200 the program's workers crashed, and nobody knows why. What was different in programs that worked there: they
did not fork, UCXX had no progress thread in them, and they ran with our settings of UCX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SPAWN, FORK = {"UCXX_PROGRAM_START": "spawn"}, {"UCXX_PROGRAM_START": "fork"}
LANES = {"UCX_POSIX_ERROR_HANDLING": "y", "UCX_SYSV_ERROR_HANDLING": "y"}  # as configs/optimized.cfg
LOOPBACK = {"UCX_NET_DEVICES": "lo", "UCXPY_IFNAME": "lo"}
BLOCKING, POLLING = {"UCXPY_PROGRESS_MODE": "blocking"}, {"UCXPY_PROGRESS_MODE": "polling"}


@dataclass(frozen=True)
class Variant:
    """One way: its name and the environment variables that make it."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)


VARIANTS = (
    Variant("spawn-lanes", {**SPAWN, **LANES}),
    Variant("spawn-blocking-lo", {**SPAWN, **LANES, **BLOCKING, **LOOPBACK}),
    Variant("spawn-blocking", {**SPAWN, **LANES, **BLOCKING}),
    Variant("spawn-lo", {**SPAWN, **LANES, **LOOPBACK}),
    Variant("spawn", SPAWN),
    Variant("spawn-undelayed", {**SPAWN, **LANES, "UCXPY_ENABLE_DELAYED_SUBMISSION": "0"}),
    Variant("spawn-polling", {**SPAWN, **LANES, **POLLING}),
    Variant("spawn-no-sm", {**SPAWN, **BLOCKING, "UCX_TLS": "tcp,self,cuda_copy,cuda_ipc"}),
    Variant("spawn-no-cache", {**SPAWN, **LANES, **BLOCKING, "UCX_MEMTYPE_CACHE": "n"}),
    Variant("fork-blocking", {**FORK, **LANES, **BLOCKING}),
    Variant("fork", FORK),
)
