"""The joins of two engines on one GPU: what is left where a case brings its process down, and the program's figures."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from benchmarks.on_gpu import join_kernels
from benchmarks.on_gpu.join_kernels import watch
from tests.helpers import fake_rapids
from tests.helpers.fake_kernels import needs_compiler

PROGRAM = """
import json, os, sys, time
for case in sys.argv[1:]:
    print(f"begin {case}", file=sys.stderr, flush=True)
    if case == "fault":
        print("an illegal memory access", file=sys.stderr, flush=True)
        os._exit(7)
    time.sleep(60 * (case == "slow"))
    print(json.dumps({"case": case, "verified": True}), flush=True)
"""


def ended(*cases: str, seconds: float, each: float) -> list[tuple[str, str | None]]:
    program = [sys.executable, "-c", PROGRAM]
    return [(line["case"], line.get("error")) for line in watch(cases, seconds, each, program)]


def test_the_other_cases_go_on() -> None:
    assert ended("a", "fault", "b", "slow", "c", seconds=60, each=2.5) == [
        ("a", None), ("fault", "ended with status 7 · an illegal memory access"), ("b", None),
        ("slow", "not done in time"), ("c", None),
    ]  # fmt: skip


def test_no_case_is_begun_when_the_time_is_over() -> None:
    assert ended("slow", "c", seconds=0.3, each=60) == [("slow", "not done in time"), ("c", "no time was left")]


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", join_kernels.CASES)
def test_a_case_is_verified(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, made in fake_rapids.modules().items():
        monkeypatch.setitem(sys.modules, module, made)
    monkeypatch.setattr(fake_rapids.Device, "resource", fake_rapids.CudaMemoryResource())
    monkeypatch.setitem(join_kernels.CASES, name, replace(join_kernels.CASES[name], rows=4000))
    monkeypatch.setattr(join_kernels, "ROUNDS", 1)
    line = json.loads(json.dumps(join_kernels.measure(name)))
    assert line["verified"]
    assert line["by_kernels"] == ("of the right rows" not in name)
    assert set(line["kernels_ms"]) == ({"clear", "build", "probe"} if line["by_kernels"] else set())
    assert line["cudf_ms"] > 0
    assert line["cuda_ms"] > 0
