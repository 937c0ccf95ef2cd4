"""`benchmarks/goals.py` with measurements that are made up: what it makes of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.goal import measures, targets
from benchmarks.goal.bench import Bench
from benchmarks.goal.measures import Measure
from benchmarks.goal.targets import Result, Target, spread_of_sizes
from benchmarks.goals import MEASURES, Running, chosen, markdown, status_of
from merge_bench.errors import RunFailed, UsageError
from tests.benchmarks.conftest import Launches

ROOT = Path(__file__).resolve().parents[2]
AT_LEAST, AT_MOST = Target("a", "ratio", "how", 2.0), Target("b", "seconds", "how", None, 5.0, " s")


def ran(**document: Any) -> Any:
    return SimpleNamespace(document=document)


def launched(launch: Any) -> Any:
    return SimpleNamespace(campaign=SimpleNamespace(launches=[launch]), began=102.0)


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
    result = Result(AT_LEAST, list(values))
    assert (result.met, result.sure) == (met, sure)
    assert result.spread is not None
    assert (result.spread.low, result.spread.high, result.spread.coverage) == (min(values), max(values), None)


def test_six_blocks_have_an_interval() -> None:
    result = Result(AT_MOST, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert result.spread is not None
    assert (result.spread.median, result.spread.low, result.spread.high) == (3.5, 1.0, 6.0)
    assert result.spread.coverage == pytest.approx(0.96875)
    assert result.met
    assert not result.sure


FAST = Target("f", "wall ÷ wire", "how", None, 1.1, or_limited_by="cores")
CORES, WIRE, NEITHER = {"bottleneck": "cores"}, {"bottleneck": "link"}, {"bottleneck": None}


@pytest.mark.parametrize(
    ("values", "told", "met", "sure", "instead"),
    [
        ((2.4, 2.5), (CORES, CORES), True, True, True),
        ((2.4, 2.5), (CORES, NEITHER), False, True, False),
        ((1.0, 2.5), (WIRE, CORES), True, True, True),
        ((1.0, 1.05), (WIRE, WIRE), True, True, False),
        ((2.4,), (), False, True, False),
    ],
)
def test_a_goal_may_be_met_by_naming_what_limits_every_block_that_misses(
    values: tuple[float, ...], told: tuple[dict[str, str], ...], met: bool, sure: bool, instead: bool
) -> None:
    result = Result(FAST, list(values), [], list(told))
    assert (result.met, result.sure, result.instead) == (met, sure, instead)
    assert Result(AT_MOST, [6.0], [], [CORES]).met is False
    assert ("limited by the cores" in markdown([result]).splitlines()[2].split("|")[3]) == instead
    assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    result = Result(AT_LEAST)
    for _ in range(2):
        result.fail("no hosts here")
    assert result.met is None
    assert result.failures == ["no hosts here"]


def test_bounds_on_both_sides() -> None:
    both = Target("c", "agreement", "how", 0.9, 1.1)
    assert [both.holds(value) for value in (0.89, 0.9, 1.0, 1.1, 1.11)] == [False, True, True, True, False]
    assert (both.shown, AT_LEAST.shown, AT_MOST.shown) == ("0.9 to 1.1", "≥ 2", "≤ 5 s")


def test_only_large_sizes_have_to_be_constant() -> None:
    assert spread_of_sizes({1: 9e-8, 4: 2e-8, 8: 2.2e-8, 16: 2.1e-8}, 4) == pytest.approx(1.1)
    with pytest.raises(RunFailed, match="only 1 sizes of at least 4 rows fit"):
        spread_of_sizes({1: 9e-8, 4: 2e-8}, 4)


FEW = 4 * 2**30  # bytes of memory, in which not all sizes fit


def test_sizes_double_as_long_as_they_fit() -> None:
    assert measures.sizes(10 * 2**40) == [1_000_000 * 2**n for n in range(7)]
    few = measures.sizes(FEW)
    assert few == [1_000_000 * 2**n for n in range(len(few))]
    assert 1 < len(few) < 6


LINK = {
    "fraction": 0.95,
    "limit_bytes_per_second": 9e9,
    "check_bytes_per_second": 10e9,
    "not_checked": None,
    "wall_ratio": 1.1,
    "disturbed": None,
}
DISTURBED = {**LINK, "fraction": None, "wall_ratio": None, "disturbed": "exchanges ran 1.6 × as fast"}


def test_the_link_gives_two_values() -> None:
    found = measures.link_values(Bench(Path()), ran(link=LINK), AT_LEAST, AT_MOST)
    assert found == {"a": 0.95, "b": 0.9}
    reason = "4 polling processes on 2 cores"
    unchecked = ran(link={**LINK, "check_bytes_per_second": None, "not_checked": reason})
    bench = Bench(Path())
    assert measures.link_values(bench, unchecked, AT_LEAST, AT_MOST) == {"a": 0.95}
    assert bench.details[AT_MOST.name] == {measures.NOT_MEASURED: reason}


def test_a_limit_that_was_disturbed_counts_for_no_goal() -> None:
    bench = Bench(Path())
    assert measures.link_values(bench, ran(link=DISTURBED), AT_LEAST, AT_MOST) == {}
    reason = "the link limit was disturbed: exchanges ran 1.6 × as fast"
    assert bench.details == {name: {measures.NOT_MEASURED: reason} for name in (AT_LEAST.name, AT_MOST.name)}
    with pytest.raises(RunFailed, match=reason):
        measures.wall_over_bytes(ran(link=DISTURBED))
    here = Answering(
        lambda **_: ran(link=DISTURBED, peak_memory_bytes={"per_worker": [{"above_imports": 2, "input": 1}]})
    )
    running = Running([next(one for one in MEASURES if one.name == "shared-memory")])
    running._measure(running.wanted[0], here)
    assert running.found[targets.SHARED_MEMORY.name].failures == [reason]
    assert running.found[targets.SHARED_MEMORY.name].met is None
    assert running.found[targets.MEMORY.name].values == [2.0]


def test_a_share_of_a_disturbed_limit_does_not_count_in_older_files_either() -> None:
    result = Result(targets.SHARED_MEMORY, [1.55, 0.88, 0.86])
    assert (result.met, result.sure) == (False, True)
    assert result.spread is not None
    assert (result.spread.median, result.spread.high, result.spread.blocks) == (pytest.approx(0.87), 0.88, 2)
    document = json.loads(json.dumps(result.to_json()))
    del document["most_counted"]
    assert Result.from_json(document) == result
    assert Result(targets.SHARED_MEMORY, [1.55]).met is None
    assert Result(AT_LEAST, [3.0]).met


def test_a_link_without_a_limit_is_no_value() -> None:
    with pytest.raises(RunFailed, match="was not measured"):
        measures.link_values(Bench(Path()), ran(link=None), AT_LEAST, AT_MOST)


class Answering(Bench):
    """A bench whose runs are made up: each is what `answer` makes of its options."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        super().__init__(Path())
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    def merge(self, *, hosts: Any = None, **chosen: object) -> Any:
        self.asked.append({"hosts": hosts, **chosen})
        return self.answer(**chosen)


def test_links_are_measured_over_the_transports_that_the_goals_name() -> None:
    here = Answering(lambda **_: ran(link=LINK, peak_memory_bytes={"per_worker": [{"above_imports": 2, "input": 1}]}))
    measures.shaped_tcp(here, lambda: contextlib.nullcontext("hosts"))
    measures.shared_memory(here)
    asked = [(options["hosts"], options["require_transport"]) for options in here.asked]
    assert asked == [("hosts", "tcp"), (None, "sysv,posix,cma")]


def test_wall_over_bytes_is_that_of_the_report() -> None:
    assert measures.wall_over_bytes(ran(link=LINK)) == pytest.approx(1.1)
    for link in (None, {**LINK, "wall_ratio": None}):
        with pytest.raises(RunFailed, match="the link limit was not measured"):
            measures.wall_over_bytes(ran(link=link))


def test_every_size_is_told_beside_how_far_they_spread() -> None:
    nanoseconds = dict.fromkeys(measures.sizes(FEW), 10.0) | {1_000_000: 99.0, 4_000_000: 12.5}
    here = Answering(lambda *, chunk, **_: ran(wall_seconds={"median": nanoseconds[chunk] * 2 * chunk / 1e9}))
    assert measures.linear(here, FEW) == {"linear": pytest.approx(1.25)}  # sizes from 4e6 rows count
    sizes = here.details["linear"]["sizes"]
    assert [each["rows_per_chunk"] for each in sizes] == list(nanoseconds)
    assert [each["nanoseconds_per_row"] for each in sizes] == pytest.approx(list(nanoseconds.values()))


def test_memory_is_that_of_the_worst_worker() -> None:
    workers = [{"above_imports": 250, "input": 100}, {"above_imports": 300, "input": 100}]
    assert measures.memory_ratio(ran(peak_memory_bytes={"per_worker": workers})) == 3.0


def test_the_first_iteration_begins_before_its_line_is_written() -> None:
    line = SimpleNamespace(time=107.0, wall_seconds=0.5)
    here = Answering(lambda **_: launched(SimpleNamespace(timed_iterations=[line])))
    assert measures.launch(here) == {"launch": 4.5}


def made_up() -> tuple[Measure, ...]:
    def fails(bench: Bench) -> dict[str, float]:
        raise KeyError("link")

    def cannot(bench: Bench) -> dict[str, float]:
        raise RunFailed("a worker died")

    def tells(bench: Bench) -> dict[str, float]:
        bench.details["a"] = {"seed": bench.seed}
        return {"a": 2.0 + bench.seed}

    return (
        Measure("one", (AT_LEAST,), 1, tells),
        Measure("two", (AT_MOST, Target("d", "other", "how", 1.0)), 1, lambda bench: {"b": 4.0}),
        Measure("three", (Target("e", "broken", "how", 1.0),), 1, fails),
        Measure("four", (Target("f", "dead", "how", 1.0),), 1, cannot),
    )


def test_every_measure_has_its_turn_in_every_block_and_failures_stay_alone(capsys: pytest.CaptureFixture[str]) -> None:
    running = Running(made_up())
    for block in range(2):
        running.block(block, 0, 10)
    values = {name: result.values for name, result in running.found.items()}
    assert values == {"a": [2.0, 3.0], "b": [4.0, 4.0], "d": [], "e": [], "f": []}
    assert running.found["a"].details == [{"seed": 0}, {"seed": 1}]
    assert running.found["b"].details == [{}, {}]
    assert running.found["d"].failures == ["not measured in this run"]
    assert running.found["e"].failures == ["KeyError: 'link'"]
    assert running.found["f"].failures == ["a worker died"]
    assert sum(line.startswith("block 2: ") for line in capsys.readouterr().err.splitlines()) == 4
    assert status_of(list(running.found.values())) == 3


def test_status_tells_what_is_missed() -> None:
    assert status_of([Result(AT_LEAST, [3.0]), Result(AT_MOST, [3.0])]) == 0
    assert status_of([Result(AT_LEAST, [1.0]), Result(AT_MOST, [3.0])]) == 1
    assert status_of([Result(AT_LEAST, [1.0]), Result(AT_MOST, [3.0], ["once it failed"])]) == 3


def test_results_survive_their_file() -> None:
    for result in (Result(AT_LEAST, [3.0, 1.0], ["x"]), Result(AT_MOST, [], ["y"])):
        assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_the_table_says_goal_value_spread_and_what_is_missing() -> None:
    results = [Result(AT_LEAST, [1.9, 2.5, 2.1], ["x"]), Result(AT_MOST, [6.0]), Result(AT_MOST, [], ["a | b"])]
    lines = markdown(results).splitlines()[2:]
    assert lines == [
        "| ratio | ≥ 2 | 2.1 | 1.9–2.5 (of 3) | yes, within the spread, 1 failed | how |",
        "| seconds | ≤ 5 s | 6 s | 1 block | no | how |",
        r"| seconds | ≤ 5 s | - | - | a \| b | how |",
    ]


def test_goals_and_measures_can_be_chosen_by_name() -> None:
    assert [one.name for one in chosen(["memory"])] == ["shared-memory"]
    assert [one.name for one in chosen(["dask", "help"])] == ["dask", "help"]
    assert chosen([]) == list(MEASURES)
    with pytest.raises(UsageError, match="--only speed: unknown name; choose from "):
        chosen(["speed"])


def test_every_goal_is_measured_once() -> None:
    names = [target.name for one in MEASURES for target in one.targets]
    known = [value.name for value in vars(targets).values() if isinstance(value, Target)]
    assert sorted(names) == sorted(known)
    assert len(set(names)) == len(names)


def test_of_duckdbs_variants_the_fastest_counts(tmp_path: Path, launches: Launches) -> None:
    walls = {"merge_bench": 1.0, "duckdb-table": 2.5, "duckdb-arrow": 2.25, "polars-streaming": 4.0}
    launches.wall = lambda launch: walls[launch.contender]
    here = Bench(tmp_path)
    assert measures.in_one_process(here) == {"polars": 4.0, "duckdb": 2.25}
    assert here.details["duckdb"]["wall_seconds"] == {"merge_bench": 1.0, "duckdb-table": 2.5, "duckdb-arrow": 2.25}
    assert sorted(launches.names()) == sorted(walls)
