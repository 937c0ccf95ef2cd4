"""`benchmarks/goals.py` with measurements that are made up: what it makes of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.goal import bench, measures, tables, targets
from benchmarks.goal.bench import Bench
from benchmarks.goal.measures import Measure
from benchmarks.goal.running import MEASURES, Running, chosen, from_json, markdown, put_between, to_json
from benchmarks.goal.targets import Target, judge, spread_of_sizes
from benchmarks.goals import status_of
from merge_bench.errors import RunFailed, UsageError, WrongResult

ROOT = Path(__file__).resolve().parents[2]
AT_LEAST, AT_MOST = Target("a", "ratio", "how", 2.0), Target("b", "seconds", "how", None, 5.0, " s")


def ran(**document: Any) -> Any:
    return SimpleNamespace(document=document)


@pytest.mark.parametrize(
    ("values", "met", "sure"),
    [
        ((2.5, 2.2, 3.0), True, True),
        ((2.5, 1.9, 3.0), True, False),
        ((1.9, 2.1, 1.0), False, False),
        ((1.0,), False, True),
    ],
)
def test_a_goal_is_met_by_the_median_and_surely_so_by_the_whole_spread(
    values: tuple[float, ...], met: bool, sure: bool
) -> None:
    result = judge(AT_LEAST, values, ())
    assert (result.met, result.sure) == (met, sure)
    assert (result.low, result.high, result.coverage) == (min(values), max(values), None)


def test_six_blocks_have_an_interval() -> None:
    result = judge(AT_MOST, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), ())
    assert (result.value, result.low, result.high) == (3.5, 1.0, 6.0)
    assert result.coverage == pytest.approx(0.96875)
    assert result.met
    assert not result.sure


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    result = judge(AT_LEAST, (), ["no hosts here", "no hosts here"])
    assert result.met is None
    assert result.failures == ("no hosts here",)


def test_bounds_on_both_sides() -> None:
    both = Target("c", "agreement", "how", 0.9, 1.1)
    assert [both.holds(value) for value in (0.89, 0.9, 1.0, 1.1, 1.11)] == [False, True, True, True, False]
    assert (both.shown, AT_LEAST.shown, AT_MOST.shown) == ("0.9 to 1.1", "≥ 2", "≤ 5 s")


def test_only_large_sizes_have_to_be_constant() -> None:
    assert spread_of_sizes({1: 9e-8, 4: 2e-8, 8: 2.2e-8, 16: 2.1e-8}, 4) == pytest.approx(1.1)
    with pytest.raises(ValueError, match="only 1 sizes from 4 rows on fit"):
        spread_of_sizes({1: 9e-8, 4: 2e-8}, 4)


def test_sizes_double_as_long_as_they_fit() -> None:
    assert measures.sizes(10 * 2**40) == [1_000_000 * 2**n for n in range(7)]
    few = measures.sizes(4 * 2**30)
    assert few == [1_000_000 * 2**n for n in range(len(few))]
    assert 1 < len(few) < 6


LANES = [{"from": 0, "to": 1, "transports": ["cma/memory", "sysv/memory"]}]
LINK = {"fraction": 0.95, "limit_bytes_per_second": 9e9, "check_bytes_per_second": 10e9}


def test_the_link_gives_two_values() -> None:
    found = measures.link_values(ran(link=LINK, lanes=LANES), AT_LEAST, AT_MOST, ("sysv", "cma"))
    assert found == {"a": 0.95, "b": 0.9}
    unchecked = ran(link={**LINK, "check_bytes_per_second": None}, lanes=LANES)
    assert measures.link_values(unchecked, AT_LEAST, AT_MOST, ("sysv",)) == {"a": 0.95}


def test_a_link_over_other_lanes_or_without_a_limit_is_no_value() -> None:
    with pytest.raises(RunFailed, match="rank 0 to rank 1 uses cma/memory, sysv/memory"):
        measures.link_values(ran(link=LINK, lanes=LANES), AT_LEAST, AT_MOST, ("tcp",))
    with pytest.raises(RunFailed, match="was not measured"):
        measures.link_values(ran(link=None, lanes=LANES), AT_LEAST, AT_MOST, ("tcp",))


def test_wall_over_bytes_takes_the_worker_that_sends_most() -> None:
    workers = [SimpleNamespace(sent_bytes=SimpleNamespace(left=left, right=50)) for left in (40, 50)]
    launches = [SimpleNamespace(timed=[SimpleNamespace(wall_seconds=w, workers=workers) for w in (1.0, 1.1, 1.5)])]
    one = SimpleNamespace(
        document={"link": {"limit_bytes_per_second": 100.0}}, campaign=SimpleNamespace(launches=launches)
    )
    assert measures.wall_over_bytes(one) == pytest.approx(1.1)  # type: ignore[arg-type]


def test_memory_is_that_of_the_worst_worker() -> None:
    workers = [{"above_imports": 250, "input": 100}, {"above_imports": 300, "input": 100}]
    assert measures.memory_ratio(ran(peak_memory_bytes={"per_worker": workers})) == 3.0


def test_the_first_iteration_begins_before_its_line_is_written() -> None:
    line = SimpleNamespace(time=107.0, wall_seconds=0.5)
    campaign = SimpleNamespace(launches=[SimpleNamespace(timed=[line])])
    assert measures.first_iteration(SimpleNamespace(campaign=campaign, began=102.0)) == 4.5  # type: ignore[arg-type]


def made_up() -> tuple[Measure, ...]:
    def fails(bench: Bench) -> dict[str, float]:
        raise KeyError("link")

    def cannot(bench: Bench) -> dict[str, float]:
        raise RunFailed("a worker died")

    return (
        Measure("one", (AT_LEAST,), 1, lambda bench: {"a": 2.0 + bench.seed}),
        Measure("two", (AT_MOST, Target("d", "other", "how", 1.0)), 1, lambda bench: {"b": 4.0}),
        Measure("three", (Target("e", "broken", "how", 1.0),), 1, fails),
        Measure("four", (Target("f", "dead", "how", 1.0),), 1, cannot),
    )


def test_every_measure_has_its_turn_in_every_block_and_failures_stay_alone() -> None:
    said: list[str] = []
    running = Running(made_up(), said.append)
    for block in range(2):
        running.block(block, 0, 10)
    assert running.values == {"a": [2.0, 3.0], "b": [4.0, 4.0], "d": [], "e": [], "f": []}
    assert running.failures["d"] == ["it was not measured in this run"] * 2
    assert running.failures["e"] == ["KeyError: 'link'"] * 2
    assert running.failures["f"] == ["a worker died"] * 2
    assert sum(line.startswith("block 2: ") for line in said) == 4
    assert status_of(running.results()) == 3


def test_status_tells_what_is_missed() -> None:
    assert status_of([judge(AT_LEAST, (3.0,), ()), judge(AT_MOST, (3.0,), ())]) == 0
    assert status_of([judge(AT_LEAST, (1.0,), ()), judge(AT_MOST, (3.0,), ())]) == 1
    assert status_of([judge(AT_LEAST, (1.0,), ()), judge(AT_MOST, (3.0,), ("once it failed",))]) == 3


def test_results_survive_their_file() -> None:
    for result in (judge(AT_LEAST, (3.0, 1.0), ("x",)), judge(AT_MOST, (), ("y",))):
        assert from_json(json.loads(json.dumps(to_json(result)))) == result


def test_the_table_says_goal_value_spread_and_what_is_missing() -> None:
    results = [judge(AT_LEAST, (1.9, 2.5, 2.1), ("x",)), judge(AT_MOST, (6.0,), ()), judge(AT_MOST, (), ("a | b",))]
    lines = markdown(results).splitlines()[2:]
    assert lines == [
        "| ratio | ≥ 2 | 2.1 | 1.9–2.5 (of 3) | yes, within the spread, 1 failed | how |",
        "| seconds | ≤ 5 s | 6 s | 1 block | no | how |",
        "| seconds | ≤ 5 s | - | - | a / b | how |",
    ]


BEGIN, END = "<!-- goals -->", "<!-- /goals -->"


def test_only_what_is_between_the_markers_changes() -> None:
    text = f"before\n{BEGIN}\nold\nolder\n{END}\nafter\n"
    assert put_between(text, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    for wrong in ("nothing", f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}"):
        with pytest.raises(UsageError, match="each once"):
            put_between(wrong, "new")


def test_the_readme_has_the_markers() -> None:
    assert "new" in put_between((ROOT / "README.md").read_text(), "new")


def test_goals_and_measures_can_be_chosen_by_name() -> None:
    assert [one.name for one in chosen(["memory"])] == ["shared-memory"]
    assert [one.name for one in chosen(["dask", "help"])] == ["dask", "help"]
    assert chosen([]) == list(MEASURES)
    with pytest.raises(UsageError, match="--only speed: there is no such goal; there are "):
        chosen(["speed"])


def test_every_goal_is_measured_once() -> None:
    names = [target.name for one in MEASURES for target in one.targets]
    known = [value.name for value in vars(targets).values() if isinstance(value, Target)]
    assert sorted(names) == sorted(known)
    assert len(set(names)) == len(names)


def test_the_option_that_overlaps_phases_is_given_only_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "BY_KEY", {})
    assert bench.pipeline("on") == []
    monkeypatch.setattr(bench, "BY_KEY", {"pipeline": None})
    assert bench.pipeline("off") == ["--pipeline", "off"]


@pytest.mark.parametrize("keys", [tables.STRINGS, tables.COLUMNS])
def test_tables_match_in_as_many_rows_as_they_should(tmp_path: Path, keys: tables.Keys) -> None:
    left, right = (pq.read_table(path) for path in tables.make(tmp_path, keys, 5000, seed=3))
    assert left.num_rows == right.num_rows == 5000
    assert left.join(right, list(keys.on), join_type="inner").num_rows == 1500
    assert len(np.unique(left["left_payload"].to_numpy())) == 5000


@pytest.mark.parametrize("keys", [tables.STRINGS, tables.COLUMNS])
def test_libraries_join_the_tables_and_a_wrong_count_is_an_error(
    tmp_path: Path, keys: tables.Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_own", lambda *_: (1e-6, 600))
    found = tables.against_libraries(Bench(tmp_path), keys, rows=2000)
    assert found.keys() == {target.name for target in tables.TARGETS[keys.name].values()}
    assert min(found.values()) > 1
    monkeypatch.setattr(tables, "_own", lambda *_: (1e-6, 599))
    with pytest.raises(WrongResult, match="merge_bench found 599 rows where 600 match"):
        tables.against_libraries(Bench(tmp_path), keys, rows=2000)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "benchmarks.goals", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=200, check=False, cwd=ROOT)


def test_help_is_measured_and_written(tmp_path: Path) -> None:
    file = tmp_path / "new" / "last.json"
    done = command("--only", "help", "--blocks", "1", "--output", str(file))
    assert done.returncode in (0, 1), done.stderr  # a machine that is busy may miss the goal
    (goal,) = json.loads(file.read_text())["goals"]
    assert goal["value"] > 0.01
    assert done.stdout.splitlines()[2].startswith("| `--help` | ≤ 0.5 s | ")
    shown = command("--show", str(file))
    assert shown.stdout == done.stdout
    assert shown.returncode == done.returncode


def test_a_wrong_name_or_file_is_one_sentence(tmp_path: Path) -> None:
    wrong = tmp_path / "x.json"
    wrong.write_text("{}")
    for words, sentence in ((("--only", "x"), "there is no such goal"), (("--show", str(wrong)), "holds no results")):
        done = command(*words)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1
