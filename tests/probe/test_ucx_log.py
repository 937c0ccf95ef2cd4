"""UCX's own log lines → lanes."""

from __future__ import annotations

from merge_bench.cluster.ucx_perftest import logged_ucx_version, parse_lanes_by_place, parse_lanes_to_peers

HEAD = "[1795177171.731883] [vm:11351:0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 "
VERSION = (
    "[1795177171.722941] [vm:11351:0]     ucp_context.c:2463 UCX  INFO  Version 1.20.1 (loaded from /x/libucp.so.0)\n"
)


def test_the_last_line_of_a_place_holds() -> None:
    text = (
        VERSION
        + f"{HEAD}self cfg#0 tag(self/memory cma/memory)\n"
        + f"{HEAD}intra-node cfg#1 tag(tcp/lo)\n"
        + f"{HEAD}intra-node cfg#2 tag(sysv/memory cma/memory)\n"
        + f"{HEAD}inter-node cfg#3 tag(tcp/eth0) rma(tcp/eth0 rc_mlx5/mlx5_0:1)\n"
    )
    assert parse_lanes_by_place(text) == {
        "self": ("self/memory", "cma/memory"),
        "intra-node": ("sysv/memory", "cma/memory"),
        "inter-node": ("tcp/eth0", "rc_mlx5/mlx5_0:1"),
    }
    assert parse_lanes_to_peers(text) == ("sysv/memory", "cma/memory", "tcp/eth0", "rc_mlx5/mlx5_0:1")
    assert logged_ucx_version(text) == "1.20.1"


def test_old_releases_do_not_tell_the_place() -> None:
    text = (
        "[1.0] [vm:1:0] ucp_worker.c:1783 UCX  INFO  ep_cfg[0]: tag(self/memory);\n"
        "[1.0] [vm:1:0] ucp_worker.c:1783 UCX  INFO  ep_cfg[1]: tag(posix/memory cma/memory);\n"
    )
    assert parse_lanes_to_peers(text) == ("posix/memory", "cma/memory")


def test_a_log_without_such_lines_tells_nothing() -> None:
    assert parse_lanes_by_place("") == {}
    assert parse_lanes_to_peers(VERSION) == ()
    assert logged_ucx_version("nothing") is None
