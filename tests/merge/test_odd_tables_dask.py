"""Types and names on which dataframe libraries differ, merged by Dask on a cluster of threads, with both shuffles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import dask
import pytest
from distributed import Client, LocalCluster

from merge_bench.merge.distribution import broadcastable_sides
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.exchange import dask as dask_steps
from merge_bench.merge.exchange import find_data_plane
from tests.helpers.merge_cases import Tables
from tests.helpers.odd_tables import NAMED, VALUES, by_python, every_value, found_rows, of_names, of_values
from tests.merge.engines.test_odd_tables import cells
from tests.merge.test_how_dask import pieces

JOINS = tuple(how for how in JoinKind if find_data_plane("dask").supports_join(how.value))

SHUFFLES = ("tasks", "p2p")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def client() -> Iterator[Client]:
    """Two workers of one thread each in this process: p2p needs a cluster."""
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", memory_limit=0
    )
    with dask.config.set(dask_steps.NO_DISK), cluster, Client(cluster) as client:
        yield client


def check(tables: Tables, how: JoinKind, shuffle: str, sent: Side | None = None) -> None:
    keys = (tables[0].column_names[0],)
    found = pieces(tables, keys, how, sent, 2, shuffle)
    assert found_rows(found, *tables, keys, how) == by_python(*tables, keys, how)


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("how", JOINS)
def test_every_type_beside_the_key(how: JoinKind, shuffle: str) -> None:
    check(every_value(), how, shuffle)


@pytest.mark.parametrize("shuffle", [pytest.param("tasks", marks=pytest.mark.soak), "p2p"])
def test_every_type_as_a_key(shuffle: str) -> None:
    for number, (make, how) in enumerate(zip(VALUES.values(), itertools.cycle(JOINS), strict=False)):
        check(of_values(make(), nulls=number % 3 > 0), how, shuffle)


@pytest.mark.parametrize("how", [JoinKind.LEFT, JoinKind.RIGHT, JoinKind.OUTER])
@pytest.mark.parametrize("kind", ["decimal128(5, 2)", "decimal128(38, 37)"])
def test_decimals_with_missing_values(kind: str, how: JoinKind) -> None:
    check(of_values(VALUES[kind]()), how, "p2p")


def test_every_name() -> None:
    ways = [(how, sent) for how in JOINS for sent in (None, *broadcastable_sides(how))]
    for first, (how, sent) in zip(NAMED, itertools.cycle(ways), strict=False):
        check(of_names(first), how, SHUFFLES[first % 2], sent)


@pytest.mark.soak
@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("how", JOINS)
def test_the_whole_matrix(how: JoinKind, shuffle: str) -> None:
    for (_, tables), sent in itertools.product(cells(), (None, *broadcastable_sides(how))):
        check(tables, how, shuffle, sent)
