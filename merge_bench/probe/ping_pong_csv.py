"""The ping-pong's results in the columns of the program it comes from, one file a series, beside the records.

`throughput-….csv` has ``type,msgsize,time,throughput``: bytes; µs of the whole loop; Mbit/s (10⁶), pings and pongs.
`delay-….csv` has ``type,time``: µs of one message one way.
"""

from __future__ import annotations

from pathlib import Path

from merge_bench.probe.mpi_rules import Timed

THROUGHPUT, DELAY = "type,msgsize,time,throughput", "type,time"


def throughput_row(name: str, timed: Timed) -> str:
    """``size × 8 × iterations × 2 ÷ µs`` is bits per µs, which are Mbit/s."""
    return f"{name},{timed.size},{timed.elapsed * 1e6:.6f},{timed.both_ways_rate * 8 / 1e6:.6f}"


def delay_row(name: str, timed: Timed) -> str:
    """Half of the mean time there and back."""
    return f"{name},{timed.one_way * 1e6:.6f}"


def append(folder: Path, test: str, where: str, launch: int, timed: Timed) -> None:
    """Add the row of `test` (``std``, ``buff-delay``, …) to its file in `folder`, which begins with the heading."""
    name, _, delay = test.partition("-")
    heading, row = (DELAY, delay_row(name, timed)) if delay else (THROUGHPUT, throughput_row(name, timed))
    path = folder / f"{'delay' if delay else 'throughput'}-{name}-{where}-launch-{launch:03d}.csv"
    fresh = not path.exists()
    with path.open("a") as file:
        file.write((heading + "\n" if fresh else "") + row + "\n")
