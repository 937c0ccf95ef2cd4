"""The step that looks for ways to run UCXX's merge, with a program in its place that works in some of them."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.on_gpu import peer_variants, versus
from benchmarks.on_gpu.peer_variants import CHOICE, JOB, chosen, find
from benchmarks.on_gpu.steps import Finding
from benchmarks.peer.contenders import REFERENCE, choose
from benchmarks.peer.ucxx_merge import ENVIRONMENT
from benchmarks.peer.ucxx_variants import VARIANTS, Variant
from merge_bench.errors import RunFailed
from tests.benchmarks.conftest import Launches

# Does what `HOW` says: works in so many seconds per merge, hangs, crashes as UCX and Python print it, or else.
PROGRAM = textwrap.dedent(
    """
    import json, os, sys, time

    how, iterations = os.environ["HOW"], json.loads(sys.argv[1])["iterations"]
    answer = {"name": "ucxx", "version": "0", "rows": None, "verified": None, "peak_rss_bytes": None}
    if how == "hang":
        time.sleep(60)
    elif how == "crash":
        print("[vm:7:0:7] Caught signal 11 (Segmentation fault: address not mapped)", file=sys.stderr)
        print("==== backtrace (tid:  7) ====", " 0  libucs.so(+0x1)", " 1  libuct_cuda.so(+0x2)", "=" * 33,
              "Fatal Python error: Segmentation fault", "  File \\"x.py\\", line 1 in create",
              "ucxx.benchmarks.cudf_merge: worker 1 was killed by signal 11 (Segmentation fault)",
              "ucxx.benchmarks.cudf_merge ended with status 1", sep="\\n", file=sys.stderr)
        sys.exit(3)
    elif how == "raise":
        print("ucxx.UCXXCanceledError: Request canceled", "MemoryError: std::bad_alloc", sep="\\n", file=sys.stderr)
        sys.exit(3)
    elif how == "wrong":
        print(json.dumps({**answer, "wall_seconds": [1.0]}))
    else:
        print(json.dumps({**answer, "wall_seconds": [float(how)] * iterations}))
    """
)
Found = Callable[..., Finding]


@pytest.fixture
def found(tmp_path: Path) -> Found:
    """Runs the step with a variant for each of `ways`, named a, b, ..., in a folder."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def run(*ways: str, left: float = 100.0, limit: float = 20.0, folder: Path = tmp_path / "result") -> Finding:
        variants = [Variant("abcdefgh"[number], {"HOW": how}) for number, how in enumerate(ways)]
        return find(folder, left, variants, (sys.executable, str(program)), limit)

    return run


def names(finding: Finding) -> list[str]:
    return [each["name"] for each in finding.figures["tried"]]


def test_the_faster_of_the_first_two_that_work_is_chosen(found: Found, tmp_path: Path) -> None:
    finding = found("crash", "0.004", "wrong", "0.002", "0.001")
    assert names(finding) == ["a", "b", "c", "d"]
    assert (finding.figures["chosen"], finding.status) == ("d", 0)
    assert finding.figures["tried"][3]["throughput_bytes_per_second"] == JOB.data_bytes / 0.002
    assert finding.sentence == (
        "d is used: 2.00 ms, 29.80 GiB/s; b 4.00 ms;"
        " a: Caught signal 11 (Segmentation fault: address not mapped);"
        " c: the program reported 1 instead of 5 iterations"
    )
    assert chosen(tmp_path / "result") == [Variant("d", {"HOW": "0.002"}), Variant("b", {"HOW": "0.004"})]


def test_how_a_variant_crashed_is_kept(found: Found, tmp_path: Path) -> None:
    crashed, raised = found("crash", "raise").figures["tried"]
    assert crashed["stack"] == ["==== backtrace (tid:  7) ====", " 0  libucs.so(+0x1)", " 1  libuct_cuda.so(+0x2)"]
    assert crashed["errors"] == [
        "Fatal Python error: Segmentation fault",
        "ucxx.benchmarks.cudf_merge: worker 1 was killed by signal 11 (Segmentation fault)",
    ]
    assert crashed["status"] == 3
    assert raised["errors"] == ["MemoryError: std::bad_alloc", "ucxx.UCXXCanceledError: Request canceled"]
    logs = {path.name for path in (tmp_path / "result" / "logs").iterdir()}
    assert logs == {"peer-a.out", "peer-a.err", "peer-b.out", "peer-b.err"}


def test_one_that_hangs_is_ended_at_its_limit_and_the_next_is_tried(found: Found) -> None:
    finding = found("hang", "0.5", limit=2.0)
    first = finding.figures["tried"][0]
    assert (first["timed_out"], finding.figures["chosen"]) == (True, "b")
    assert 2 <= first["seconds"] < 8
    assert re.search(r"a: stopped after \d+ s because it had not finished", finding.sentence)


def test_nothing_is_begun_without_the_time_for_it(found: Found, tmp_path: Path) -> None:
    finding = found("0.1", left=peer_variants.LEAST_SECONDS - 1)
    assert (names(finding), finding.status) == ([], RunFailed.exit_status)
    assert not (tmp_path / "result" / CHOICE).exists()
    assert chosen(tmp_path / "result") == [VARIANTS[0]]


def test_where_none_works_comparisons_say_so_at_once(found: Found, tmp_path: Path, launches: Launches) -> None:
    finding = found("crash", "raise")
    assert finding.status == RunFailed.exit_status
    assert json.loads((tmp_path / "result" / CHOICE).read_text())["tried"] == finding.figures["tried"]
    with pytest.raises(RunFailed) as error:
        versus.compare(versus.UCXX, JOB, tmp_path / "result", 3, 100.0, 1)
    assert str(error.value) == (
        "not compared: no variant of ucxx.benchmarks.cudf_merge worked here"
        " (a: Caught signal 11 (Segmentation fault: address not mapped); b: MemoryError: std::bad_alloc)"
    )
    assert launches.all == []


def test_the_fastest_variant_is_compared_and_the_next_where_it_fails(
    found: Found, tmp_path: Path, launches: Launches
) -> None:
    def compared(works: str) -> tuple[Finding, list[str]]:
        """A comparison in which only one variant works; gives the variant of each of the peer's launches too."""
        launches.all.clear()
        peers_walls = {works: 0.2}
        launches.wall = lambda each: 0.1 if each.contender == REFERENCE else peers_walls.get(each.environment["HOW"])
        finding = versus.compare(versus.UCXX, JOB, tmp_path / "result", 3, 100.0, 1, versus.GOAL)
        of_peer = [launch for launch in launches.all if launch.contender != REFERENCE]
        assert {launch.limit for launch in of_peer} == {versus.LAUNCH_LIMIT}
        return finding, [launch.environment["HOW"] for launch in of_peer]

    found("0.002", "0.004")
    finding, launched = compared(works="0.002")
    assert (launched, finding.figures["variant"]) == (["0.002"] * 3, "a")
    assert finding.figures["goal"]["ratio"] == 2.0
    finding, launched = compared(works="0.004")
    assert (launched, finding.figures["variant"]) == (["0.002"] * 2 + ["0.004"] * 3, "b")
    assert finding.figures["goal"]["met"] is True
    finding, launched = compared(works="none")
    assert launched == ["0.002"] * 2 + ["0.004"] * 2
    assert finding.figures["goal"]["met"] is None


def test_only_the_peer_gets_a_variants_environment() -> None:
    own, peer = (versus.with_variant(each, Variant("x", {"HOW": "1"})) for each in choose(versus.UCXX, gpus=1))
    assert "HOW" not in own.environment
    assert peer.environment["HOW"] == "1"


def test_the_table_of_variants() -> None:
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)
    assert all(variant.environment["UCXX_PROGRAM_START"] == variant.name.split("-")[0] for variant in VARIANTS)
    assert not any(ENVIRONMENT.keys() & variant.environment.keys() for variant in VARIANTS)
    modes = [variant.environment.get("UCXPY_PROGRESS_MODE") for variant in VARIANTS[:2]]
    assert modes == [None, "blocking"]  # the two that would be compared have different modes of progress
