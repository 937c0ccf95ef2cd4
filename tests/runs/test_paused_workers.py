"""Workers of a running cluster that Dask has paused, for they use too much of their memory, end a run in time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.clusters import dask_cluster
from tests.helpers.runs import SMALL, command

pytestmark = pytest.mark.cluster
TIMEOUT = 4.0


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster whose only worker is paused from the start, since it may use only 20 MB."""
    pause = {"DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "0.02"}
    with dask_cluster(tmp_path_factory.mktemp("paused"), 1, pause, memory_limit="1GB") as file:
        yield file


@pytest.mark.parametrize("options", [("--exchange", "ucx"), ("--exchange", "dask", "--shuffle", "tasks")])
def test_a_run_names_the_paused_worker_its_memory_and_the_remedy(
    tmp_path: Path, paused: Path, options: tuple[str, ...]
) -> None:
    finished = command(tmp_path, "--scheduler-file", paused, *SMALL, *options, "--timeout", f"{TIMEOUT:g}")
    finished.check_ended(3)
    error = finished.document["error"]
    assert (error["code"], error["rank"]) == ("worker-idle", 0)
    for part in ("Dask paused it", "of its limit of 953.67 MiB", "--memory-limit"):
        assert part in error["message"]
