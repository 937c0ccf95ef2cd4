"""Real runs of `probe all-to-all` on this machine: both backends, the parcels of a merge, and wrong bytes.

The merge also checks its link limit against ucx_perftest.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from merge_bench.host.machine import usable_core_count
from merge_bench.records.schema import IterationLine, LaunchLine, ProbeLine
from tests.helpers.runs import ROOT, Finished, command

pytestmark = pytest.mark.cluster

VERB = ("probe", "all-to-all")
ROWS = 20_000


def run(folder: Path, *options: str, verb: tuple[str, ...] = VERB, **more: Any) -> Finished:
    """Only workers and ranks are processes of their own."""
    return command(folder, *options, verb=verb, **more)


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One merge between two workers, whose link limit is to be checked."""
    once = ("--iterations", "1", "--warmup", "0", "--link-rounds", "1", "--check-link")
    folder = tmp_path_factory.mktemp("merge")
    return run(folder / "run", *once, "--workers", "2", "--chunk", str(ROWS), verb=("run",)).check_ended(0)


def test_both_backends_send_what_a_merge_sends(tmp_path: Path, merged: Finished) -> None:
    options = ("--sizes", "8,64K", "--chunk", str(ROWS), "--iterations", "3", "--repetitions", "1")
    found = run(tmp_path / "probe", *options, "--workers", "2", "--link-limit", "10GB/s").check_ended(0)
    rows = {(row.test, row.size): row for row in found.of(ProbeLine)}
    assert len(rows) == 6
    sizes = {(test.partition("_")[2], size) for test, size in rows}
    parcel = next(size for operation, size in sizes if operation == "alltoallv")
    assert sizes == {("alltoall", 8), ("alltoall", 65536), ("alltoallv", parcel)}
    for (test, size), row in rows.items():
        assert (row.wrong, row.ranks, row.iterations, row.placement) == (0, [0, 1], 3, "one-host")
        assert row.selected
        assert 0 < row.seconds_min <= row.seconds_mean <= row.seconds_max
        assert (row.count == ROWS) == test.endswith("v")
        if not test.endswith("v"):
            assert row.bandwidth_bytes_per_second == pytest.approx(size / row.seconds)
            assert row.busiest_bytes == size
        assert (row.limit_bytes_per_second, row.limit_from) == (1e10, "given")
    launches = {line.cluster.launcher: line for line in found.of(LaunchLine)}
    assert set(launches) == {"local", "mpirun"}
    asked = next(row.requested for (test, _), row in rows.items() if test.startswith("mpi"))
    assert asked == {"UCX_NET_DEVICES": "lo", "UCX_TLS": "^tcp"}  # nothing of UCXX's
    (iteration,) = merged.of(IterationLine)
    for backend in ("ucx", "mpi"):
        row = rows[f"{backend}_alltoallv", parcel]
        assert row.busiest_bytes == max(pair.bytes for pair in iteration.pairs)
        assert row.size == round(sum(pair.bytes for pair in iteration.pairs) / 4)


def test_the_link_limit_is_checked_against_the_tool(merged: Finished) -> None:
    link = merged.document["link"]
    said = [warning for warning in merged.document["warnings"] if warning["code"] == "link-check"]
    rows = merged.of(ProbeLine)
    if usable_core_count() < 4:  # four processes would poll
        assert link["check_bytes_per_second"] is None
        assert re.search(
            r"cannot be checked against ucx_perftest: 4 polling processes on \d cores? of ", link["not_checked"]
        )
        assert (said, rows) == ([], [])
        return
    assert link["not_checked"] is None
    ratio = link["check_bytes_per_second"] / link["limit_bytes_per_second"]
    assert bool(said) == (abs(ratio - 1) > 0.1)
    assert [row.ranks for row in rows] == [[0, 1], [1, 0]]
    assert all(row.selected for row in rows)


SABOTAGE = """
import sys
def install():
    from merge_bench.probe.shared import exchange_matrix
    honest = exchange_matrix.fill_message
    def fill(message, sender, receiver, frame):
        honest(message, sender, receiver, frame)
        if sender == 1:
            message[5] ^= 1
    exchange_matrix.fill_message = fill
if any("probe.ranks.rank import" in word or "dask_worker" in word for word in sys.orig_argv):
    install()
"""


@pytest.mark.parametrize(
    ("backend", "wrong"), [("ucx", 1), pytest.param("mpi", 2, marks=pytest.mark.soak)]
)  # MPI_Alltoall also sends to the rank itself
def test_a_wrong_byte_in_each_message_ends_the_campaign_with_status_4(tmp_path: Path, backend: str, wrong: int) -> None:
    folder = tmp_path / "sabotage"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SABOTAGE)
    options = ("--sizes", "64,128", "--iterations", "2", "--repetitions", "1", "--workers", "2", "--backend", backend)
    found = run(tmp_path / "run", *options, environ={"PYTHONPATH": f"{folder}:{ROOT}"}).check_ended(4)
    assert [(row.size, row.wrong) for row in found.of(ProbeLine)] == [(64, wrong)]
    assert found.failure.code == "wrong-result"
    assert f"all-to-all over {backend}: {wrong} bytes that arrived are wrong" in found.errors
