"""What campaigns of questions are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from merge_bench.records.reader import read_campaign
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.report.page.results import group_runs_by_problem, make_reported_runs
from merge_bench.report.run import print_campaign_report
from merge_bench.view.titles import (
    campaign_ids_by_label,
    measured_workload_text,
    merged_tables_text,
    plan_option_text,
    plan_workload_text,
    short_time_texts,
    title_of_campaign,
    workload_text,
)
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign


def asked(
    question: str | None, right: str = "small", rows: int = 1000, benchmark: str | None = "h2o"
) -> dict[str, Any]:
    """A plan of a merge of Parquet tables."""
    work = {
        "name": "tables",
        "benchmark": benchmark,
        "question": question,
        "keys": ["id1"],
        "left": {"path": f"/cache/{rows}/x.parquet", "rows": rows},
        "right": {"path": f"/cache/{rows}/{right}.parquet", "rows": 10},
    }
    return plan(rows_per_chunk=None, workload={name: value for name, value in work.items() if value is not None})


def test_the_question_stands_before_the_tables() -> None:
    one = RecordedPlan.from_options(asked("q1"))
    assert one.question == "h2o q1"
    assert merged_tables_text(one) == "h2o q1: x.parquet ⋈ small.parquet on id1 (1,000 / 10 rows)"
    assert workload_text([one]) == f"{merged_tables_text(one)}, 2 workers"
    other = RecordedPlan.from_options(asked(None, benchmark=None))
    assert (other.question, merged_tables_text(other)) == ("", "x.parquet ⋈ small.parquet on id1 (1,000 / 10 rows)")


def test_a_plan_is_named_by_what_tells_it_from_the_others(tmp_path: Path) -> None:
    plans = [plan(), asked("q1"), asked(None, benchmark=None), plan(rows_per_chunk=None)]
    campaign = read_campaign(
        write_campaign(tmp_path, *[Script(index=at, plan=each, plan_index=at) for at, each in enumerate(plans)])
    )
    names = [plan_workload_text(campaign, at) for at in range(5)]
    assert names[:3] == ["1,000,000 rows per chunk", "h2o q1", "x.parquet ⋈ small.parquet"]
    assert names[3:] == ["size not recorded"] * 2


def test_a_tuning_is_named_by_the_sizes_that_it_measured() -> None:
    """The first line has all sizes; an early end, or a small budget, leaves some of them out."""
    plans = [
        RecordedPlan.from_options(plan(rows_per_chunk=rows, tune={"strategy": "race"}))
        for rows in (1_000_000, 25_000_000)
    ]
    assert measured_workload_text(plans, {0}) == "1,000,000 rows per chunk, 2 workers"
    assert measured_workload_text(plans, {0, 1}) == "1,000,000 and 25,000,000 rows per chunk, 2 workers"
    assert measured_workload_text(plans, ()) == "2 workers"
    assert measured_workload_text([RecordedPlan.from_options(plan())], ()) == "1,000,000 rows per chunk, 2 workers"


def test_several_questions_of_a_benchmark_are_one_problem() -> None:
    plans = [RecordedPlan.from_options(asked(f"q{at}")) for at in (1, 2, 3, 4, 5)]
    assert workload_text(plans) == "h2o q1, q2, q3, q4 and q5 (1,000 rows), 2 workers"
    mixed = [plans[0], RecordedPlan.from_options(asked("orders-lineitem", benchmark="tpch"))]
    assert workload_text(mixed).count("⋈") == 2


def test_each_question_has_a_line_in_the_conclusion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plans = [asked("q1"), asked("q2", "medium"), asked("q5", "big")]
    scripts = [Script(index=k, plan_index=k, plan=each) for k, each in enumerate(plans)]
    campaign = read_campaign(write_campaign(tmp_path, *scripts))
    assert title_of_campaign(campaign.head, campaign.plans) == "optimized: h2o q1, q2 and q5 (1,000 rows), 2 workers"
    print_campaign_report(campaign, details=False)
    text = capsys.readouterr().out
    found = [line.split() for line in text.splitlines() if line.split()[1:2] == ["h2o"]]
    assert [line[2] for line in found] == ["q1", "q2", "q5"]
    assert "All 3 runs, verified" in text
    print_campaign_report(campaign, details=True)
    assert ["Question", "h2o", "q2"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_one_question_at_two_sizes_is_two_problems(tmp_path: Path) -> None:
    scripts = [Script(index=k, plan_index=k, plan=asked("q1", rows=10**size)) for k, size in enumerate((3, 4))]
    found = group_runs_by_problem(make_reported_runs([read_campaign(write_campaign(tmp_path, *scripts))]))
    assert len(found) == 2
    assert all(name.startswith("h2o q1: ") for name in found)


def test_an_option_is_named_with_its_value() -> None:
    found = [
        plan_option_text(*each)
        for each in (("rows_per_chunk", 20_000), ("workers", 1), ("workers", 2), ("how", "left"), ("stores", "lines"))
    ]
    assert found == ["20,000 rows per chunk", "1 worker", "2 workers", "left join", "partition writes streaming"]


def test_times_have_what_tells_them_apart() -> None:
    day, year = 86_400.0, 365 * 86_400.0
    assert short_time_texts([0.0, day, None]) == ["1 Jan", "2 Jan", ""]
    assert short_time_texts([0.0, year]) == ["1 Jan 1970", "1 Jan 1971"]
    assert short_time_texts([0.0, 60.0]) == ["1 Jan 00:00", "1 Jan 00:01"]
    assert short_time_texts([0.0, year], with_time_of_day=True) == ["1 Jan 1970 00:00", "1 Jan 1971 00:00"]


def test_campaigns_are_offered_with_their_engine_if_it_is_not_the_usual_one(tmp_path: Path) -> None:
    for engine in ("native", "duckdb"):
        write_campaign(tmp_path, Script(config="a" * 100, plan=plan(engine=engine))).rename(tmp_path / f"of-{engine}")
    labels = {
        Path(folder).name: label for label, folder in campaign_ids_by_label(ResultsFolder(tmp_path).entries()).items()
    }
    assert labels["of-duckdb"].endswith(" workers · engine duckdb · done")
    assert labels["of-native"].endswith(" workers · done")
