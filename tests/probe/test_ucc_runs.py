"""Real campaigns of `probe reduce-scatter` with an ucc_perftest that prints what recorded ones do."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.probe.ranks.mpirun import find_mpi
from merge_bench.records.schema import LaunchLine, ProbeLine
from tests.helpers.mpiruns import OWN, OWN_ELSE_SOAK, name_of
from tests.probe.fake_ucc import fake_ucc
from tests.probe.test_mpi_runs import REDUCE_SCATTER, check_failed, run
from tests.probe.test_ucc import executable

pytestmark = pytest.mark.cluster
SMALL = ("--counts", "2..64Ki", "--algorithms", "ucc-ucp", "--iterations", "7")


@pytest.mark.parametrize("mpirun", OWN_ELSE_SOAK)
def test_every_row_is_kept_in_both_conventions_with_the_mpirun_of_the_mpi_that_it_loads(
    tmp_path: Path, mpirun: str
) -> None:
    release = "1.10.0" if mpirun == OWN else "1.3.0"
    environ = fake_ucc(tmp_path / "bin", release=release)
    library = find_mpi(mpirun).library
    executable(
        tmp_path / "bin/ldd", f"#!/bin/sh\necho '\tlibmpi.so.40 => {library}/libmpi.so.40 (0x00007f5d08337000)'\n"
    )
    found = run(tmp_path, REDUCE_SCATTER, *SMALL, environ=environ).check_ended(0)
    (launch,) = found.of(LaunchLine)
    started_by = name_of(mpirun)
    assert launch.workers[0].versions["mpi"] == started_by
    assert launch.cluster.mpirun is not None
    assert Path(launch.cluster.mpirun).samefile(mpirun)
    rows = found.of(ProbeLine)
    assert [row.count for row in rows] == [2 << n for n in range(16)]
    for row in rows:
        assert (row.test, row.protocol, row.as_requested, row.wrong) == ("ucc-ucp", "TL_UCP", None, None)
        assert (row.size, row.iterations) == (4 * (row.count or 0), 7)
        for rate, seconds in (  # of size and time: the tool's own rate of the first one is 0.00
            (row.bandwidth_bytes_per_second, row.seconds),
            (row.bandwidth_max, row.seconds_min),
            (row.bandwidth_min, row.seconds_max),
        ):
            assert rate == pytest.approx(row.size / seconds / 2)
        assert row.method.startswith(f"ucc_perftest of UCC {release}, ")
        assert f"started by {started_by} (" in row.method
    assert rows[0].seconds == pytest.approx(1.23e-6)


@pytest.mark.parametrize("mpirun", OWN_ELSE_SOAK)
def test_what_was_printed_before_a_crash_is_kept(tmp_path: Path, mpirun: str) -> None:
    environ = fake_ucc(tmp_path / "bin", most=3, crash=True)
    found = run(tmp_path, REDUCE_SCATTER, *SMALL, "--mpirun", mpirun, environ=environ)
    check_failed(found, "rank 0", "was killed by signal 11", "while ucc_perftest measured ucc-ucp", "OMPI_MCA_pml=ob1")
    assert [row.count for row in found.of(ProbeLine)] == [2, 4, 8]


@pytest.mark.parametrize("mpirun", OWN_ELSE_SOAK)
def test_one_of_another_mpi_is_told_to_need_its_own_mpirun(tmp_path: Path, mpirun: str) -> None:
    environ = fake_ucc(tmp_path / "bin")
    said = "symbol lookup error: /env/lib/openmpi/libuct.so.0: undefined symbol: ucs_config_doc_nop"
    executable(tmp_path / "bin/ucc_perftest", f'#!/bin/sh\necho "$0: {said}" >&2\nexit 127\n')
    found = run(tmp_path, REDUCE_SCATTER, *SMALL, "--mpirun", mpirun, environ=environ)
    check_failed(found, f"{tmp_path}/bin/ucc_perftest does not start (symbol lookup error: ", "--mpirun")
