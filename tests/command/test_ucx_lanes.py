"""Lanes of a command from logs that UCX really wrote; `tests/data/README.md` says where they are from."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.analysis.transports import selected_lanes
from merge_bench.command.ucx_lanes import check_required_lanes, make_lanes_line, read_ucx_logs, ucx_logging_variables
from merge_bench.errors import GateNotMet
from merge_bench.records.schema import UcxProtocolRange

OLD, NEW = read_ucx_logs(Path(__file__).parents[1] / "data" / "ucx-logs")
VERSION_ONLY = NEW.splitlines()[0]


def test_lanes_and_protocols_of_a_process() -> None:
    line = make_lanes_line(3, {"UCX_TLS": "tcp,self", "UCX_RNDV_THRESH": "64k"}, [VERSION_ONLY, NEW])
    assert line is not None
    assert (line.launch, line.requested) == (3, {"UCX_TLS": "tcp,self"})
    (pair,) = line.pairs
    assert (pair.placement, pair.transports, pair.protocols) == ("one-host", ["tcp/lo"], 0)
    assert line.protocols[0][1] == UcxProtocolRange(
        memory="host", first_bytes=1, last_bytes=16483, protocol="eager zero-copy copy-out", transports="tcp/lo"
    )
    assert line.protocols[0][-1].last_bytes is None


def test_the_number_of_processes_that_logged_lanes() -> None:
    other_host = NEW.replace("intra-node cfg", "inter-node cfg").replace("tcp/lo", "tcp/eth0")
    line = make_lanes_line(0, {}, [VERSION_ONLY, NEW, NEW, other_host])
    assert line is not None
    places = [(pair.placement, pair.transports, pair.processes) for pair in line.pairs]
    assert places == [("two-hosts", ["tcp/eth0"], 1), ("one-host", ["tcp/lo"], 2)]
    here, there = selected_lanes([line, line])
    assert [(each.placement, each.transports, each.processes) for each in (there, here)] == places


def test_older_releases_do_not_say_where_a_lane_leads() -> None:
    line = make_lanes_line(0, {}, [OLD])
    assert line is not None
    (pair,) = line.pairs
    assert (pair.placement, pair.transports, pair.protocols) == (None, ["sysv/memory", "cma/memory"], None)


def test_a_process_that_only_loads_ucx_has_no_lanes() -> None:
    assert make_lanes_line(0, {}, [VERSION_ONLY]) is None


def test_every_process_needs_a_required_transport() -> None:
    check_required_lanes(["tcp"], [NEW, VERSION_ONLY])
    check_required_lanes(["cma"], [OLD])
    check_required_lanes(["sm"], [OLD])  # a name for several
    for required, logs in ((["cma"], [OLD, NEW]), (["rc"], [NEW]), (["tcp"], [VERSION_ONLY]), (["tcp"], [])):
        with pytest.raises(GateNotMet):
            check_required_lanes(required, logs)


def test_each_process_has_a_log_of_its_own(tmp_path: Path) -> None:
    assert ucx_logging_variables(tmp_path)["UCX_LOG_FILE"] == str(tmp_path / "%h-%p.log")
    assert read_ucx_logs(tmp_path) == []
