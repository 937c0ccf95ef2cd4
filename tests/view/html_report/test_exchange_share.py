"""The report sets a merge's exchange beside the all-to-all that belongs to it, and beside no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from merge_bench.analysis.bottleneck import compare_exchange_with_probes
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter
from tests.helpers.synthetic_campaigns import LEFT_BYTES, RIGHT_BYTES, Script, plan, write_campaign
from tests.view.html_report.samples import report_of
from tests.view.html_report.test_results import lines, tables

SECTION = "Exchange and all-to-all"
PARCEL = (LEFT_BYTES + RIGHT_BYTES) // 2
RATE = 1e9


def skewed(worker: s.WorkerIteration) -> s.WorkerIteration:
    """Rank 1 has the longest exchange: it waits 4 ms for the partition of rank 0."""
    partition, exchange = (0.024, 0.040) if worker.rank == 0 else (0.020, 0.050)
    return replace(worker, phases_seconds=s.PhaseSeconds(partition=partition, exchange=exchange, join=0.04))


def merge(folder: Path, **changes: Any) -> Path:
    return write_campaign(folder, Script(worker=skewed, plan=plan(**changes)))


def probe(folder: Path, **changes: Any) -> Path:
    """One launch with one row, which by default are those of the merge's parcels."""
    fields: dict[str, Any] = {
        "test": "ucx_alltoallv",
        "size": PARCEL,
        "count": 1_000_000,
        "hosts": ["node0", "node0"],
        "wrong": 0,
        "config": "optimized",
        "variables": {"UCX_TLS": "sm,tcp"},
        **changes,
    }
    config, variables = fields.pop("config"), fields.pop("variables")
    with CampaignWriter.create(folder, "probe-all-to-all") as writer:
        writer.write(
            s.CampaignLine(
                campaign_id=writer.campaign_id,
                argv=["probe"],
                version="0",
                plans=[{"probe": "all-to-all"}],
                configs=[s.Config(name=config, path=None, variables=variables)],
                runs=[s.RunKey(config=config, plan=0)],
            )
        )
        cluster = s.Cluster(launcher="local", protocol="tcp")
        writer.write(s.LaunchLine(launch=0, config=config, plan=0, cluster=cluster, workers=[], data_bytes=0, rows=0))
        writer.write(
            s.ProbeLine(
                launch=0,
                probe="all-to-all",
                method="made up",
                placement="one-host",
                ranks=[0, 1],
                iterations=1,
                seconds=1.0,
                bandwidth_bytes_per_second=RATE,
                **fields,
            )
        )
        writer.write(s.LaunchEndLine(launch=0, status=0, seconds=1.0))
        writer.write(s.CampaignEndLine(status=0))
    return writer.folder


def test_the_parts_of_the_exchange_add_up(tmp_path: Path) -> None:
    (run,) = read_campaign(merge(tmp_path / "merge")).runs
    found = compare_exchange_with_probes(run, [read_campaign(probe(tmp_path / "probe"))])
    assert found is not None
    assert (found.parcels, found.size, found.all_to_all) == (True, PARCEL, RATE)
    assert found.exchange == pytest.approx(2 * PARCEL / 0.03)  # in flight for 30 ms
    parts = (found.ideal, found.slower, found.waiting, found.other)
    assert parts == pytest.approx((0.012, 0.018, 0.004, 0.016))
    assert found.phase == pytest.approx(0.050) == pytest.approx(sum(part or 0 for part in parts))
    assert found.bandwidth_share == pytest.approx(0.4)
    assert found.phase_bandwidth_share == pytest.approx(0.24)


@pytest.mark.parametrize(
    ("changes", "belongs"),
    [
        ({"test": "ucx_alltoall", "count": None, "size": PARCEL * 3 // 2}, True),
        ({"test": "ucx_alltoall", "count": None, "size": PARCEL * 3}, False),
        ({"test": "mpi_alltoallv"}, False),
        ({"count": 2_000_000}, False),
        ({"hosts": ["node0", "node1"]}, False),
        ({"hosts": ["node0"] * 3}, False),
        ({"config": "other"}, False),
        ({"variables": {"UCX_TLS": "tcp"}}, False),
        ({"wrong": 1}, False),
        ({"memory": "cuda"}, False),
    ],
)
def test_what_belongs_together(tmp_path: Path, changes: dict[str, Any], belongs: bool) -> None:
    (run,) = read_campaign(merge(tmp_path / "merge")).runs
    found = compare_exchange_with_probes(run, [read_campaign(probe(tmp_path / "probe", **changes))])
    assert (found is not None) == belongs
    if found is not None:
        assert not found.parcels


def test_overlapping_phases_have_no_parts(tmp_path: Path) -> None:
    (run,) = read_campaign(merge(tmp_path / "merge", pipeline=True)).runs
    found = compare_exchange_with_probes(run, [read_campaign(probe(tmp_path / "probe"))])
    assert found is not None
    assert (found.phase, found.phase_bandwidth_share) == (None, None)


def test_the_report_has_both_tables(tmp_path: Path) -> None:
    report = report_of(merge(tmp_path / "merge"), probe(tmp_path / "probe"))
    rates, parts = tables(report, SECTION)
    assert rates[1][1:] == ("2", "1.00", "the same parcels (5.722 MiB)", "0.400", "40%")
    assert parts[1][1:] == ("50.00", "12.00", "18.00", "4.00", "16.00", "24%")


def test_the_report_says_where_nothing_belongs_together(tmp_path: Path) -> None:
    report = report_of(merge(tmp_path / "merge"), probe(tmp_path / "probe", count=5))
    assert "No all-to-all belongs to a merge here" in lines(report, SECTION)[0]


def test_merges_alone_have_no_such_section(tmp_path: Path) -> None:
    assert SECTION not in [each.title for each in report_of(merge(tmp_path / "merge")).sections]
