"""A plan as readers see it: every option that a merge writes down is known, and a foreign one harms nothing."""

from __future__ import annotations

import json
import pickle
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from merge_bench.cli import cli
from merge_bench.config.options import WorkerOptions
from merge_bench.merge import plan as made
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.tables import plan_tables
from merge_bench.records import recorded_plan as read
from tests.helpers.plans import plan_of
from tests.helpers.strict_records import unknown_fields
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign

SYNTHETIC = made.Plan(
    workload=SyntheticSpec(2000, 0.3, 7),
    workers=2,
    iterations=3,
    warmup=1,
    launches=4,
    engine="native",
    exchange="ucx",
    protocol="tcp",
    verify="ends",
    timeout=15.0,
    seed=7,
    pipeline=True,
    require_transport=("tcp",),
)


_FOR_WORKERS = {option.name for option in fields(WorkerOptions)}
"""Options that need no field in `RecordedPlan`: where they matter, readers find them in the whole plan, by key."""


def recorded(plan: made.Plan) -> dict[str, object]:
    text: dict[str, object] = json.loads(json.dumps(plan.to_json()))
    return text


def test_readers_know_every_option_of_a_merge() -> None:
    options = recorded(SYNTHETIC)
    assert set(unknown_fields(options, read.RecordedPlan.from_options(options))) <= _FOR_WORKERS
    found = read.RecordedPlan.from_options(options)
    assert (found.workers, found.rows_per_chunk, found.pipeline, found.require_transport) == (2, 1000, True, ["tcp"])
    assert found.workload is not None
    assert (found.workload.name, found.workload.fraction, found.workload.zipf) == ("synthetic", 0.3, 0.0)


def test_an_option_of_workers_is_in_their_plan_and_in_its_record() -> None:
    assert "shuffle" in _FOR_WORKERS
    plan = plan_of(exchange="dask", shuffle="tasks", workers=2, chunk=1000)
    assert plan.shuffle == recorded(plan)["shuffle"] == "tasks"
    assert recorded(plan).keys() >= _FOR_WORKERS
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_readers_know_everything_that_is_recorded_of_tables(tmp_path: Path) -> None:
    file = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"id": [1, 2, 3], "v": [1.0, None, 2.0]}), file)
    spec = plan_tables(file, file, ["id"], ["id"], 2, "native")
    options = recorded(replace(SYNTHETIC, workload=spec))
    found = read.RecordedPlan.from_options(options)
    assert set(unknown_fields(options, found)) <= _FOR_WORKERS
    assert found.rows_per_chunk is None
    assert found.workload is not None
    assert found.workload.left is not None
    assert (found.workload.left.rows, [column.name for column in found.workload.left.columns]) == (3, ["id", "v_left"])
    assert [each.code for each in found.workload.warnings or ()] == ["few-row-groups"] * 2


def test_an_option_of_another_type_counts_as_missing_and_the_others_are_read() -> None:
    found = read.RecordedPlan.from_options({**recorded(SYNTHETIC), "workers": "many", "workload": 5, "colour": "blue"})
    assert (found.workers, found.workload, found.iterations, found.engine) == (None, None, 3, "native")


TABLE = {"path": "/data/orders", "rows": 3, "columns": [{"name": "id"}], "chunks": 5}


def tables(left: object = TABLE, **others: object) -> dict[str, Any]:
    """A plan of a merge of tables, as another program may have written it."""
    return plan(workload={"name": "tables", "rows": 6, "keys": ["id"], "left": left, "right": TABLE, **others})


def test_of_a_workload_only_the_field_of_another_type_is_missing() -> None:
    options = tables({**TABLE, "rows": "3"}, keys=7)
    found = read.RecordedPlan.from_options(options)
    assert found.workers == 2
    assert found.workload is not None
    assert (found.workload.name, found.workload.rows, found.workload.keys) == ("tables", 6, None)
    assert found.workload.left == read.RecordedTable(path="/data/orders", columns=[read.TableColumn(name="id")])
    assert read.find_unreadable_options(options) == {
        "workload keys": "7",
        "workload left rows": '"3"',
        "workload left chunks": "5",
        "workload right chunks": "5",
    }
    assert read.find_unreadable_options(recorded(SYNTHETIC)) == {}


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (tables(), True),
        (tables({**TABLE, "chunks": "dealt out"}, rows="6"), True),  # which belong to no problem
        (tables({**TABLE, "rows": "3"}), False),
        (tables({**TABLE, "path": ["/data/lines"]}), False),
        (tables(["/data/lines"]), False),
        (tables(keys={"left": "id"}), False),
        ({**tables(), "workload": "tables"}, False),
        ({**tables(), "workers": "2"}, False),
    ],
)
def test_a_value_of_another_type_makes_another_problem(tmp_path: Path, other: dict[str, Any], alike: bool) -> None:
    one, two, three = (write_campaign(tmp_path, Script(plan=each)) for each in (tables(), other, other))
    for pair, status in (((one, two), 0 if alike else 2), ((two, three), 0)):
        done = CliRunner().invoke(cli, ["compare", *map(str, pair), "--json"], standalone_mode=False)
        assert done.exit_code == status, done.output


def test_a_plan_of_something_else_has_no_such_options() -> None:
    found = read.RecordedPlan.from_options({"probe": "p2p", "launches": 3, "sizes": [1024], "iterations": None})
    assert (found.probe, found.launches, found.iterations, found.workers) == ("p2p", 3, None, None)
