"""Whole texts, in every layout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from dask.utils import format_bytes, format_time

from merge_bench.analysis.published import campaign_folder
from merge_bench.analysis.statistics import harmonic_mean, median
from merge_bench.campaign.importers.cudf_merge import CudfMergeReport
from tests.campaign.importing.texts import (
    BANDWIDTHS,
    LAYOUTS,
    WALLS,
    fallback_bytes,
    fallback_time,
    read,
    text,
)

GIB = 2**30
UCXX = """
import sys, types
from unittest import mock
for name in ("cupy", "cudf", "rmm"):
    sys.modules[name] = types.ModuleType(name)
from ucxx.benchmarks import cudf_merge
stats = [
    {"wallclock": 0.25, "bw": bw, "throughput": 4 * 32e6 * 2 / 0.25, "data_processed": 64_000_000,
     "iter_results": {"wallclock": [0.125, 0.1], "bw": [bw, bw], "throughput": [128e6 / 0.125, 128e6 / 0.1],
                      "data_processed": [32_000_000] * 2}}
    for bw in (1e9, 1e9, 2e9, 2e9)
]
sys.argv = "x --server --server-file x --num-workers 4 -d 0,1,2,3 -c 1000000 --iter 2".split()
with mock.patch.object(cudf_merge, "run_cluster_server", lambda *_: stats):
    cudf_merge.main()
"""


def reference(size: str) -> CudfMergeReport:
    name = f"gadi-v100-optimized-{size}"
    return read((campaign_folder(name) / "logs" / f"{name}.out").read_text())


@pytest.mark.parametrize(
    ("size", "rows", "wall", "bandwidth", "throughput"),
    [("small", 1_000_000, 5.14, 1.06, 9.28), ("large", 25_000_000, 96.37, 1.15, 12.37)],
)
def test_the_output_of_2022_is_read_and_its_headline_follows_from_its_iterations(
    size: str, rows: int, wall: float, bandwidth: float, throughput: float
) -> None:
    report = reference(size)
    assert (report.workers, report.rows_per_chunk, len(report.iterations)) == (16, rows, 100)
    assert report.data_bytes == 16 * rows * 32
    assert (report.wall.value, report.bandwidth.value, report.throughput.value) == pytest.approx(
        (wall, bandwidth * GIB, throughput * GIB), rel=1e-15
    )
    assert f"{100 * report.data_bytes / wall / GIB:.2f}" == f"{throughput:.2f}"
    assert f"{harmonic_mean([i.bandwidth.value for i in report.iterations]) / GIB:.2f}" == f"{bandwidth:.2f}"
    walls = [iteration.wall.value for iteration in report.iterations]
    assert wall - 0.05 < sum(walls) < wall
    assert {iteration.wall.resolution for iteration in report.iterations} <= {1e-5, 1e-2}
    assert report.left_out == ()
    assert report.longest == 100


def test_the_headline_of_the_small_run_is_no_median() -> None:
    report = reference("small")
    assert f"{median([i.throughput.value for i in report.iterations]) / GIB:.2f}" == "9.63"
    assert report.iterations[40].wall.value == 0.11972
    assert report.command == "python cudf-merge.py --server --n-devs-on-net 16 --iter 100 -c 1_000_000"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("time_text", "bytes_text"), [(format_time, format_bytes), (fallback_time, fallback_bytes)], ids=["dask", "own"]
)
def test_every_layout_is_read(
    layout: str, time_text: Callable[[float], str], bytes_text: Callable[[float], str]
) -> None:
    report = read(text(layout, time_text=time_text, bytes_text=bytes_text))
    assert (report.workers, report.workers_printed, report.rows_per_chunk) == (16, 16, 1_000_000)
    assert report.fraction == (None if layout == "2022" else 0.3)
    for iteration, wall, bandwidth in zip(report.iterations, WALLS, BANDWIDTHS, strict=True):
        assert iteration.wall.low <= wall <= iteration.wall.high
        assert iteration.bandwidth.value == pytest.approx(bandwidth, rel=5e-3)
        assert iteration.throughput.value == pytest.approx(report.data_bytes / wall, rel=5e-3)


def test_what_the_installed_ucxx_prints_is_read() -> None:
    printed = subprocess.run([sys.executable, "-c", UCXX], capture_output=True, text=True, timeout=60, check=True)
    report = read(printed.stdout)
    assert (report.workers, report.rows_per_chunk, report.fraction) == (4, 1_000_000, 0.3)
    assert [iteration.wall.value for iteration in report.iterations] == [0.125, 0.1]
    assert report.bandwidth.value == pytest.approx(harmonic_mean([1e9, 1e9, 2e9, 2e9]), rel=5e-3)


def test_a_server_of_several_hosts_names_its_own_devices_and_the_data_tell_the_workers() -> None:
    report = read(text("ucxx", devices="[0]"))
    assert (report.workers_printed, report.workers) == (1, 16)
    assert report.data_bytes == 16_000_000 * 32


def test_iterations_of_minutes_are_read() -> None:
    report = read(text(rows=10**10, walls=(700.5, 8000.0), bandwidths=(1e8, 2e8)))
    assert [iteration.wall.value for iteration in report.iterations] == [700.0, 2 * 3600 + 13 * 60]
    assert [iteration.wall.resolution for iteration in report.iterations] == [1, 60]


def test_a_tiny_run_in_bytes_is_read() -> None:
    report = read(text("ucxx", workers=2, rows=4, walls=(5e-4, 6e-4), bandwidths=(1000.5, 900.25)))
    assert (report.workers, report.data_bytes) == (2, 256)
    assert report.iterations[1].bandwidth.value == 900.25


def test_facts_that_a_later_version_adds_are_no_hindrance() -> None:
    lines = text().splitlines()
    assert read("\n".join([*lines[:3], "Progress mode | polling", *lines[3:]])).workers == 16


def test_a_traceback_after_a_whole_report_is_told() -> None:
    after = 'Traceback (most recent call last):\n  File "x", line 1\nucxx.exceptions.UCXCanceledError: gone\n'
    assert read(text() + after).traceback == "ucxx.exceptions.UCXCanceledError: gone"


def test_where_the_total_leaves_room_for_more_iterations_it_says_how_many() -> None:
    report = read(text(walls=(0.05,) * 2000, bandwidths=(1e9,) * 2000))
    assert 2000 < report.longest < 2020
