"""The command line of `dask cuda worker`: what it takes, and what we give it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from merge_bench.cluster import dask_commands
from merge_bench.cluster.base import ClusterSettings
from merge_bench.host.pinning import Pin
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload import SyntheticSpec


def taken(command: Any) -> dict[str, Any]:
    """Every option of a click command: whether a value follows it, and its default."""
    found = {}
    for parameter in command.params:
        for option in [*parameter.opts, *parameter.secondary_opts]:
            if not option.startswith("-"):
                continue
            default = parameter.default
            plain = default if default is None or isinstance(default, (bool, int, float, str)) else "unset"
            found[option] = {"value": not parameter.is_flag, "default": plain}
    return found


def given() -> list[tuple[str, ...]]:
    """What we give `dask cuda worker`, over TCP and UCX, with and without TLS."""
    settings = ClusterSettings({}, Path("results"), gpus=1)
    found = []
    for protocol in ("tcp", "ucx", "tls"):
        plan = Plan(
            SyntheticSpec(1000, 0.3, 0), 2, iterations=1, warmup=0, launches=1, engine="cudf", exchange="ucx",
            protocol=protocol, verify="ends", timeout=15.0, seed=0,
        )  # fmt: skip
        place = dask_commands.ProcessLocation("here", "/scratch", "lo", "127.0.0.1")
        argv = dask_commands.worker_command(plan, settings, place, 0, {}, Pin((), "0", ())).argv
        if argv[len(dask_commands.DASK) :][:2] != ("cuda", "worker"):
            raise AssertionError(f"this is no dask cuda worker: {' '.join(argv)}")
        # Dask checks that the certificate's files exist.
        words = argv[len(dask_commands.DASK) + 2 :]
        found.append(tuple(__file__ if word.endswith(".pem") else word for word in words))
    return found


def unknown(words: Sequence[str], options: Mapping[str, Any]) -> Iterator[str]:
    """What in a command line is none of the options, or lacks its value."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word not in options:
            yield f"{word} is no option of dask cuda worker"
        elif options[word]["value"] and (not rest or rest.pop(0).startswith("--")):
            yield f"{word} needs a value"
