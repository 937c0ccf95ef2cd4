"""The summary of `probe mpi`."""

from __future__ import annotations

import io
import re

from merge_bench.probe.view.show import WITHOUT, print_mpi_summary
from tests.probe.samples import latency, ping_pong

ROWS = [
    ping_pong("std-delay", 1, 0.5, bandwidth_median=None, bandwidth_range=None),
    *(ping_pong(test, 1024 << step, 4.0 * 2**step) for test in ("std", "buff") for step in range(11)),
]


def printed(*args: object, **more: object) -> list[str]:
    file = io.StringIO()
    print_mpi_summary(*args, file=file, width=80, **more)
    return file.getvalue().rstrip().splitlines()


def test_it_fits_a_small_terminal_and_has_few_sizes() -> None:
    lines = printed(ROWS, [], records=["results/x/records.jsonl"])
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    sizes = [found[1] for line in lines if (found := re.match(r" *(\d+ (?:B|KiB|MiB)) ", line))]
    assert (len(sizes), sizes[0], sizes[-1]) == (6, "1 B", "1 MiB")
    assert WITHOUT in lines


def test_times_of_ucx_stand_beside_those_of_mpi() -> None:
    lines = printed(ROWS, [latency(size=1 << 20, micros=2048.0), latency(size=1, micros=0.25)])
    (large,) = (line for line in lines if "1 MiB" in line)
    (small,) = (line for line in lines if " 1 B" in line)
    assert large.split()[2:6] == ["4,096", "4,096", "2,048", "2.000"]
    assert small.split()[2:6] == ["0.500", "-", "0.250", "2.000"]
    assert WITHOUT not in lines


def test_another_placement_of_ucx_is_not_shown() -> None:
    lines = printed(ROWS, [latency(size=1 << 20, placement="two-hosts")])
    assert not any("UCX\n" in line or "÷ UCX" in line for line in lines)
