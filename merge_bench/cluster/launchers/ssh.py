"""The ssh launcher: hosts of a file, reached with the plain OpenSSH client."""

from __future__ import annotations

from pathlib import Path

from merge_bench.cluster.base import LauncherKind
from merge_bench.cluster.hosts_file import read_hosts
from merge_bench.cluster.openssh import ssh

LAUNCHER = LauncherKind(
    name="ssh",
    help="The hosts of a file, reached with the OpenSSH client.",
    place=2,
    auto="ssh with --hosts",
    needs=("hosts",),
    hosts=lambda options, environ: read_hosts(Path(options.hosts or "")),
    reach=ssh,
)
