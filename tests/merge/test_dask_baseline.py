"""Dask's own merge: it is planned without waiting for the cluster, and gives the same result however it is begun."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pyarrow as pa
import pytest
from distributed import Client, Future

from merge_bench.cluster import dask_scheduler_functions
from merge_bench.merge.distribution import SHUFFLED
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.exchange import dask as dask_steps
from merge_bench.merge.frame import Frame
from merge_bench.merge.plan import Plan
from tests.helpers.clusters import scheduler_alone
from tests.helpers.runs import LIMIT

TABLE = pa.table({"key": pa.array([1, 2], pa.int64()), "payload": pa.array([1.5, None], pa.float64())})


def planned(how: JoinKind) -> Plan:
    """What Dask's merge is told of a plan."""
    return SimpleNamespace(engine="pandas", how=how, keys=("key",), shuffle="tasks", distribution=SHUFFLED)


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of a scheduler that has no workers: what it submits stays pending for ever."""
    with scheduler_alone() as address, Client(address, set_as_default=False) as client:
        yield client


def test_the_merge_is_planned_without_waiting_for_a_partition(client: Client) -> None:
    fields = Frame.from_arrow(TABLE).fields
    plan = planned(JoinKind.INNER)
    parts = [[client.submit(len, f"{side}{rank}") for rank in range(2)] for side in ("left", "right")]
    found: list[list[Future]] = []

    def submit() -> None:
        empty = dask_steps.empty_pandas_frames((fields, fields), plan)
        with client.as_current():
            found.append(
                dask_steps.partition_futures(client, client.persist(dask_steps.plan_dask_join(parts, empty, plan)))
            )

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert found, "it waits for a partition that no worker will ever make"
    assert all(future.status == "pending" for future in found[0])


@pytest.mark.slow
def test_the_scheduler_loads_what_a_merge_needs_and_answers_meanwhile(client: Client) -> None:
    load = functools.partial(time.sleep, 1)
    loading = threading.Thread(
        target=client.run_on_scheduler, args=(dask_scheduler_functions.run_import_in_background, load)
    )
    began = time.monotonic()
    loading.start()
    answers = 0
    while loading.is_alive():
        assert client.run_on_scheduler(dask_scheduler_functions.worker_states, "nobody") == {}
        answers += 1
    assert time.monotonic() - began >= 1
    assert answers > 5


def test_what_a_scheduler_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    dask_scheduler_functions.import_dask_dataframes()
    assert {"dask.dataframe", "distributed.shuffle"} <= set(sys.modules)
    monkeypatch.setitem(sys.modules, "dask.dataframe", None)  # importing it is an ImportError
    dask_scheduler_functions.import_dask_dataframes()


def test_an_empty_frame_has_the_types_of_the_chunks() -> None:
    """With nulls or without: a worker whose share of a nullable column has none gives the same types as the others."""
    fields = Frame.from_arrow(TABLE).fields
    plan = planned(JoinKind.INNER)
    empty, _ = dask_steps.empty_pandas_frames((fields, fields), plan)
    assert len(empty) == 0
    for table in (TABLE, TABLE.slice(0, 1)):
        chunk = Frame.from_arrow(table).with_nullable_fields({field.name: field.nullable for field in fields})
        assert list(dask_steps.make_side_dataframe((chunk, chunk), Side.LEFT, plan).dtypes) == list(empty.dtypes)
