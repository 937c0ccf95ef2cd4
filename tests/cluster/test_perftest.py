"""What ucx_perftest prints and UCX logs is read as it is, or refused."""

from __future__ import annotations

import pytest

from merge_bench.cluster.ucx_perftest import (
    PerftestType,
    has_client_heading,
    last_ucx_error,
    parse_client_output,
    parse_median_figures,
    parse_ucx_log,
    perftest_batch_file_text,
    perftest_environment,
    perftest_iteration_counts,
)
from merge_bench.errors import RunFailed
from merge_bench.probe.p2p import choose_perftest_cores

HEADING = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr"
PRINTED = f"""batch,{HEADING}
8,1000,0.270,0.900,0.321,5.00,23.80,1,3119601
65536,1000,5.258,9.9,7.570,1.0,8256.24,2,132100
4194304, 100,271.757,1,286.121,1,13980.08,3,3495
"""
STAMP = "[1795176469.0] [vm:9305 :0]"
LOG = f"""{STAMP}     ucp_context.c:2659 UCX  INFO  Version 1.21.0 (loaded from /lib/libucp.so.0)
{STAMP}     ucp_context.c:1433 UCX  WARN  transports 'foo','rc' are not available, please use one or more of: tcp
{STAMP}      ucp_worker.c:1984 UCX  INFO    perftest self cfg#0 tag(tcp/eth0)
{STAMP}      ucp_worker.c:1984 UCX  INFO    perftest intra-node cfg#1 tag(sysv/memory cma/memory) rma(tcp/lo)
{STAMP}   +---------------------------+---------------------------------------------------------+
{STAMP}   | perftest intra-node cfg#1 | tagged message by ucp_tag_send* from host memory        |
{STAMP}   +---------------------------+-------------------------------------------+-------------+
{STAMP}   |                         0 | eager nothing                             | sysv/memory |
{STAMP}   |                     1..92 | eager short                               | sysv/memory |
{STAMP}   |                   93..5028 | eager copy-in copy-out                   | sysv/memory |
{STAMP}   |                 5029..inf | (?) rendezvous zero-copy read from remote | cma/memory  |
{STAMP}   +---------------------------+-------------------------------------------+-------------+
{STAMP}   | perftest intra-node cfg#1 | tagged message by ucp_tag_send*(fast-completion) from host memory    |
{STAMP}   |                     0..inf | eager nothing                            | sysv/memory |
{STAMP}   | perftest intra-node cfg#1 | tagged message by ucp_tag_send*(multi) from host memory    |
{STAMP}   |                     0..92 | eager short                                  | sysv/memory |
{STAMP}   |                  93..256K | eager copy-in copy-out                       | sysv/memory |
{STAMP}   |              262145..inf | (?) rendezvous zero-copy read from remote    | cma/memory  |
"""
LATENCY, BANDWIDTH = PerftestType("tag", "lat"), PerftestType("tag", "bw")


def test_overall_figures_are_read_and_not_those_of_the_last_second() -> None:
    small, middle, large = parse_client_output(PRINTED)
    assert (small.size, small.iterations) == (8, 1000)
    assert small.seconds == pytest.approx(1 / 3119601)  # finer than the 0.321 µs that are printed
    assert small.bandwidth == pytest.approx(23.80 * 2**20, rel=1e-3)  # MiB, whatever the tool's heading says
    assert small.messages == 3119601
    assert middle.seconds == pytest.approx(7.57e-6, rel=1e-4)
    assert large.bandwidth == pytest.approx(13980.08 * 2**20, rel=1e-3)


def test_columns_are_found_by_their_names() -> None:
    old = "b,iterations,typical_lat,avg_lat,overall_lat,overall_bw,overall_mr\n1048576,10,1,2,250000.0,4,4\n"
    (row,) = parse_client_output(old)
    assert (row.seconds, row.bandwidth, row.messages) == (0.25, 4 * 2**20, 4)


def test_a_rate_too_small_for_two_decimals_is_not_lost() -> None:
    (row,) = parse_client_output(f"b,{HEADING}\n8, 20,3991.004,2860.671,2860.671,0.00,0.00,350,350\n")
    assert row.bandwidth == pytest.approx(8 / 2860.671e-6)


def test_the_heading_alone_is_no_figures() -> None:
    assert parse_client_output(f"batch,{HEADING}\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Failed to connect\n",
        "8,1000,0.270,0.900,0.321,5.00,23.80,1,3119601\n",
        PRINTED[:-40],
        PRINTED + "Segmentation fault\n",
        PRINTED + "8,0,1,1,1,1,1,1,1\n",
        PRINTED + "8,10,1,1,0.0,1,1,1,0\n",
        PRINTED + "1048576,1000,1,1,100.0,1,10485.76,1,10000\n",  # MB/s, not MiB/s
        PRINTED + "8,10,1,1,nan,1,1,1,1\n",
        PRINTED + "8,10,1,1,inf,1,1,1,1\n",
        PRINTED + "8,ten,1,1,1,1,1,1,1\n",
    ],
)
def test_whatever_is_no_figure_is_refused_and_never_a_number(text: str) -> None:
    with pytest.raises(RunFailed, match="ucx_perftest printed"):
        parse_client_output(text)


def thrice(text: str) -> str:
    """The text with every line of figures three times, the time of the second 9 and of the third 2 times as long."""
    head, *rows = text.splitlines()
    lines = [head]
    for row in rows:
        cells = row.split(",")
        for factor in (1.0, 9.0, 2.0):
            slow = [
                *cells[:4],
                f"{float(cells[4]) * factor:.3f}",
                cells[5],
                f"{float(cells[6]) / factor:.2f}",
                cells[7],
            ]
            lines.append(",".join([*slow, str(int(float(cells[8]) / factor))]))
    return "\n".join(lines) + "\n"


def test_of_the_runs_of_a_size_the_middle_one_counts() -> None:
    once, found = parse_client_output(PRINTED), parse_median_figures(thrice(PRINTED), [8, 65536, 4194304])
    assert [each.size for each in found] == [8, 65536, 4194304]
    for single, middle in zip(once, found, strict=True):
        assert middle.seconds == pytest.approx(2 * single.seconds, rel=1e-2)


def test_a_size_that_is_missing_is_named() -> None:
    text = thrice(PRINTED)
    with pytest.raises(RunFailed, match="8 of 9 runs; missing sizes: 4194304 bytes"):
        parse_median_figures(text[: text.rstrip().rindex("\n") + 1], [8, 65536, 4194304])
    with pytest.raises(RunFailed, match="9 of 6 runs"):
        parse_median_figures(text, [8, 65536])


def test_a_client_that_never_connected_printed_no_heading() -> None:
    assert has_client_heading(PRINTED)
    assert not has_client_heading("connect() failed: Connection refused\n")


def test_lanes_are_those_of_the_last_wire_up_step() -> None:
    log = parse_ucx_log(LOG, LATENCY)
    assert log.version == "1.21.0"
    assert log.lanes == ("sysv/memory", "cma/memory", "tcp/lo")
    assert log.missing == ("foo", "rc")


def test_the_protocol_is_that_of_the_kind_of_send_that_the_test_does() -> None:
    latency, bandwidth = parse_ucx_log(LOG, LATENCY), parse_ucx_log(LOG, BANDWIDTH)
    assert latency.protocol_for_message(0) == "eager nothing [sysv/memory]"
    assert latency.protocol_for_message(92) == "eager short [sysv/memory]"
    assert latency.protocol_for_message(5028) == "eager copy-in copy-out [sysv/memory]"
    assert latency.protocol_for_message(5029) == "rendezvous zero-copy read from remote [cma/memory]"
    assert bandwidth.protocol_for_message(5029) == "eager copy-in copy-out [sysv/memory]"
    assert bandwidth.protocol_for_message(4 << 20) == "rendezvous zero-copy read from remote [cma/memory]"


def test_logs_of_old_releases_give_lanes_and_no_protocol() -> None:
    old = f"{STAMP} x UCX  INFO  Version 1.13.1 (loaded from /lib/libucp.so.0)\n"
    old += f"{STAMP} x UCX  INFO    ep_cfg[0]: tag(rc_mlx5/mlx5_0:1)\n"
    log = parse_ucx_log(old, BANDWIDTH)
    assert (log.version, log.lanes, log.protocol_for_message(8)) == ("1.13.1", ("rc_mlx5/mlx5_0:1",), None)


def test_an_empty_log_gives_nothing() -> None:
    log = parse_ucx_log("", LATENCY)
    assert (log.version, log.lanes, log.missing, log.protocols) == (None, (), (), ())


def test_the_batch_has_a_line_a_size_with_the_window_for_bandwidth_alone() -> None:
    lines = perftest_batch_file_text(
        BANDWIDTH, [8, 4 << 20], memory="host", iterations=None, error_handling=False
    ).splitlines()
    assert lines[:3] == ["8 -t tag_bw -s 8 -n 20000 -w 2000 -O 32"] * 3
    assert lines[3] == "4194304 -t tag_bw -s 4194304 -n 50 -w 5 -O 32"
    line, *_ = perftest_batch_file_text(
        PerftestType("am", "lat"), [8], memory="cuda", iterations=7, error_handling=True
    ).splitlines()
    assert line == "8 -t ucp_am_lat -s 8 -n 7 -w 7 -m cuda -e"


def test_large_sizes_get_fewer_iterations_but_never_too_few() -> None:
    counts = [perftest_iteration_counts(2**power, "bw")[0] for power in range(31)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 20_000
    assert counts[-1] == 50


def test_the_environment_keeps_the_config_and_adds_a_log(tmp_path: object) -> None:
    from pathlib import Path

    found = perftest_environment({"UCX_TLS": "tcp", "LD_LIBRARY_PATH": "/a"}, Path("/ucx/lib"), Path("/x/log"))
    assert found["UCX_TLS"] == "tcp"
    assert found["LD_LIBRARY_PATH"] == "/ucx/lib:/a"
    assert found["UCX_LOG_FILE"] == "/x/log"
    assert found["UCX_RNDV_THRESH"] == "8192"  # as UCXX has it in the workers
    assert perftest_environment({"UCX_RNDV_THRESH": "inf"}, None, Path("/x/log"))["UCX_RNDV_THRESH"] == "inf"


def test_the_complaint_is_the_last_error() -> None:
    assert last_ucx_error(
        "x UCX  ERROR first\ny UCX  ERROR no active messages transport to <no debug data>\n"
    ).startswith("no")
    assert last_ucx_error("all well") == ""


def test_both_sides_get_a_core_of_their_own_where_they_share_a_host() -> None:
    assert choose_perftest_cores("0-3", "0-3", placement="one-host") == (0, 1)
    assert choose_perftest_cores("2,5", "2,5", placement="one-host") == (2, 5)
    assert choose_perftest_cores("0", "0", placement="one-host") == (None, None)
    assert choose_perftest_cores("0-3", "4-7", placement="one-host") == (None, None)
    assert choose_perftest_cores("0-3", "0-3", placement="two-hosts") == (None, None)
