"""A worker in native code that never returns sends heartbeats all the same, and ends a run in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.runs import ROOT, SMALL, run

pytestmark = pytest.mark.cluster

NEVER_OPENS = """
import sys, time

if any("dask_worker" in word for word in sys.orig_argv) and "worker-1" in sys.orig_argv:
    from merge_bench.merge.exchange.ucx import UcxExchange
    UcxExchange.__init__ = lambda self, *arguments, **named: time.sleep(600)
"""


def test_a_worker_whose_ucx_never_opens_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "sabotage"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(NEVER_OPENS)
    environ = {"PYTHONPATH": f"{folder}:{ROOT}"}
    found = run(tmp_path / "run", *SMALL, "--timeout", "5", environ=environ).check_ended(3)
    error = found.document["error"]
    assert (error["code"], error["rank"]) == ("worker-silent", 1)
    assert "is still opening UCX after 20 s" in error["message"]
