"""Dask's own dashboard: which process serves it, which pages, and at which address."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from pathlib import Path

import dask
import pytest
from distributed import Scheduler

from merge_bench.cluster import dask_commands, dask_scheduler_functions
from merge_bench.cluster.base import ClusterSettings, ProcessCommand
from merge_bench.cluster.dask_commands import SCHEDULER_ROUTES, ProcessLocation
from merge_bench.cluster.scheduler_client import dashboard_link
from merge_bench.host.pinning import Pin
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload import SyntheticSpec

PLACE = ProcessLocation("here", "/scratch", "lo", "127.0.0.1")
PLAN = Plan(
    SyntheticSpec(1000, 0.3, 0),
    2,
    iterations=1,
    warmup=0,
    launches=1,
    engine="polars",
    exchange="ucx",
    protocol="tcp",
    verify="ends",
    timeout=15.0,
    seed=0,
)


def scheduler(dask_dashboard: bool) -> ProcessCommand:
    settings = ClusterSettings({}, Path("results"), dask_dashboard=dask_dashboard)
    return dask_commands.scheduler_command(PLAN, settings, PLACE, {SCHEDULER_ROUTES: "[]"})


def test_the_scheduler_serves_it_only_where_it_is_asked_to_and_workers_never_do() -> None:
    assert "--no-dashboard" in scheduler(False).argv
    assert scheduler(False).environment[SCHEDULER_ROUTES] == "[]"
    assert "--dashboard" in scheduler(True).argv
    assert "--no-dashboard" not in scheduler(True).argv
    for asked in (False, True):
        settings = ClusterSettings({}, Path("results"), dask_dashboard=asked)
        assert "--no-dashboard" in dask_commands.worker_command(PLAN, settings, PLACE, 0, {}, Pin((), None, ())).argv


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("shown", [True, False])
def test_its_address_is_known_where_it_is_served_and_it_can_change_nothing(shown: bool) -> None:
    async def look() -> tuple[str | None, list[int]]:
        routes = dask_commands.DASHBOARD_ROUTES if shown else []
        with dask.config.set({"distributed.scheduler.http.routes": routes}):
            async with Scheduler(port=0, host="127.0.0.1", dashboard=shown, dashboard_address="127.0.0.1:0") as made:
                found = dashboard_link(made.address, dask_scheduler_functions.dashboard_port(made))
                root = f"http://127.0.0.1:{made.services['dashboard'].port}/"
                pages = ("status", "info/main/workers.html", "api/v1/retire_workers")
                codes = await asyncio.gather(*(asyncio.to_thread(status, root + page) for page in pages))
                assert found in (None, root + "status")
                return found, codes

    found, codes = asyncio.run(look())
    assert (found is not None) is shown
    assert codes == ([200, 200, 404] if shown else [404, 404, 404])


def test_the_address_of_a_scheduler_on_ipv6_can_be_read_and_a_template_that_cannot_be_filled_is_no_failure() -> None:
    address = "tls://[fe80::1]:8786"
    assert dashboard_link(address, 8787) == "http://[fe80::1]:8787/status"
    assert dashboard_link(address, None) is None
    with dask.config.set({"distributed.dashboard.link": "https://hub/{NO_SUCH_VARIABLE}/{port}"}):
        assert dashboard_link(address, 8787) is None
