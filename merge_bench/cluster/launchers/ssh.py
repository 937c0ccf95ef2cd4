"""The ssh launcher: hosts of a file, reached with the plain OpenSSH client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merge_bench.cluster.kind import LauncherKind
from merge_bench.cluster.openssh import ssh

if TYPE_CHECKING:
    from merge_bench.cluster.hosts import HostSpec


def _hosts(values: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[HostSpec, ...]:
    from merge_bench.cluster.hosts import read_hosts

    return read_hosts(Path(str(values["hosts"])))


LAUNCHER = LauncherKind(
    name="ssh",
    help="The hosts of a file, reached with the OpenSSH client.",
    place=2,
    auto="ssh with --hosts",
    needs=("hosts",),
    hosts=_hosts,
    reach=ssh,
)
