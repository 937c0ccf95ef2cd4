"""What Nsight Compute prints, and what the step makes of it. All tables but that of an H200 are synthetic."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.on_gpu import ncu

JOIN = (
    "void cudf::detail::(anonymous namespace)::probe<cuco::open_addressing<int, (long)5>, bool>"
    "(T1 *, int, cuda::std::span<int>)"
)
SCAN = (
    "void cub::CUB_300100_SM_900::detail::for_each::static_kernel<cub::policy, long, "
    "cudf::detail::gather_functor<long>>(T2, T3)"
)
PLACE = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size"]
PLACE += ["Grid Size", "Device", "CC"]
SHARES = ncu.SHARES
DATA = Path(__file__).resolve().parents[1] / "data"
HEADER = [*PLACE, ncu.BYTES, SHARES["memory"], ncu.DURATION, SHARES["l2"], SHARES["multiprocessors"]]
UNITS = [""] * 11 + ["byte", "%", "ns", "%", "%"]


def launch(number: int, name: str, *metrics: str) -> list[str]:
    return [str(number), "77", "python", "127.0.0.1", name, "1", "13", "(128, 1, 1)", "(9, 1, 1)", "0", "9.0", *metrics]


def text(*rows: list[str]) -> str:
    lines = ",".join(f'"{cell}"' for cell in HEADER), *(",".join(f'"{cell}"' for cell in row) for row in rows)
    return "\n".join(
        [
            "==PROF== Connected to process 77",
            '==PROF== Profiling "probe": 0%....100% - 3 passes',
            *lines,
            "==PROF== Disconnected from process 77",
        ]
    )


WHOLE = text(
    UNITS,
    launch(0, JOIN, "1,500,000", "60.00", "1,000,000", "50.0", "10.0"),
    launch(1, SCAN, "500,000", "20.00", "200,000", "5.0", "1.0"),
    launch(2, JOIN, "500,000", "20.00", "3,000,000", "10.0", "30.0"),
)


def test_the_output_of_an_h200_is_read() -> None:
    kernels = ncu.read_kernels((DATA / "ncu" / "h200.txt").read_text())
    assert [(kernel["shown"], kernel["launches"]) for kernel in kernels[:5]] == [
        ("cudf::hash_csr_build_count_kernel", 1),
        ("cudf::hash_csr_probe_count_kernel", 1),
        ("cudf::hash_csr_build_fill_kernel", 1),
        ("cudf::hash_csr_retrieve_kernel", 1),
        ("transform::transform_kernel", 3),
    ]
    assert sum(kernel["seconds"] for kernel in kernels) == pytest.approx(4.35e-3, abs=5e-6)
    assert (kernels[0]["memory"], kernels[0]["multiprocessors"], kernels[0]["l2"]) == pytest.approx(
        (30.6, 18.7, 35.8), abs=0.05
    )
    assert kernels[0]["bytes"] == pytest.approx(2.295e9, abs=5e5)


def test_launches_of_a_kernel_are_put_together_and_weighted_by_time() -> None:
    join, scan = ncu.read_kernels(WHOLE)
    assert (join["launches"], join["seconds"], join["bytes"]) == (2, pytest.approx(4e-3), 2e6)
    assert (join["memory"], join["l2"], join["multiprocessors"]) == (
        pytest.approx(30.0),
        pytest.approx(20.0),
        pytest.approx(25.0),
    )
    assert join["name"] == JOIN
    assert scan["seconds"] == pytest.approx(2e-4)


def test_names_are_short_for_people() -> None:
    assert ncu.short(JOIN) == "cudf::probe"
    assert ncu.short(SCAN) == "cub::for_each::static_kernel of gather_functor"
    assert ncu.short("join_rows") == "join_rows"
    assert len(ncu.short("void a::" + "b" * 200 + "(int)")) == ncu.MOST_SHOWN


def test_other_units_are_read_and_unknown_ones_refused() -> None:
    units = [""] * 11 + ["Mbyte", "%", "us", "%", "%"]
    (join,) = ncu.read_kernels(text(units, launch(0, JOIN, "1.5", "60", "250", "50", "10")))
    assert (join["bytes"], join["seconds"]) == (pytest.approx(1.5e6), pytest.approx(2.5e-4))
    with pytest.raises(ValueError, match="no unit of bytes"):
        ncu.read_kernels(text([""] * 11 + ["sector", "%", "us", "%", "%"], launch(0, JOIN, "1", "1", "1", "1", "1")))
    assert ncu.read_kernels("==PROF== Connected\n") == []


def test_a_table_with_a_row_for_each_metric_is_read_as_well() -> None:
    names = [ncu.BYTES, SHARES["memory"], ncu.DURATION, SHARES["l2"], SHARES["multiprocessors"]]
    header = [*PLACE, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    rows = [header]
    for metric, unit, value in zip(names, UNITS[11:], ("1,500,000", "60.00", "1,000,000", "n/a", "10.0"), strict=True):
        rows.append([*launch(0, JOIN), "Command line profiler metrics", metric, unit, value])
    (join,) = ncu.read_kernels("\n".join(",".join(f'"{cell}"' for cell in row) for row in rows))
    assert (join["launches"], join["seconds"], join["bytes"]) == (1, pytest.approx(1e-3), 1.5e6)
    assert (join["memory"], join["l2"]) == (pytest.approx(60.0), None)
    assert "-" in ncu.table([join])


def test_the_finding_names_what_takes_most_and_has_the_table() -> None:
    found = ncu.judge(ncu.read_kernels(WHOLE), 25_000_000)
    words = "25,000,000 rows, 2 kernels, 4.20 ms: cudf::probe 95% of the time (30 % of memory)"
    assert found.sentence.startswith(words)
    assert found.figures["table"].splitlines()[1].split() == [
        "cudf::probe",
        "2",
        "4.0000",
        "30.0%",
        "25.0%",
        "20.0%",
        "0.002",
    ]


PROFILER = """#!/bin/sh
while [ "$1" != --log-file ]; do shift; done
cp "$0.table" "$2"
echo "$0.said" > /dev/null; cat "$0.said"
exit STATUS
"""


@pytest.mark.parametrize(
    ("table", "said", "status", "finding", "words"),
    [
        (WHOLE, "", 0, (0, False), "2 kernels"),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "", 1, (0, True), "only administrators"),
        ("==PROF== Connected", "", 0, (3, False), "ncu profiled no kernel"),
        (WHOLE, "", 4, (4, False), "status 4"),
        ('"ID","Kernel Name"\n"",""\n"0","a"', "", 0, (3, False), "cannot read the output of ncu"),
    ],
)
def test_a_profile_that_is_denied_is_skipped_and_others_fail_with_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    said: str,
    status: int,
    finding: tuple[int, bool],
    words: str,
) -> None:
    program = tmp_path / "ncu"
    program.write_text(PROFILER.replace("STATUS", str(status)))
    program.chmod(0o755)
    (tmp_path / "ncu.table").write_text(table)
    (tmp_path / "ncu.said").write_text(said)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = ncu.profile(1000, "profile", tmp_path / "result", 20)
    assert (found.status, found.skipped) == finding
    assert words in found.sentence


def test_without_ncu_the_step_is_skipped(tmp_path: Path) -> None:
    found = ncu.profile(1000, "profile", tmp_path, 20, find=lambda: None)
    assert found.skipped
    assert found.sentence == "Nsight Compute (ncu) was not found"
