"""What RAPIDS' merge benchmarks print, in the shape they print it, whole and cut off."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.peer import dask_cuda_merge, ucxx_merge
from benchmarks.peer.protocol import Job, PeerError, printed_by
from merge_bench.campaign.printed_text import parse_time
from tests.campaign.importing import texts
from tests.helpers.fake_nvml import library
from tests.helpers.runs import ROOT

JOB = Job(100_000, 2, 2, iterations=3, warmup=1, fraction=0.3, seed=0)

RUNS = 3
DASK_CUDA = {
    name: {str(run): value for run in range(RUNS)}
    for name, value in (
        ("base_chunks", 2),
        ("other_chunks", 2),
        ("rows_per_chunk", 100_000),
        ("protocol", "tcp"),
        ("frac_match", 0.3),
    )
} | {"wallclock": {"0": 0.57691, "1": 1.51, "2": 1234.0}}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(DASK_CUDA))
    return path


WALLS = (0.04916, 0.00095, 0.05043)
UCXX = texts.text("ucxx", workers=2, rows=100_000, walls=WALLS, devices="[0, 1]")


def test_reads_every_run_of_dask_cuda(results: Path) -> None:
    assert dask_cuda_merge.parse(results, JOB) == [0.57691, 1.51, 1234.0]


def test_reads_every_iteration_of_ucxx() -> None:
    assert ucxx_merge.parse(UCXX, JOB) == pytest.approx(WALLS)


def test_warnings_between_the_lines_before_the_table_do_not_matter() -> None:
    assert len(ucxx_merge.parse("a warning | with a bar\n" + UCXX, JOB)) == 3


def test_results_of_dask_cuda_that_are_incomplete_are_refused(results: Path) -> None:
    whole = results.read_text()
    results.write_text(whole[: len(whole) // 2])
    with pytest.raises(PeerError, match="cannot read the results of"):
        dask_cuda_merge.parse(results, JOB)
    results.write_text(json.dumps({**DASK_CUDA, "wallclock": {"0": 0.5, "1": 1.5}}))
    with pytest.raises(PeerError, match="reports 2 of 3 iterations"):
        dask_cuda_merge.parse(results, JOB)
    results.write_text(json.dumps({**DASK_CUDA, "wallclock": {"0": 0.5, "1": 0.0, "2": 1.0}}))
    with pytest.raises(PeerError, match="> 0"):
        dask_cuda_merge.parse(results, JOB)


@pytest.mark.parametrize(
    ("cut", "sentence"),
    [
        ("2                         |", "the total matches about 3 iterations, but the text has 2"),
        ("Run  ", "is incomplete: it ends at line 13, before the first iteration"),
        ("950.00 us", "is not a row of iteration, wall-clock, bandwidth and throughput|is not a time"),
    ],
)
def test_output_of_ucxx_that_was_cut_off_is_refused(cut: str, sentence: str) -> None:
    with pytest.raises(PeerError, match=sentence):
        ucxx_merge.parse(UCXX[: UCXX.index(cut)], JOB)


def test_another_number_of_iterations_is_refused() -> None:
    two = texts.text(
        "ucxx", workers=2, rows=100_000, walls=WALLS[:2], bandwidths=texts.BANDWIDTHS[:2], devices="[0, 1]"
    )
    with pytest.raises(PeerError, match="printed 2 of 3 iterations"):
        ucxx_merge.parse(two, JOB)


def test_numbers_of_ucxx_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(PeerError, match="is not its data ÷ its wall-clock"):
        ucxx_merge.parse(UCXX.replace("49.16 ms", "29.16 ms"), JOB)


def test_no_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="cannot read the results of"):
        dask_cuda_merge.parse(tmp_path / "none.json", JOB)


@pytest.mark.parametrize("name", ["rows_per_chunk", "base_chunks", "other_chunks"])
def test_the_results_of_another_problem_are_refused(results: Path, name: str) -> None:
    results.write_text(json.dumps({**DASK_CUDA, name: {"0": 7, "1": 7, "2": 7}}))
    with pytest.raises(PeerError, match="which differ from the requested ones"):
        dask_cuda_merge.parse(results, JOB)


def test_the_output_of_another_problem_of_ucxx_is_refused() -> None:
    other = texts.text("ucxx", workers=2, rows=7000, walls=WALLS, devices="[0, 1]")
    with pytest.raises(PeerError, match="reports Rows per chunk 7000 instead of 100000"):
        ucxx_merge.parse(other, JOB)


@pytest.mark.parametrize(
    ("text", "value"),
    [("12.30 s", 12.3), ("3hr 25m", 12300.0), ("14d 6hr", 1231200.0), ("123.45 us", 123.45e-6), ("1.00 ns", 1e-9)],
)
def test_times_as_dask_formats_them(text: str, value: float) -> None:
    assert parse_time(text, 0).value == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "12", "GiB/s", "12.3 MiB/s", "s", "12.3 s or so"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(text, 0)


def test_ucxx_command_spreads_workers_and_pools_over_the_gpus() -> None:
    argv = ucxx_merge.command(Job(1000, 4, 4, 5, 1, 0.3, 0), gpus=[3, 1], memory_bytes=100_000_000_000)
    assert argv[argv.index("--devs") + 1] == "3,1"
    assert argv[argv.index("--chunks-per-dev") + 1] == "2"
    assert int(argv[argv.index("--rmm-init-pool-size") + 1]) <= 40_000_000_000
    assert argv[argv.index("--iter") + 1] == "5"


@pytest.mark.parametrize(("workers", "gpus"), [(2, 0), (3, 1), (4, 3)])
def test_ucxx_refuses_workers_that_it_cannot_spread(workers: int, gpus: int) -> None:
    with pytest.raises(PeerError, match="even number of workers"):
        ucxx_merge.command(Job(1000, workers, 4, 5, 1, 0.3, 0), gpus=range(gpus), memory_bytes=1 << 30)


@pytest.mark.parametrize(
    ("visible", "chosen"), [(None, [0, 1, 2, 3]), ("2,1", [2, 1]), ("GPU-0000000d,GPU-0000000a", [3, 0])]
)
def test_ucxx_gets_the_gpus_that_were_given_to_this_process(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, chosen: list[int]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(count=4))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert ucxx_merge.chosen_gpus() == chosen


PROGRAM = """
import json, os, sys, types

class DataFrame:
    def serialize(self):
        return {}, []

cudf = types.SimpleNamespace(DataFrame=DataFrame)
_run_cluster_server = _run_cluster_workers = None

def main():
    names = ("CUDA_DEVICE_ORDER", "PYTHONFAULTHANDLER", "UCX_HANDLE_ERRORS")
    with open(os.environ["RAN"], "w") as file:
        json.dump([sys.argv[1:], {name: os.environ.get(name) for name in names}], file)
    print(TEXT)
"""


def test_ucxxs_program_runs_on_these_gpus_and_shows_where_it_crashes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "ucxx" / "benchmarks"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py", package / "utils.py"):
        file.touch()
    (package / "cudf_merge.py").write_text(PROGRAM.replace("TEXT", repr(UCXX)))
    metadata = tmp_path / "ucxx_cu13-0.52.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: ucxx-cu13\nVersion: 0.52\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", library(count=4))
    variables = {"CUDA_VISIBLE_DEVICES": "2,1,0", "RAN": tmp_path / "ran", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    outcome = ucxx_merge.run(JOB)
    assert (outcome.version, outcome.wall_seconds) == ("0.52", pytest.approx(WALLS))
    argv, environment = json.loads((tmp_path / "ran").read_text())
    assert argv[argv.index("--devs") + 1] == "2,1"  # as many as there are workers
    assert environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONFAULTHANDLER": "1", "UCX_HANDLE_ERRORS": "bt"}


def test_ucxx_takes_no_part_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(count=1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-41b3359c-e721-56e5-8009-12e5797ed514")
    with pytest.raises(
        PeerError, match=r"needs GPU numbers, but MIG-41b3359c-.* in CUDA_VISIBLE_DEVICES has no number"
    ):
        ucxx_merge.chosen_gpus()


def test_what_a_program_gets_of_the_environment() -> None:
    code = "import os; print(os.environ['MORE'], 'PATH' in os.environ)"
    assert printed_by("it", [sys.executable, "-c", code], MORE="yes") == "yes True\n"


def test_what_a_program_prints_is_returned_and_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    assert printed_by("it", [sys.executable, "-c", "print('| a')"]) == "| a\n"
    assert capfd.readouterr().err == "| a\n"


def test_a_program_that_fails_is_named_with_its_status(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PeerError, match="it ended with status 7"):
        printed_by("it", [sys.executable, "-c", "print('so far'); raise SystemExit(7)"])
    assert "so far" in capfd.readouterr().err
