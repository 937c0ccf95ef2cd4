"""The local launcher: Dask's scheduler and workers (on GPUs `dask cuda worker`) as processes of this machine."""

from __future__ import annotations

from merge_bench.cluster.base import Launcher, LauncherKind


def _make() -> Launcher:
    from merge_bench.cluster.start_locally import LocalLauncher

    return LocalLauncher()


LAUNCHER = LauncherKind(name="local", help="Processes on this machine.", place=1, starts_here=True, make=_make)
