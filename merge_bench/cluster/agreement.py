"""Whether all hosts have the driver's Python, packages and sources and can be reached, and all ranks have one UCX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from merge_bench.cluster import node
from merge_bench.config.installation import how_to_set_up
from merge_bench.config.version import __version__
from merge_bench.errors import UsageError
from merge_bench.host import machine as facts
from merge_bench.host import network


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
                f" on every host, or share one on a common file system ({how_to_set_up()})"
            )


def check_reachable(hosts: Mapping[str, Mapping[str, Any]], driver: str | None) -> None:
    """Refuse hosts that would listen on loopback and are not the driver's own; `driver`: its `network.stack`.

    Raises
    ------
    UsageError
        Naming the first such host.
    """
    for name, host in hosts.items():
        own = driver is None or host["stack"] is None or host["stack"] == driver
        if not own and network.is_loopback(host["address"]):
            raise UsageError(
                f"{name} would listen on {host['interface']} ({host['address']}) alone, where no other host reaches it;"
                " --interface names the interface that the hosts and this machine have in common"
            )


def check_ucx(facts: Sequence[Mapping[str, Any]]) -> None:
    """Refuse ranks that loaded different releases of UCX; `facts`: what each rank's worker tells (`worker.describe`).

    Packages are the same on every host, but a UCX of the system is none. Ranks that loaded no UCX do not count.

    Raises
    ------
    UsageError
        Naming each release with its ranks and hosts.
    """
    loaded: dict[str, list[str]] = {}
    for rank, fact in enumerate(facts):
        version = fact["ucx"].get("version")
        if version is not None:
            loaded.setdefault(version, []).append(f"rank {rank} on {fact['host']}")
    if len(loaded) > 1:
        found = "; ".join(f"{version} by {', '.join(ranks)}" for version, ranks in sorted(loaded.items()))
        raise UsageError(
            f"the ranks loaded different releases of UCX: {found}. Install one release on every host, or set all of"
            " them up with the package's (--ucx wheel)"
        )
