"""A worker in native code that never returns sends heartbeats all the same, and ends a run in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.runs import ROOT, SMALL, run

pytestmark = pytest.mark.cluster

NEVER_OPENS = """
import sys, time
from importlib.util import find_spec

NAME = "merge_bench.merge.exchange.ucx"


class Sabotage:
    def find_spec(self, name, path=None, target=None):
        if name != NAME or "worker-1" not in sys.argv:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(NAME)
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            module.UcxExchange.__init__ = lambda self, *arguments, **named: time.sleep(600)

        spec.loader.exec_module = load_and_change
        return spec


sys.meta_path.insert(0, Sabotage())
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
