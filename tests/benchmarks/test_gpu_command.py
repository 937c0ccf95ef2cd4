"""The command `benchmarks/gpu.py` with steps that are made up: what it writes, resumes and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.gpu import Site, look, on_gpus
from benchmarks.on_gpu import stored, versus
from benchmarks.on_gpu.plan import Asked, steps
from benchmarks.on_gpu.steps import DONE, FAILED, Finding, Step
from benchmarks.on_gpu.versus import verdict
from benchmarks.peer.ratios import Sample, standings
from merge_bench.errors import RunFailed, UsageError
from tests.benchmarks.test_on_gpu import H200, ROOT
from tests.helpers.fake_nvml import library


def compared(*ratios: float) -> list[Any]:
    samples = [Sample("merge_bench", block, (1.0,)) for block in range(len(ratios))]
    samples += [Sample("ucxx-cudf-merge", block, (ratio,) if ratio else ()) for block, ratio in enumerate(ratios)]
    return standings(samples, ["merge_bench", "ucxx-cudf-merge"], "merge_bench")


@pytest.mark.parametrize(
    ("ratios", "met", "sure", "words"),
    [
        ((2.0, 1.8, 1.6), True, True, ": met (ratio 1.80, range 1.60–2.00)"),
        ((2.0, 1.8, 1.2), True, False, ": met (ratio 1.80, range 1.20–2.00; blocks disagree)"),
        ((1.1, 1.2, 1.0), False, True, ": not met (ratio 1.10, range 1.00–1.20)"),
        ((0.0,), None, False, ": not measured"),
    ],
)
def test_the_goal_against_ucxx_has_a_verdict(
    ratios: tuple[float, ...], met: bool | None, sure: bool, words: str
) -> None:
    found = versus.finding(compared(*ratios), len(ratios), 0, {}, versus.GOAL)
    assert (found.figures["goal"]["met"], found.figures["goal"]["sure"]) == (met, sure)
    assert found.sentence.endswith(f"goal ≥ 1.5 times as fast as `ucxx.benchmarks.cudf_merge`{words}")
    assert "goal" not in versus.finding(compared(*ratios), len(ratios), 0, {}).figures


@pytest.fixture
def curated(tmp_path: Path) -> Path:
    """The folder of curated results."""
    return tmp_path / "curated"


@pytest.fixture
def invoked(tmp_path: Path, curated: Path) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Calls the command with made-up steps; gives its status, summary and table."""
    output = tmp_path / "results"

    def invoke(*made_up: Step, options: Sequence[str] = ()) -> tuple[int, dict[str, Any], str]:
        site = Site(lambda: H200, lambda logs: {"driver": "580.1"}, lambda machine, asked: list(made_up), curated)
        resumed = [str(next(output.iterdir())) if word == "LAST" else word for word in options]
        result = CliRunner().invoke(on_gpus, ["--output", str(output), *resumed], obj=site)
        if isinstance(result.exception, UsageError):
            raise result.exception
        (folder,) = output.iterdir()
        summary = json.loads((folder / "summary.json").read_text())
        return result.exit_code, summary, (folder / "table.txt").read_text()

    return invoke


def step(name: str, finding: Finding | BaseException) -> Step:
    def do(left: float) -> Finding:
        if isinstance(finding, BaseException):
            raise finding
        return finding

    return Step(name, f"what {name} is", 1, do)


def test_the_command_writes_what_ended_and_goes_on_after_failures(invoked: Callable[..., Any]) -> None:
    shares = {"partition": {"bytes_per_second": 1e12, "share": 0.204}, "exchange": {"share": None}}
    status, summary, table = invoked(
        step("a", Finding("600 rows verified", {"memory_bandwidth": shares})),
        step("b", RunFailed("a worker died")),
        step("c", Finding("compared", {"table": "peer  ratio"})),
    )
    assert status == summary["status"] == 3
    assert [(each["name"], each["state"]) for each in summary["steps"]] == [("a", DONE), ("b", FAILED), ("c", DONE)]
    assert summary["steps"][0]["figures"]["memory_bandwidth"]["partition"]["share"] == 0.204
    assert {"git", "versions", "hardware", "gpus", "argv"} <= summary.keys()
    assert summary["machine_state"] == {"driver": "580.1"}
    assert "a worker died" in table
    assert "a: share of the GPU's memory bandwidth, at least: partition 20.4%\n" in table
    assert "c: peer  ratio" in table


def test_an_interruption_keeps_what_ended(invoked: Callable[..., Any]) -> None:
    status, summary, _ = invoked(step("a", Finding("well")), step("b", KeyboardInterrupt()), step("c", Finding("well")))
    assert status == 3
    assert [each["name"] for each in summary["steps"]] == ["a"]


def test_a_later_call_does_what_is_not_done_and_what_failed_last(invoked: Callable[..., Any], curated: Path) -> None:
    tried: list[str] = []

    def counted(name: str, *findings: Finding | BaseException) -> Step:
        left = list(findings)

        def do(_: float) -> Finding:
            tried.append(name)
            found = left.pop(0)
            if isinstance(found, BaseException):
                raise found
            return found

        return Step(name, name, 10, do)

    made_up = (
        counted("a", Finding("well", {"goal": verdict(versus.GOAL, compared(2.0))})),
        counted("b", RunFailed("a worker died"), Finding("better")),
        counted("c", KeyboardInterrupt(), Finding("well")),
    )
    assert invoked(*made_up)[0] == 3
    status, summary, table = invoked(*made_up, options=["--resume", "LAST", "--curated", "gpu-h200"])
    assert status == summary["status"] == 0
    assert tried == ["a", "b", "c", "c", "b"]
    assert [(each["name"], each["sentence"]) for each in summary["steps"]] == [
        ("a", "well"),
        ("b", "better"),
        ("c", "well"),
    ]
    assert summary["goals"]["a"]["ratio"] == 2.0
    assert "a: goal ≥ 1.5 times as fast as `ucxx.benchmarks.cudf_merge`: met (ratio 2.00" in table
    copied = json.loads((curated / "gpu-h200" / "summary.json").read_text())
    assert copied == {name: value for name, value in summary.items() if name != "argv"}
    assert (curated / "gpu-h200" / "table.txt").read_text() == table


def test_a_failure_that_is_skipped_next_time_stays_known(invoked: Callable[..., Any]) -> None:
    failing = Step("a", "a", 20, step("a", RunFailed("a worker died")).do)
    invoked(failing)
    _, summary, _ = invoked(failing, options=["--resume", "LAST", "--budget", "10"])
    assert summary["steps"][0]["state"] == FAILED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--resume", "LAST", "--blocks", "5"], "blocks differ from the current command"),
        (["--resume", "LAST", "--seed", "3"], "seed differ from the current command"),
        (["--resume", "nowhere"], "nowhere/summary.json contains no results"),
        (["--curated", "../elsewhere"], "must be the name of a folder"),
        (["--curated", "taken"], "this folder already contains another result"),
    ],
)
def test_results_that_do_not_belong_together_are_not_mixed(
    invoked: Callable[..., Any], curated: Path, options: list[str], words: str
) -> None:
    invoked(step("a", Finding("well")))
    (curated / "taken").mkdir(parents=True)
    (curated / "taken" / "summary.json").write_text('{"time": 1.0}')
    with pytest.raises(UsageError, match=words):
        invoked(step("a", Finding("well")), options=options)


def test_a_dry_run_tells_the_time_of_all_and_does_nothing(tmp_path: Path) -> None:
    words = ["--output", str(tmp_path), "--blocks", "1", "--dry-run"]
    result = CliRunner().invoke(on_gpus, words, obj=Site(lambda: H200))
    assert result.exit_code == 0
    *lines, total = result.output.splitlines()
    seconds = sum(step.seconds for step in steps(H200, Asked(tmp_path, 1, 0)))
    assert total == f"{seconds:.0f} s in total; the budget is {1.5 * seconds:.0f} s"
    assert lines[0].startswith("join-limit ")
    assert list(tmp_path.iterdir()) == []


def test_only_the_chosen_steps_run_and_unknown_ones_are_refused(invoked: Callable[..., Any]) -> None:
    made_up = [step(name, Finding("well")) for name in ("tests", "library-a", "library-b", "mps")]
    _, summary, _ = invoked(*made_up, options=["--only", "library*,mps"])
    assert [each["name"] for each in summary["steps"]] == ["library-a", "library-b", "mps"]
    with pytest.raises(UsageError, match="--only test matches no step; choose from tests, library-a, library-b, mps"):
        invoked(*made_up, options=["--only", "mps,test"])


def test_the_result_is_packed_after_every_step(invoked: Callable[..., Any], tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def look_into(left: float) -> Finding:
        with tarfile.open(tmp_path / "packed.tar.gz") as archive:
            seen.append([Path(name).name for name in archive.getnames()])
        return Finding("well")

    invoked(
        step("a", Finding("well")), Step("b", "", 1, look_into), options=["--pack", str(tmp_path / "packed.tar.gz")]
    )
    assert [sorted(names) for names in seen] == [["summary.json", "table.txt"]]


def test_a_failure_to_pack_does_not_end_the_plan(invoked: Callable[..., Any], tmp_path: Path) -> None:
    made_up = [step("a", Finding("well")), step("b", Finding("well"))]
    status, summary, _ = invoked(*made_up, options=["--pack", str(tmp_path / "no folder" / "packed.tar.gz")])
    assert status == 0
    assert len(summary["steps"]) == 2


def test_a_result_is_shown_and_curated_without_a_gpu(
    invoked: Callable[..., Any], tmp_path: Path, curated: Path
) -> None:
    _, _, table = invoked(step("a", Finding("600 rows verified")))
    (folder,) = (tmp_path / "results").iterdir()
    records = folder / "runs" / "one-worker-large" / "20261128" / "records.jsonl"
    records.parent.mkdir(parents=True)
    records.write_text('{"kind": "run"}\n')
    large = folder / "peers-1" / "records.jsonl"
    large.parent.mkdir()
    large.write_text("x" * (stored.MOST_RECORD_BYTES + 1))
    site = Site(lambda: pytest.fail("looked for a GPU"), curated=curated)
    shown = CliRunner().invoke(on_gpus, ["--show", str(folder), "--curated", "gpu-h200"], obj=site)
    assert shown.exit_code == 0, shown.output
    assert table.strip() in shown.output
    place = curated / "gpu-h200"
    assert (place / records.relative_to(folder)).read_text() == records.read_text()
    assert not (place / "peers-1").exists()
    assert "left out peers-1/records.jsonl, which is too large" in shown.output
    assert "argv" not in json.loads((place / "summary.json").read_text())


def test_by_default_all_steps_fit_the_budget(invoked: Callable[..., Any]) -> None:
    steps = [Step(name, name, 500, lambda _: Finding("well")) for name in "abc"]
    assert {each["state"] for each in invoked(*steps)[1]["steps"]} == {DONE}


def test_the_machine_is_that_of_the_gpus_that_can_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(count=4))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,2")
    (tmp_path / "pylibcudf").mkdir()
    (tmp_path / "pylibcudf" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    machine = look()
    assert (machine.gpus, machine.free_bytes, machine.bandwidth) == (2, 72 * 2**30, 4_916_736_000_000)
    monkeypatch.setitem(sys.modules, "pylibcudf", None)  # as if it were not installed
    with pytest.raises(UsageError, match="this machine has a GPU, but the package cudf is missing"):
        look()


@pytest.mark.slow
def test_without_a_gpu_there_is_one_sentence_and_status_2(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env={"PATH": "/usr/bin", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 2
    assert done.stderr == "gpu: found no NVIDIA GPU: the NVIDIA management library (NVML) lists none\n"
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_curated_records_name_no_folder() -> None:
    line = '{"argv":["/home/me/merge_bench/__main__.py","run","--results","/tmp/r"],"a":"/sys/class/x/y","b":"3 / 4"}'
    assert stored.without_folders(line) == (
        '{"argv":["__main__.py","run","--results","r"],"a":"/sys/class/x/y","b":"3 / 4"}'
    )
