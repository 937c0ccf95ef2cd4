"""Which launches a sweep makes, and in which order; option combinations that make none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from merge_bench.analysis.compare import compare_campaigns, least_blocks_for_verdict
from merge_bench.campaign import ProgressDisplay
from merge_bench.campaign.make_plan import PlannedRun, options_of_each_run
from merge_bench.campaign.planned_launches import Sweep, append_config_record, order_runs_in_blocks, plan_runs
from merge_bench.campaign.run_campaign import dry_run_text, launch_label, run_sweep, too_few_blocks_sentence
from merge_bench.cluster.base import CommandListing, ProcessCommand
from merge_bench.config.reader import read_config
from merge_bench.errors import MergeBenchError, UsageError
from merge_bench.probe.p2p import P2PProbe
from merge_bench.probe.shared import probe_campaign as probes
from merge_bench.probe.shared.options import PairPlacements
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import Config
from tests.helpers import plans
from tests.helpers.plans import given, settled
from tests.helpers.synthetic_campaigns import interleaved, write_campaign


def prepared(**options: Any) -> list[PlannedRun]:
    """A plan for every combination of these options, by their keys, on the command line."""
    return plans.prepared(**{"workers": 1, **options})


def sweep(*configs: str, **options: Any) -> Sweep:
    made = Sweep()
    for name in configs:
        made.add_config(prepared(**options), Config(name=name, path=f"{name}.cfg"))
    return made


def places(made: Sweep) -> list[tuple[int, str, int]]:
    return [(job.block, job.config, job.plan) for job in made.ordered_launches()]


def test_each_block_holds_every_config_with_every_size_once() -> None:
    made = sweep("a", "b", "c", chunk=(1000, 2000), workers=(1, 2), launches=4)
    everything = {(config, plan) for config in "abc" for plan in range(4)}
    found = places(made)
    assert [block for block, _, _ in found] == sorted(block for block, _, _ in found)
    for block in range(4):
        members = [(config, plan) for at, config, plan in found if at == block]
        assert len(members) == 12
        assert set(members) == everything
    assert [(run.config, run.plan) for run in made.campaign_line().runs] == [(c, p) for c in "abc" for p in range(4)]
    assert [(plan["rows_per_chunk"], plan["workers"]) for plan in made.campaign_line().plans] == [
        (1000, 1),
        (1000, 2),
        (2000, 1),
        (2000, 2),
    ]


def test_the_order_is_random_from_block_to_block_and_the_same_for_a_seed() -> None:
    one, same, other = (sweep("a", "b", "c", "d", launches=6, seed=seed) for seed in (3, 3, 4))
    assert places(one) == places(same)
    assert places(one) != places(other)
    orders = {tuple(config for block, config, _ in places(one) if block == at) for at in range(6)}
    assert len(orders) > 1
    assert one.campaign_line().seed == 3


def test_the_order_never_changes_between_versions() -> None:
    """A campaign that another version of Python began has to be gone on with in its own order."""
    assert "".join(one for _, one in order_runs_in_blocks("abcd", blocks=3, seed=7)) == "badcbdcaadbc"


def test_a_later_block_has_the_same_order_however_many_blocks_there_are() -> None:
    assert order_runs_in_blocks("abcd", blocks=9, seed=1)[:8] == order_runs_in_blocks("abcd", blocks=2, seed=1)


def test_every_first_place_is_taken_about_equally_often() -> None:
    firsts = [order for at, (_, order) in enumerate(order_runs_in_blocks("ab", blocks=400, seed=0)) if at % 2 == 0]
    assert 150 < firsts.count("a") < 250


@pytest.mark.parametrize(("chunk", "iterations"), [((1000, 4_000_000), [100, 10]), ((1000, 2000), [100, 100])])
def test_each_size_has_the_iterations_of_its_own(chunk: tuple[int, int], iterations: list[int]) -> None:
    options = settled({"chunk": chunk, "workers": 1})
    assert [each.timed_iteration_count for each in options_of_each_run(options, {})] == iterations
    asked = settled({"chunk": chunk, "iterations": 7})
    assert [each.timed_iteration_count for each in options_of_each_run(asked, {})] == [7, 7]


def test_a_config_may_name_several_sizes(tmp_path: Path) -> None:
    path = tmp_path / "a.cfg"
    path.write_text("MERGE_BENCH_CHUNK=1e3,2e3\nMERGE_BENCH_WORKERS=1,2\n")
    config = read_config(path, {})
    found = [(each.chunk, each.workers) for each in options_of_each_run(settled({}, config), {})]
    assert found == [(1000, 1), (1000, 2), (2000, 1), (2000, 2)]
    (one,) = options_of_each_run(settled({"chunk": 5, "workers": 3}, config), {})
    assert (one.chunk, one.workers) == (5, 3)


@pytest.mark.parametrize(
    ("given", "text", "environ", "launches"),
    [
        ({"launches": 3}, "", {}, 3),
        ({"launches": 2}, "MERGE_BENCH_BLOCKS=10\n", {}, 2),
        ({}, "MERGE_BENCH_BLOCKS=5\n", {"MERGE_BENCH_LAUNCHES": "9"}, 5),
        ({}, "MERGE_BENCH_LAUNCHES=5\n", {"MERGE_BENCH_BLOCKS": "9"}, 5),
    ],
)
def test_blocks_and_launches_are_one_option(
    tmp_path: Path, given: dict[str, Any], text: str, environ: dict[str, str], launches: int
) -> None:
    path = tmp_path / "a.cfg"
    path.write_text(text)
    assert settled(given, read_config(path, {}), environ).launches == launches


def test_blocks_and_launches_from_one_place_exclude_each_other() -> None:
    both = {"MERGE_BENCH_LAUNCHES": "2", "MERGE_BENCH_BLOCKS": "3"}
    with pytest.raises(UsageError, match="MERGE_BENCH_LAUNCHES and MERGE_BENCH_BLOCKS are one option"):
        settled({}, None, both)


def test_the_environment_does_not_name_configs() -> None:
    found = settled({"configs": ("a", "b")}, None, {"MERGE_BENCH_CONFIG": "c", "MERGE_BENCH_FRESH": "1"})
    assert (found.config, found.fresh) == (None, False)


@pytest.mark.parametrize(
    ("paths", "said"), [(("x/a.cfg", "y/a.cfg"), "x/a.cfg and y/a.cfg"), (("x/a.cfg", "x/a.cfg"), "x/a.cfg, twice")]
)
def test_configs_of_one_name_are_refused_with_their_paths(paths: tuple[str, str], said: str) -> None:
    configs: list[Config] = []
    append_config_record(configs, Config(name="a", path=paths[0]))
    with pytest.raises(UsageError, match=said):
        append_config_record(configs, Config(name="a", path=paths[1]))


def test_configs_that_disagree_about_the_whole_are_refused() -> None:
    made = sweep("a", launches=2)
    with pytest.raises(UsageError, match="--launches"):
        made.add_config(prepared(launches=3), Config(name="b"))
    made = sweep("a", results="one")
    with pytest.raises(UsageError, match="--results"):
        made.add_config(prepared(results="two"), Config(name="b"))


def test_several_sizes_of_real_tables_are_refused() -> None:
    with pytest.raises(UsageError, match="--chunk cannot be used with real tables"):
        prepared(workload="tpch", chunk=(1000, 2000))


def test_each_question_of_a_benchmark_is_a_problem_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = sweep("a", workload="h2o", rows=1000, question=("5", "1", "4"), workers=(1, 2), launches=2)
    workloads = [plan["workload"] for plan in made.campaign_line().plans]
    assert [(each["benchmark"], each["question"]) for each in workloads] == [
        ("h2o", name) for name in ("q5", "q1", "q4", "q5", "q1", "q4")
    ]
    assert [each["keys"] for each in workloads[:3]] == [["id3"], ["id1"], ["id5"]]
    assert not any(each.warnings for each in made.prepared.values())
    assert [len(made.ordered_launches()), {job.block for job in made.ordered_launches()}] == [12, {0, 1}]
    shown = [launch_label(job, made.ordered_launches()) for job in made.ordered_launches()]
    assert shown[0].startswith("1 of 12: a, h2o ")
    labels = {each.partition(": ")[2] for each in shown}
    assert {"a, h2o q5, 1 worker", "a, h2o q1, 2 workers"} <= labels
    assert "## a/0: 1 worker, h2o q5, 2 launches" in dry_run_text(made)


def test_a_question_says_which_join_it_is() -> None:
    runs = options_of_each_run(settled({"workload": "h2o"}), {})
    assert [each.how for each in runs] == ["inner", "inner", "left", "inner", "inner"]
    (run,) = options_of_each_run(settled({"workload": "tpch", "how": "left"}), {})
    assert (run.how, run.question) == ("left", "orders-lineitem")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"question": ("1",)}, "--question needs --workload tpch or h2o"),
        ({"workload": "tpch", "rows": 1000}, "--rows needs --workload h2o"),
        ({"rows": 1000}, "--rows needs --workload h2o; the size of synthetic tables is set with --chunk"),
        ({"workload": "h2o", "question": ("9",)}, "has no question 'q9'"),
        ({"workload": "h2o", "how": "left"}, "--how cannot be used with --workload h2o"),
    ],
)
def test_options_of_benchmarks_are_refused_elsewhere(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        prepared(**options)


def running(**options: Any) -> list[PlannedRun]:
    return prepared(scheduler_address="tcp://127.0.0.1:1", workers=options.pop("workers", 2), **options)


@pytest.mark.parametrize("options", [{"chunk": (1000, 2000)}, {"workers": (1, 2)}, {"launches": 2}])
def test_a_running_cluster_makes_one_launch(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="use one config and one size"):
        Sweep().add_config(running(**options), Config(name="a"))


def test_a_running_cluster_takes_one_config() -> None:
    made = Sweep()
    made.add_config(running(), Config(name="a"))
    with pytest.raises(UsageError, match="use one config"):
        made.add_config(running(), Config(name="b"))


def test_probes_of_a_running_cluster_make_one_launch_unless_more_are_asked_for() -> None:
    running = given(scheduler_address="tcp://127.0.0.1:1", workers=2)
    probe = P2PProbe((), (8,), PairPlacements())
    _, jobs = probes.plan_probe_campaign(probe, [None], running)
    assert len(jobs) == 1
    with pytest.raises(UsageError, match="omit --launches"):
        probes.plan_probe_campaign(probe, [None], running.with_command_line_values(launches=2))
    _, jobs = probes.plan_probe_campaign(probe, [None], given(workers=2))
    assert [job.block for job in jobs] == [0, 1, 2]


def test_several_values_are_for_run_alone() -> None:
    with pytest.raises(UsageError, match="only `run` accepts"):
        probes.plan_probe_campaign(P2PProbe((), (8,), PairPlacements()), [None], given(workers=(1, 2)))


@pytest.mark.parametrize(
    ("configs", "chunk", "blocks", "least"),
    [("ab", (1000,), 6, None), ("abc", (1000,), 6, 7), ("abc", (1000,), 7, None), ("abc", (1000, 2000), 6, 8)],
)
def test_too_few_blocks_for_any_verdict_are_said_before_the_run(
    configs: str, chunk: tuple[int, ...], blocks: int, least: int | None
) -> None:
    few = too_few_blocks_sentence(sweep(*configs, chunk=chunk, launches=blocks))
    few_sentence = f"{blocks} blocks cannot show a difference between {len(configs)} configs"
    assert few == (None if least is None else f"{few_sentence}; use --launches {least} or more")


def test_too_few_blocks_are_a_warning_before_anything_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()  # where no results can be written
    with pytest.raises(MergeBenchError):
        run_sweep(sweep("a", "b", "c", launches=6, results=tmp_path / "file"), ProgressDisplay())
    assert capsys.readouterr().err.startswith("merge_bench: warning: few-blocks: 6 blocks cannot show a difference")


def test_what_is_said_to_be_too_few_is_what_gives_no_verdict(tmp_path: Path) -> None:
    for blocks in (6, 7):
        walls = {
            name: [wall * by for wall in (0.10, 0.11, 0.12, 0.10, 0.11, 0.12, 0.11)[:blocks]]
            for name, by in (("one", 1.0), ("two", 0.5), ("three", 0.25))
        }
        campaign = read_campaign(write_campaign(tmp_path / str(blocks), *interleaved(walls)))
        verdicts = {each.verdict for each in compare_campaigns([campaign]).comparisons if each.metric == "throughput"}
        assert (verdicts == {"INCONCLUSIVE"}) == (blocks < least_blocks_for_verdict(campaign))


def test_a_dry_run_names_each_run_and_the_order_of_launches() -> None:
    lines = dry_run_text(sweep("a", "b", chunk=(1000, 2000), launches=2)).splitlines()
    titles = [line for line in lines if line.startswith("## ")]
    assert titles[:4] == [
        "## a/0: 1 worker, 1,000 rows per chunk, 2 launches",
        "## a/1: 1 worker, 2,000 rows per chunk, 2 launches",
        "## b/0: 1 worker, 1,000 rows per chunk, 2 launches",
        "## b/1: 1 worker, 2,000 rows per chunk, 2 launches",
    ]
    assert titles[4].startswith("## 8 launches take about ")
    assert titles[5] == "## 2 blocks cannot show a difference between 2 configs; use --launches 7 or more"
    assert [title.partition(":")[0] for title in titles[6:]] == ["## block 0", "## block 1"]
    assert all(sorted(title.partition(": ")[2].split()) == ["a/0", "a/1", "b/0", "b/1"] for title in titles[6:])
    assert lines[: len(titles)] == titles
    schedulers = [line.partition(" for ")[2] for line in lines if line.startswith("# scheduler on ")]
    assert [text.split(":")[0] for text in schedulers] == ["a/0", "a/1", "b/0", "b/1"]


def test_a_dry_run_prints_each_command_and_each_environment_once() -> None:
    first = ProcessCommand("scheduler", "h", ("dask", "scheduler"), {"UCX_TLS": "^tcp", "A": "1"})
    worker = first._replace(role="worker-0", argv=("dask", "worker"))
    listing = CommandListing()
    assert listing.command_lines(first, "a/0") == ["# scheduler on h for a/0", "A=1 UCX_TLS='^tcp' dask scheduler"]
    assert listing.command_lines(worker, "a/0") == [
        "# worker-0 on h for a/0, with the environment of scheduler on h for a/0",
        "dask worker",
    ]
    assert listing.command_lines(worker, "a/1") == ["# worker-0 on h for a/1: the command of worker-0 on h for a/0"]
    other = worker._replace(environment={"UCX_TLS": "all"})
    assert listing.command_lines(other, "b/0") == ["# worker-0 on h for b/0", "UCX_TLS=all dask worker"]
    assert listing.command_lines(other._replace(environment={}, argv=("ssh",))) == ["# worker-0 on h", "ssh"]


def test_engines_are_one_campaign_and_give_names(tmp_path: Path) -> None:
    made = sweep("a", chunk=(1000, 2000), engine=("native", "polars"), launches=6)
    plans = [(plan["rows_per_chunk"], plan["engine"]) for plan in made.campaign_line().plans]
    assert plans == [(1000, "native"), (1000, "polars"), (2000, "native"), (2000, "polars")]
    assert made.distinct_labels == ["native", "polars"]
    assert {
        launch_label(job, made.ordered_launches()).split(": ")[1].split(",")[0] for job in made.ordered_launches()
    } == {"native", "polars"}
    assert "## a/1 (polars): 1 worker, 1,000 rows per chunk, 6 launches" in dry_run_text(made)
    assert too_few_blocks_sentence(sweep("a", engine=("native", "polars"), launches=1)) is not None
    assert sweep("a", "b", engine=("native", "polars")).distinct_labels == [
        "a with native",
        "a with polars",
        "b with native",
        "b with polars",
    ]


def test_exchanges_and_shuffles_that_mean_something_are_swept() -> None:
    made = sweep("a", exchange=("ucx", "dask"), shuffle=("p2p", "tasks"))
    assert made.distinct_labels == ["native over ucx", "pandas over dask p2p", "pandas over dask tasks"]
    with pytest.raises(UsageError, match="need --exchange dask"):
        prepared(shuffle=("p2p", "tasks"))
    with pytest.raises(UsageError, match="does not support --engine native"):
        prepared(exchange=("ucx", "dask"), engine="native")


def test_two_values_that_mean_the_same_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--engine auto and native mean the same here \(native\)"):
        plan_runs(None, given(engine=("auto", "native"), chunk=1000))
