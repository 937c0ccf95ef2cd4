"""The local launcher: `dask scheduler` and `dask worker` (or `dask cuda worker`) processes on this machine."""

from __future__ import annotations

from merge_bench.cluster.base import Launcher, LauncherKind


def _make() -> Launcher:
    from merge_bench.cluster.local_launcher import LocalLauncher

    return LocalLauncher()


LAUNCHER = LauncherKind(name="local", help="Processes on this machine.", place=1, starts_here=True, make=_make)
