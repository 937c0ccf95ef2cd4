"""`benchmarks/gpu.py` as far as it goes without a GPU: steps, budget, figures, and what it makes of runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.on_gpu import runs, testing, versus
from benchmarks.on_gpu.figures import bandwidth_shares, bytes_touched, largest_chunk
from benchmarks.on_gpu.plan import SMALL, Asked, Machine, paired, steps
from benchmarks.on_gpu.runs import Merge, judge
from benchmarks.on_gpu.steps import DONE, FAILED, SKIPPED, Ended, Finding, Step, run_all, status_of
from benchmarks.peer.ratios import Sample, standings
from merge_bench.cli import cli
from merge_bench.errors import RunFailed, WrongResult
from tests.cluster.test_gpu_workers import PRETENCE, WITHOUT_DRIVER

ROOT = Path(__file__).resolve().parents[2]
H200 = Machine(gpus=1, free_bytes=149 * 10**9, bandwidth=4_916_736_000_000, host_bytes=128 * 2**30, cores=16)


WELL = Finding("well")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def timed(clock: Clock, name: str, usual: float, takes: float, finding: Finding | Exception = WELL) -> Step:
    def do(left: float) -> Finding:
        clock.now += min(takes, left)
        if isinstance(finding, Exception):
            raise finding
        return finding

    return Step(name, "", usual, do)


def states(ended: list[Ended]) -> list[tuple[str, str]]:
    return [(each.name, each.state) for each in ended]


def test_what_does_not_fit_is_skipped_with_the_reason_and_shorter_steps_go_on() -> None:
    clock, noted = Clock(), []
    planned = [timed(clock, "a", 30, 50), timed(clock, "b", 60, 60), timed(clock, "c", 20, 20)]
    ended = run_all(planned, 100, noted.append, clock)
    assert states(ended) == [("a", DONE), ("b", SKIPPED), ("c", DONE)]
    assert ended[1].sentence == "usually takes 60 s, but only 50 s of the budget were left"
    assert noted == ended
    assert status_of(ended) == 0


def test_each_failure_is_its_own_and_the_gravest_makes_the_status() -> None:
    clock = Clock()
    planned = [
        timed(clock, "a", 1, 1, RunFailed("a worker died")),
        timed(clock, "b", 1, 1, WrongResult("a row was lost")),
        timed(clock, "c", 1, 1, KeyError("phase")),
        timed(clock, "d", 1, 1),
    ]
    ended = run_all(planned, 100, lambda _: None, clock)
    assert states(ended) == [("a", FAILED), ("b", FAILED), ("c", FAILED), ("d", DONE)]
    assert [each.status for each in ended] == [3, 4, 3, 0]
    assert ended[2].sentence == "KeyError: 'phase'"
    assert status_of(ended) == 4


def test_a_step_that_hangs_leaves_the_others_their_time() -> None:
    clock = Clock()
    ended = run_all([timed(clock, "a", 10, 1e9), timed(clock, "b", 10, 10)], 100, lambda _: None, clock)
    assert [each.seconds for each in ended] == [50, 10]


def test_a_step_that_the_machine_cannot_do_is_skipped_and_one_that_exits_is_a_failure() -> None:
    def leave(left: float) -> Finding:
        raise SystemExit(7)

    lacking = Finding("no ncu", skipped=True)
    ended = run_all([Step("a", "", 1, lambda _: lacking), Step("b", "", 1, leave)], 100, lambda _: None)
    assert [(each.state, each.sentence) for each in ended] == [
        (SKIPPED, "no ncu"),
        (FAILED, "the step ended with status 7"),
    ]
    assert status_of(ended[:1]) == 0


def planned(machine: Machine, tmp_path: Path) -> list[Step]:
    return steps(machine, Asked(tmp_path, 2, 0))


def test_steps_for_one_gpu_begin_with_what_proves_most(tmp_path: Path) -> None:
    found = planned(H200, tmp_path)
    names = [step.name for step in found]
    assert names == [
        "join-limit",
        "peer-variants",
        "ucxx-large",
        "ucxx-small",
        "tests",
        "one-worker-large",
        "one-worker-small",
        "one-worker-largest",
        "profile",
        "library-cudf",
        "library-join",
        "library-partition",
        "library-polars",
        "mps",
        "rapidsmpf-large",
        "rapidsmpf-small",
        "rapidsmpf-shuffle",
        "link-shared-2",
        "largest",
        "ucx-shared-2",
        "link-check",
        "ucx-shared-4",
    ]
    assert all(step.seconds > 0 for step in found)
    assert max(step.seconds for step in found) <= 100
    assert sum(step.seconds for step in found) <= 800  # of two blocks
    assert "25,000,000 rows per chunk, 2 workers" in next(step.what for step in found if step.name == "ucxx-large")


@pytest.mark.parametrize("gpus", [2, 8])
def test_several_gpus_get_a_worker_each_as_well(tmp_path: Path, gpus: int) -> None:
    found = {step.name: step for step in planned(Machine(gpus, 80 * 10**9, None, 2**40, 64), tmp_path)}
    assert found.keys() - {step.name for step in planned(H200, tmp_path)} == {"ucx-all-gpus"}
    assert found["ucx-all-gpus"].what.endswith(f"workers: 1 on each of {gpus} GPUs")
    assert found["ucxx-small"].what.endswith(f"{gpus} workers")


def test_every_block_of_a_comparison_counts_towards_its_time(tmp_path: Path) -> None:
    seconds = {n: {step.name: step.seconds for step in steps(H200, Asked(tmp_path, n, 0))} for n in (1, 3)}
    for name in ("ucxx-large", "rapidsmpf-small"):
        assert seconds[3][name] == 3 * seconds[1][name]
    assert seconds[3]["ucx-shared-2"] == seconds[1]["ucx-shared-2"]


def test_one_worker_gets_a_chunk_that_does_not_take_too_long_to_make(tmp_path: Path) -> None:
    what = {step.name: step.what for step in planned(H200, tmp_path)}["one-worker-largest"]
    assert what == "200,000,000 rows per chunk, workers: 1 on one GPU"
    small = {step.name: step.what for step in planned(Machine(1, 20 * 10**9, None, 2**40, 16), tmp_path)}
    assert small["one-worker-largest"].startswith("123,000,000 rows")


@pytest.mark.parametrize("name", ["library-polars", "rapidsmpf-large", "rapidsmpf-shuffle"])
def test_steps_whose_packages_are_missing_are_skipped_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("CUDF_POLARS_SITE", str(tmp_path))
    for package in ("cudf_polars", "rapidsmpf", "pylibcudf", "cudf", "rmm"):
        monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    (step,) = (step for step in planned(H200, tmp_path) if step.name == name)
    (ended,) = run_all([step], 1000, lambda _: None)
    assert (ended.state, ended.status) == (SKIPPED, 0)
    assert ended.sentence


def test_comparisons_have_an_even_number_of_workers() -> None:
    assert [paired(gpus) for gpus in (1, 2, 3, 5, 8)] == [2, 2, 2, 4, 8]


def test_the_largest_chunk_fits_device_and_host_and_may_be_none(tmp_path: Path) -> None:
    on_device = largest_chunk(149 * 10**9, 2, 170, 10**13, 2, 0.3)
    assert on_device == 350_000_000
    assert largest_chunk(149 * 10**9, 4, 170, 10**13, 4, 0.3) == 175_000_000
    assert largest_chunk(149 * 10**9, 2, 170, 8 * 2**30, 2, 0.3) < 50_000_000
    assert largest_chunk(10**8, 2, 170, 10**13, 2, 0.3) == 0
    crowded = planned(Machine(1, 10**8, None, 2**40, 16), tmp_path)
    assert run_all([step for step in crowded if step.name == "largest"], 99, lambda _: None)[0].state == FAILED


def test_bytes_touched_by_hand() -> None:
    # 2 workers, 10 rows per chunk: 40 rows of 16 bytes are 640 bytes; 6 rows in the result.
    assert bytes_touched(10, 2, 6) == {"partition": 1280, "exchange": 640, "join": 640 + 320 + 384}
    assert bytes_touched(10, 1, 3) == {"partition": None, "exchange": None, "join": 160 + 192}


def document(**changes: Any) -> dict[str, Any]:
    return {
        "verified": True,
        "result_rows": 600_000,
        "warnings": [],
        "protocols": [],
        "plan": {"engine": "cudf", "rows_per_chunk": SMALL, "workers": 2},
        "wall_seconds": {"median": 0.004},
        "throughput_bytes_per_second": {"median": 16e9},
        "phases_seconds": {"partition": 0.001, "exchange": 0.002, "join": 0.001},
        "peak_memory_bytes": {"per_worker": [{"device_peak": 2**30}, {"device_peak": None}]},
        "link": {"limit_bytes_per_second": 1e11, "fraction": 0.93, "check_bytes_per_second": 1.01e11},
        "lanes": [
            {"from": 0, "to": 1, "transports": ["cuda_ipc/cuda", "sysv/memory"]},
            {"from": 1, "to": 0, "transports": ["cuda_ipc/cuda", "sysv/memory"]},
        ],
        **changes,
    }


def test_shares_of_memory_bandwidth() -> None:
    shares = bandwidth_shares(document(), 1, 1_000_000_000_000)
    assert shares["partition"] == {"bytes_per_second": 128e9, "share": pytest.approx(0.128)}
    assert bandwidth_shares(document(), 2, 1_000_000_000_000)["partition"]["share"] == pytest.approx(0.064)
    assert bandwidth_shares(document(), 1, None)["join"]["share"] is None
    one = document(plan={"engine": "cudf", "rows_per_chunk": SMALL, "workers": 1})
    assert bandwidth_shares(one, 1, 10**12)["partition"] == {"bytes_per_second": None, "share": None}


def test_a_good_run_says_what_it_proved() -> None:
    found = judge(Merge(2, 2, SMALL), document(), 10**12)
    assert found.status == 0
    assert "600,000 rows verified" in found.sentence
    assert "every pair over cuda_ipc" in found.sentence
    assert "fraction 0.93" in found.sentence
    assert found.figures["memory_bandwidth"]["join"]["share"] > 0


def test_energy_and_clocks_are_shown_where_the_run_has_them() -> None:
    gpus = [{"index": 0, "sm_mhz": 1755, "max_sm_mhz": 1980}, {"index": 1, "sm_mhz": None}]
    energy = {"joules_per_merge": 2.5, "gpus": gpus}
    found = judge(Merge(2, 2, SMALL), document(energy=energy), None)
    assert "2.5 J per merge, GPU 0 at 1755 of 1980 MHz, " in found.sentence
    assert found.figures["energy"] == energy
    assert judge(Merge(2, 2, SMALL), document(energy=None), None).status == 0


def test_a_pair_without_cuda_ipc_fails_and_keeps_the_figures() -> None:
    lanes = [document()["lanes"][0], {"from": 1, "to": 0, "transports": ["sysv/memory", "cuda_copy/cuda"]}]
    found = judge(Merge(2, 2, SMALL), document(lanes=lanes), None)
    assert found.status == 5
    assert "rank 1 to rank 0 does not use cuda_ipc, but sysv/memory, cuda_copy/cuda" in found.sentence
    assert found.figures["link"]["fraction"] == 0.93
    assert runs.without_device_lane([]) == "no transports were recorded"


def test_what_is_not_verified_or_merged_by_another_engine_is_a_failure() -> None:
    assert judge(Merge(2, 2, SMALL), document(verified=False), None).status == 3
    plan = {"engine": "polars", "rows_per_chunk": SMALL, "workers": 2}
    assert judge(Merge(2, 2, SMALL), document(plan=plan), None).sentence == "the run used the engine polars, not cudf"


def test_exchanges_in_turn_are_compared_run_by_run() -> None:
    ours, theirs = (
        {"engine": "cudf", "rows_per_chunk": SMALL, "workers": 2, "exchange": x} for x in ("ucx", "rapidsmpf")
    )
    slow = document(plan=theirs, lanes=[], link=None, wall_seconds={"median": 0.010})
    merge = Merge(2, 2, SMALL, "ucx,rapidsmpf", launches=3)
    found = runs.compare(merge, {"runs": [document(plan=ours), slow]}, 10**12)
    assert found.status == 0, found.sentence
    assert found.figures["ratios"] == {"rapidsmpf": pytest.approx(2.5)}
    assert found.figures["exchanges"]["rapidsmpf"]["wall_seconds"] == {"median": 0.010}
    assert runs.compare(merge, {"runs": [document(plan=ours), {**slow, "verified": False}]}, None).status == 3
    options = merge.options()
    assert options[options.index("--launches") + 1] == "3"
    assert options[options.index("--timeline") + 1] == "off"


@pytest.mark.cluster
def test_a_run_is_read_back_and_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_cuda")
    for name, value in {"PYTHONPATH": PRETENCE, **WITHOUT_DRIVER}.items():
        monkeypatch.setenv(name, value)
    merge = Merge(2, 2, 2000, iterations=2, link_rounds=1)
    found = judge(merge, runs.run(merge, "small", tmp_path, 200), 10**12)
    assert found.status == 5, found.sentence  # nothing here has CUDA IPC
    assert "1,200 rows verified" in found.sentence
    assert found.figures["memory_bandwidth"]["partition"]["share"] > 0
    assert len(list((tmp_path / "runs" / "small").glob("*/records.jsonl"))) == 1


def test_the_merge_is_accepted_as_it_is_typed() -> None:
    options = Merge(2, 2, SMALL, engine="native", launches=2).options()
    options[options.index("--workers-per-gpu") + 1] = "1"
    accepted = CliRunner().invoke(cli, ["run", *options, "--dry-run"])
    assert accepted.exit_code == 0, accepted.output


REPORT = (
    '<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="0" failures="1" skipped="{skipped}" tests="4">'
    '<testcase name="one"/><testcase name="two"><failure message="no"/></testcase></testsuite></testsuites>'
)


def test_tests_are_counted_from_pytests_report() -> None:
    found = testing.counted(REPORT.format(skipped=1), 1)
    assert found.sentence == "2 passed, 1 failed, 1 skipped: two"
    assert found.status == 3


def test_a_test_that_was_skipped_has_proved_nothing() -> None:
    report = REPORT.format(skipped=1).replace('failures="1"', 'failures="0"')
    assert testing.counted(report, 0).status == 3
    assert testing.counted(report.replace('skipped="1"', 'skipped="0"'), 0).status == 0


def test_comparisons_say_ratio_spread_and_who_failed() -> None:
    samples = [
        Sample("merge_bench", 0, (1.0,)),
        Sample("merge_bench", 1, (1.2,)),
        Sample("ucxx-cudf-merge", 0, (2.0,)),
        Sample("ucxx-cudf-merge", 1, (1.8,)),
        Sample("dask-cuda-gpu-tcp", 0, ()),
    ]
    lines = standings(samples, ["merge_bench", "ucxx-cudf-merge", "dask-cuda-gpu-tcp"], "merge_bench")
    found = versus.finding(lines, 2, 3, {})
    assert "ucxx-cudf-merge 1.9 s: merge_bench is 1.75 times as fast, 1.50–2.00 (min–max of 2)" in found.sentence
    assert "dask-cuda-gpu-tcp failed 1 of 1 launches" in found.sentence
    assert found.status == 3


def test_peers_that_are_not_installed_are_named() -> None:
    assert versus.missing(lambda name: None if name == "cupy" else name) == ["cupy"]
