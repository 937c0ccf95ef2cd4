"""Dask's own merge: it is planned without waiting for the cluster, and gives the same result however it is begun."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, Future, Scheduler
from distributed.utils import LoopRunner

from merge_bench.campaign import dask_baseline
from merge_bench.cluster import dask_scheduler_functions
from merge_bench.merge import dask_baseline_steps
from merge_bench.merge.distribution import SHUFFLED
from merge_bench.merge.frame import Frame
from merge_bench.merge.how import How
from merge_bench.merge.plan import Plan
from tests.helpers.clusters import dask_cluster
from tests.helpers.runs import LIMIT, command

TABLE = pa.table({"key": pa.array([1, 2], pa.int64()), "payload": pa.array([1.5, None], pa.float64())})


def planned(how: How) -> Plan:
    """What Dask's merge is told of a plan."""
    return SimpleNamespace(how=how, keys=("key",), shuffle="tasks", distribution=SHUFFLED)  # type: ignore[return-value]


@pytest.fixture
def client() -> Client:
    """A client of a scheduler that has no workers: what it submits stays pending for ever."""
    runner = LoopRunner(asynchronous=False)
    runner.start()

    async def begin() -> Scheduler:
        return await Scheduler(host="127.0.0.1", port=0, dashboard=False)

    scheduler = runner.run_sync(begin)
    with Client(scheduler.address, set_as_default=False) as client:
        yield client
    runner.run_sync(scheduler.close)
    runner.stop()


def test_the_merge_is_planned_without_waiting_for_a_partition(client: Client) -> None:
    fields = Frame.from_arrow(TABLE).fields
    plan = planned(How.INNER)
    parts = [[client.submit(len, f"{side}{rank}") for rank in range(2)] for side in ("left", "right")]
    found: list[list[Future]] = []

    def submit() -> None:
        empty = dask_baseline_steps.empty_pandas((fields, fields), plan)
        with client.as_current():
            found.append(
                dask_baseline_steps.futures_of(client, client.persist(dask_baseline_steps.merged(parts, empty, plan)))
            )

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert found, "it waits for a partition that no worker will ever make"
    assert all(future.status == "pending" for future in found[0])


def test_the_scheduler_loads_what_a_merge_needs_and_answers_meanwhile(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()

    def slow() -> None:
        time.sleep(1)
        done.set()

    monkeypatch.setattr(dask_scheduler_functions, "import_dataframes", slow)
    loading = threading.Thread(target=client.run_on_scheduler, args=(dask_scheduler_functions.load_dataframes,))
    loading.start()
    answers = 0
    while loading.is_alive():
        assert client.run_on_scheduler(dask_scheduler_functions.silences) == {}
        answers += 1
    assert done.is_set()
    assert answers > 5


def test_what_a_scheduler_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    dask_scheduler_functions.import_dataframes()
    assert {"dask.dataframe", "distributed.shuffle"} <= set(sys.modules)
    monkeypatch.setitem(sys.modules, "dask.dataframe", None)  # importing it is an ImportError
    dask_scheduler_functions.import_dataframes()


def test_an_empty_frame_has_the_types_of_the_chunks() -> None:
    """With nulls or without: a worker whose share of a nullable column has none gives the same types as the others."""
    fields = Frame.from_arrow(TABLE).fields
    nullable = dask_baseline_steps._nullable(fields, fields, planned(How.INNER))
    empty, _ = dask_baseline_steps.empty_pandas((fields, fields), planned(How.INNER))
    assert len(empty) == 0
    for table in (TABLE, TABLE.slice(0, 1)):
        assert list(dask_baseline_steps._pandas(table, nullable).dtypes) == list(empty.dtypes)


@pytest.fixture(scope="module")
def scheduler_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with dask_cluster(tmp_path_factory.mktemp("cluster"), 2) as file:
        yield file


@pytest.mark.cluster
@pytest.mark.parametrize("shuffle", ["tasks", "p2p"])
def test_a_worker_can_begin_the_merge(
    tmp_path: Path, scheduler_file: Path, shuffle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with cuDF, whose empty frames need a GPU; here with pandas."""
    begun: list[object] = []

    def start_there(merge: dask_baseline._DaskMerge) -> object:
        begun.append(merge)
        return merge._start_there()

    monkeypatch.setattr(dask_baseline._DaskMerge, "_start_here", start_there)
    options = ("--exchange", "dask", "--shuffle", shuffle, "--chunk", "2e4", "--iterations", "1", "--verify", "every")
    finished = command(tmp_path, "--scheduler-file", scheduler_file, *options).check_ended(0)
    assert finished.document["verified"] is True
    assert begun


@pytest.mark.cluster
@pytest.mark.parametrize("how", ["left", pytest.param("outer"), pytest.param("right", marks=pytest.mark.soak)])
def test_rows_with_null_keys_are_kept(tmp_path: Path, scheduler_file: Path, how: str) -> None:
    """Null and NaN keys, and values that a float cannot hold, in both tables; every row is compared with DuckDB's."""
    rng = np.random.default_rng(3)
    for side, rows in (("left", 900), ("right", 600)):
        keys = rng.integers(0, 500, rows)
        columns = {
            "id": pa.array(keys, mask=rng.random(rows) < 0.1),
            "part": np.where(rng.random(rows) < 0.1, np.nan, keys % 3),
            f"{side}_value": pa.array(rng.integers(2**60, 2**62, rows), mask=rng.random(rows) < 0.1),
            f"{side}_text": [f"text {key}" for key in keys],
        }
        pq.write_table(pa.table(columns), tmp_path / f"{side}.parquet", row_group_size=200)
    tables = ("--left", tmp_path / "left.parquet", "--right", tmp_path / "right.parquet", "--on", "id,part")
    options = ("--exchange", "dask", "--how", how, "--iterations", "1", "--verify", "full")
    finished = command(tmp_path / "run", "--scheduler-file", scheduler_file, *tables, *options).check_ended(0)
    assert finished.document["verified"] is True
