"""What an iteration of the engine cudf asks of the device, counted by the libraries that tests play."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.workload import SyntheticSpec
from tests.helpers import fake_device, fake_rapids, merge_cases

ROWS = 400  # of each side on all workers together
PACKED = {"pack", "unpack", "concatenate"}


def synthetic() -> merge_cases.Tables:
    """Rows with the columns of the synthetic merge."""
    spec, numbers = SyntheticSpec(ROWS, 0.3, 0), np.arange(ROWS)
    left, right = (
        pa.table(
            {field.name: pa.array(values, field.type) for field, values in zip(spec.fields(side), columns, strict=True)}
        )
        for side, columns in (("left", (numbers, 3 * numbers)), ("right", (7 * numbers % (2 * ROWS), numbers)))
    )
    return left, right


@pytest.fixture(autouse=True)
def rapids(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in fake_rapids.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(merge_cases.CASES, "synthetic", (synthetic, ("key",)))


def iteration(case: str, workers: int) -> Counter[str]:
    """What one iteration of all workers together counts: what two count beyond one."""
    found = []
    for iterations in (1, 2):
        fake_device.forget()
        merge_cases.merge("cudf", case, workers, fake_rapids.copy, iterations=iterations)
        found.append(Counter(fake_device.counts))
    return found[1] - found[0]


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_an_iteration_of_the_synthetic_merge_waits_four_times_and_packs_nothing(workers: int) -> None:
    counts = iteration("synthetic", workers)
    assert counts[fake_device.WAIT] <= 4 * workers
    assert counts[fake_device.RELEASE] == counts[fake_device.ON_DEFAULT] == 0
    assert {name: counts[name] for name in PACKED} == dict.fromkeys(PACKED, 0)


@pytest.mark.parametrize("case", merge_cases.CASES)
def test_no_case_uses_the_default_stream(case: str) -> None:
    counts = iteration(case, 3)
    assert counts[fake_device.WAIT] <= 4 * 3
    assert counts[fake_device.RELEASE] == counts[fake_device.ON_DEFAULT] == 0


def test_the_stream_of_the_process_is_one_and_does_not_block() -> None:
    gpu_memory.bind_cuda_context()
    stream = gpu_memory.process_cuda_stream()
    assert stream is gpu_memory.process_cuda_stream()
    assert stream.flags == fake_device.CudaStreamFlags.NON_BLOCKING


def test_columns_with_nulls_or_strings_are_packed() -> None:
    counts = iteration("strings", 2)
    assert counts["pack"] == counts["unpack"] == 8  # from each of two workers to each, of both sides
    assert counts["concatenate"] == 4
