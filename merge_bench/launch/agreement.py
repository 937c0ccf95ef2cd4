"""Whether all hosts have the same Python, packages and version of this project as the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merge_bench import __version__, facts
from merge_bench.errors import UsageError
from merge_bench.launch import node


def check_alike(hosts: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse hosts that differ from the driver; `hosts`: what each tells of itself (`node.Guard.describe`).

    Raises
    ------
    UsageError
        Naming the first host that differs, and all that differs on it.
    """
    ours = facts.versions()
    project = {"version": __version__, "sources": node.fingerprint(node.ROOT / "merge_bench")}
    for name, host in hosts.items():
        theirs = host["versions"]
        differences = [
            f"{package} {theirs.get(package) or 'missing'} instead of {ours.get(package) or 'none'}"
            for package in sorted({*ours, *theirs})
            if ours.get(package) != theirs.get(package)
        ]
        if host["project"] != project:
            found, wanted = host["project"], project
            differences.append(
                f"merge_bench {found['version']} with sources {found['sources']} instead of {wanted['version']} with"
                f" sources {wanted['sources']}"
            )
        if differences:
            raise UsageError(
                f"{name} differs from the host that starts the run: {'; '.join(differences)}. Set the same stack up"
                " on every host, or share one checkout (./run-cluster.sh --setup-only)"
            )
