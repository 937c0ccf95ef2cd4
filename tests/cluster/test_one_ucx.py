"""All ranks of a run load one release of UCX."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from merge_bench.cluster.host_check import check_same_ucx_release
from merge_bench.errors import UsageError
from merge_bench.host.description import UcxDescription
from merge_bench.records.schema import Worker
from tests.helpers.runs import ROOT, SMALL, command

# Read by every Python that finds it on its path; worker-1 alone then believes that its UCX is another.
ANOTHER = """
import builtins
import sys

load = builtins.__import__


def load_another(name, *context, **more):
    module = load(name, *context, **more)
    if name == "ucxx" and "worker-1" in sys.argv:
        module.get_ucx_version = lambda: (1, 99, 7)
    return module


builtins.__import__ = load_another
"""


def workers(*versions: str | None) -> list[Worker]:
    return [
        Worker(rank=rank, host=f"node{rank}", pid=1, name="", ucx=UcxDescription(version=version))
        for rank, version in enumerate(versions)
    ]


def test_the_refusal_names_releases_with_their_ranks_and_hosts() -> None:
    with pytest.raises(UsageError) as caught:
        check_same_ucx_release(workers("1.21.0", "1.20.1", "1.21.0"))
    assert "1.20.1 by rank 1 on node1; 1.21.0 by rank 0 on node0, rank 2 on node2." in str(caught.value)


def test_one_release_or_none_is_fine() -> None:
    check_same_ucx_release(workers("1.21.0", "1.21.0"))
    check_same_ucx_release(workers(None, None))


@pytest.mark.cluster
def test_a_run_with_two_releases_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(ANOTHER)
    finished = command(
        tmp_path, *SMALL, "--workers", "2", environ={"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    )
    assert finished.status == 2, finished.errors
    assert "the ranks loaded different releases of UCX: " in finished.errors
    assert "1.99.7 by rank 1 on " in finished.errors
    assert "Traceback" not in finished.errors
    assert finished.failure.code == "usage"
