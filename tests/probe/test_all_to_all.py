"""What all-to-all sends and what follows from it: sizes as a merge has them, checked contents, figures, tables."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merge_bench.merge.memory import BufferPool
from merge_bench.merge.partition import Partitioner
from merge_bench.merge.workload import SyntheticSpec, synthetic
from merge_bench.merge.workload.synthetic import synthetic_parcel_bytes
from merge_bench.probe.shared.exchange_matrix import (
    BLANK,
    PERIOD,
    ExchangeTraffic,
    count_wrong_bytes,
    equal_message_matrix,
    exchange_row_fields,
    fill_message,
    mean_message_bytes,
    ring_message_matrix,
    rounds_in_half_a_second,
)
from merge_bench.probe.shared.stored_rows import sorted_campaign_rows
from merge_bench.probe.view.charts import make_panels
from merge_bench.probe.view.show import print_row_tables
from merge_bench.records import schema as s
from merge_bench.records.campaign import Row
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter


def sizes_of_a_partition(spec: SyntheticSpec, rank: int, workers: int) -> tuple[list[int], ...]:
    """Bytes of the parcels that a merge makes of each frame."""
    frames = synthetic.generate_chunks(spec, rank, workers)[:2]
    made = [
        Partitioner(frame.fields, ("key",), workers, buckets=5).split_into_parcels(frame, BufferPool())[0]
        for frame in frames
    ]
    return tuple([len(parcel.data) for parcel in parcels] for parcels in made)


@pytest.mark.parametrize(("rows", "workers", "zipf", "columns"), [(10_001, 3, 0.0, 1), (4096, 2, 1.2, 3), (5, 4, 0, 1)])
def test_parcels_have_the_sizes_that_a_partition_makes(rows: int, workers: int, zipf: float, columns: int) -> None:
    spec = SyntheticSpec(rows, 0.3, 7, columns, zipf)
    for rank in range(workers):
        assert synthetic_parcel_bytes(spec, rank, workers) == sizes_of_a_partition(spec, rank, workers)


def test_the_keys_of_a_chunk_that_is_longer_than_a_block_are_counted_block_by_block() -> None:
    spec = SyntheticSpec(2 * synthetic.BLOCK_ROWS + 10, 0.3, 7)
    assert synthetic_parcel_bytes(spec, 1, 2) == sizes_of_a_partition(spec, 1, 2)


@pytest.mark.parametrize("size", [1, PERIOD - 1, PERIOD, 3 * PERIOD + 17])
def test_every_byte_is_checked_and_no_other_message_passes(size: int) -> None:
    message = np.full(size, BLANK, np.uint8)
    assert count_wrong_bytes(message, 2, 1, 0) == size
    fill_message(message, 2, 1, 0)
    assert count_wrong_bytes(message, 2, 1, 0) == 0
    for other in ((1, 2, 0), (3, 1, 0), (2, 0, 0), (2, 1, 1)):
        assert count_wrong_bytes(message, *other) == size
    if size > 1:
        assert count_wrong_bytes(np.roll(message, 1), 2, 1, 0) > 0
    message[size // 2] ^= 1
    assert count_wrong_bytes(message, 2, 1, 0) == 1


UNEVEN = [[[10, 20, 30], [40, 50, 60], [70, 80, 90]], [[1, 2, 3], [4, 5, 6], [7, 8, 9]]]


def test_traffic_leaves_out_what_a_rank_keeps() -> None:
    traffic = ExchangeTraffic.of_frames(UNEVEN)
    assert traffic.sent == (55, 110, 165)
    assert traffic.received == (121, 110, 99)
    assert traffic.in_send_buffer == (66, 165, 264)
    assert traffic.busiest_bytes == 165
    assert mean_message_bytes(UNEVEN) == round((20 + 30 + 40 + 60 + 70 + 80 + 2 + 3 + 4 + 6 + 7 + 8) / 12)
    assert (
        ExchangeTraffic.of_frames([equal_message_matrix(100, 4)]).sent
        == ExchangeTraffic.of_frames([ring_message_matrix(100, 4)]).sent
        == (300,) * 4
    )
    assert ring_message_matrix(8, 3) == [[0, 16, 0], [0, 0, 16], [16, 0, 0]]


def test_figures_by_their_definitions() -> None:
    rounds = [[1.0, 2.0, 6.0], [3.0, 1.0, 1.0], [2.0, 2.0, 2.0]]  # of a rank: the slowest ones are 3, 2, 6
    found = exchange_row_fields(ExchangeTraffic.of_frames(UNEVEN), rounds, 100.0)
    assert found["seconds"] == 3.0
    assert (found["seconds_mean"], found["seconds_min"], found["seconds_max"]) == pytest.approx((20 / 9, 5 / 3, 3.0))
    assert (found["bandwidth_min"], found["bandwidth_max"]) == pytest.approx((55 / 3, 165 / 3))
    assert found["bandwidth_bytes_per_second"] == pytest.approx(110 / 3)
    assert found["bus_bandwidth_bytes_per_second"] == pytest.approx(165 / 3 * 2 / 3)
    even = exchange_row_fields(ExchangeTraffic.of_frames([equal_message_matrix(1000, 4)]), [[0.5]] * 4, None)
    assert even["bandwidth_bytes_per_second"] == even["bus_bandwidth_bytes_per_second"] == pytest.approx(6000)


def test_rounds_take_half_a_second_within_limits() -> None:
    assert [rounds_in_half_a_second(each) for each in (0.0, 0.001, 0.01, 2.0)] == [1000, 500, 50, 10]


def stored(folder: Path, backends: Sequence[str] = ("mpi", "ucx"), **changes: Any) -> list[Row]:
    """Rows of two backends with three ranks; the second one is twice as fast."""
    with CampaignWriter.create(folder, "probe-all-to-all") as writer:
        writer.write(
            s.CampaignLine(
                campaign_id=writer.campaign_id,
                argv=["probe"],
                version="0",
                configs=[s.Config(name="default", path=None, variables={})],
                plans=[{"probe": "all-to-all"}],
                runs=[s.RunKey(config="default", plan=0)],
            )
        )
        for index, (backend, seconds) in enumerate(zip(backends, (2e-3, 1e-3), strict=True)):
            cluster = s.Cluster(launcher="local", protocol="tcp")
            writer.write(
                s.LaunchLine(launch=index, config="default", plan=0, cluster=cluster, workers=[], data_bytes=0, rows=0)
            )
            for frames, count in ((UNEVEN, 1000), ([equal_message_matrix(1000, 3)], None)):
                fields = {
                    **exchange_row_fields(ExchangeTraffic.of_frames(frames), [[seconds]] * 3, 4e6),
                    "count": count,
                    "size": mean_message_bytes(frames),
                    "test": f"{backend}_alltoall{'v' * (count is not None)}",
                    "limit_from": "given",
                    "wrong": 0,
                    "ranks": [0, 1, 2],
                    **changes,
                }
                writer.write(
                    s.ProbeLine(
                        launch=index,
                        probe="all-to-all",
                        method="made up",
                        placement="one-host",
                        hosts=["a"] * 3,
                        iterations=1,
                        **fields,
                    )
                )
            writer.write(s.LaunchEndLine(launch=index, status=0, seconds=1.0))
        writer.write(s.EndLine(status=0))
    return sorted_campaign_rows(read_campaign(writer.folder))


def test_backends_stand_side_by_side_with_their_shares_of_the_link(tmp_path: Path) -> None:
    rows = stored(tmp_path)
    assert [(row.test, row.count) for row in rows] == [
        ("ucx_alltoall", None),
        ("mpi_alltoall", None),
        ("ucx_alltoallv", 1000),
        ("mpi_alltoallv", 1000),
    ]
    assert [row.link_share for row in rows] == pytest.approx([0.5, 0.25, 165 / 1e-3 / 4e6, 165 / 2e-3 / 4e6])
    file = io.StringIO()
    print_row_tables(rows, file=file)
    lines = [line.split() for line in file.getvalue().splitlines()]
    assert ["1,000", "1,000", "0.0020", "50.0%", "2,000", "0.0010", "25.0%", "0.500"] in lines
    assert ["1,000", "28", "1,000", "0.0001100", "4.1%", "2,000", "0.0000550", "2.1%", "0.500"] in lines


def test_records_of_a_backend_that_is_offered_no_longer_are_shown(tmp_path: Path) -> None:
    rows = stored(tmp_path, ("nccl", "ucx"), memory="cuda")
    assert {row.test for row in rows} == {"ucx_alltoall", "nccl_alltoall", "ucx_alltoallv", "nccl_alltoallv"}
    file = io.StringIO()
    print_row_tables(rows, file=file)
    lines = [line.split() for line in file.getvalue().splitlines()]
    assert ["1,000", "1,000", "0.0020", "50.0%", "2,000", "0.0010", "25.0%", "0.500"] in lines
    assert "cuda memory" in file.getvalue()


def test_without_a_limit_two_ranks_are_told_why_and_what_to_give(tmp_path: Path) -> None:
    for ranks, limit, told in (([0, 1], None, True), ([0, 1], 4e6, False), ([0, 1, 2], None, False)):
        file = io.StringIO()
        folder = tmp_path / f"{len(ranks)} {limit}"
        rows = stored(folder, ranks=ranks, limit_bytes_per_second=limit, limit_from="given" if limit else None)
        print_row_tables(rows, file=file)
        assert ("Give the rate of the link, for example --link-limit" in " ".join(file.getvalue().split())) is told


def test_a_drawing_has_a_line_for_each_backend_over_size(tmp_path: Path) -> None:
    (panel,) = make_panels(stored(tmp_path))
    assert "Bandwidth of a rank" in panel.title
    assert "Message size" in panel.x.title


def test_wrong_bytes_are_marked(tmp_path: Path) -> None:
    file = io.StringIO()
    print_row_tables(stored(tmp_path, wrong=3), file=file)
    assert "!!" in file.getvalue()
