"""Whether `probe p2p` agrees with ``ucx_perftest`` run by hand: interleaved, the median over blocks of their ratio.

    python -m benchmarks.probe_agreement [--blocks 5] [--sizes 1,64,4096,65536,1M,4M]

By hand means what a person types: one server and one client a run, no batch file, no logging, overall figures; of three
runs the middle one, as the probe has it. Both are measured right after each other, and the ratio within a block counts:
in a virtual machine the two cores are siblings that share a cache at some times and not at others. That changes the
latency of shared memory tenfold and lasts for seconds to minutes. Blocks in which it happens are kept.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from benchmarks import command
from benchmarks.processes import options, run_merge_bench, surroundings
from merge_bench.analysis.statistics import median
from merge_bench.cli.common import ParsedValue
from merge_bench.cluster import ucx_perftest
from merge_bench.config.variables import UCXX_OVERRIDES
from merge_bench.probe.shared.options import parse_message_sizes
from merge_bench.units import MIB

TRANSPORTS = {"tcp": {"UCX_TLS": "tcp"}, "shared memory": {"UCX_TLS": "sysv,posix,cma"}}
KINDS = (
    ucx_perftest.PerftestType("tag", ucx_perftest.LATENCY),
    ucx_perftest.PerftestType("tag", ucx_perftest.BANDWIDTH),
)
GOAL = 0.10
HEADINGS = ("transport", "test", "bytes", "by hand", "probe", "unit", "probe ÷ by hand: median (min to max of blocks)")
SIZES = ParsedValue("SIZES", parse_message_sizes)
Key = tuple[str, str, int]


def by_hand(transport: str, size: int) -> Iterator[tuple[Key, float]]:
    """Seconds (latency) and bytes per second (bandwidth): of three runs the middle one."""
    for kind in KINDS:
        yield (
            (transport, kind.test_name, size),
            median([_typed(transport, kind, size) for _ in range(ucx_perftest.RUNS)]),
        )


def _typed(transport: str, kind: ucx_perftest.PerftestType, size: int) -> float:
    program, library, _ = ucx_perftest.find_perftest_program()
    path = os.pathsep.join(filter(None, [str(library or ""), os.environ.get("LD_LIBRARY_PATH", "")]))
    own = {**UCXX_OVERRIDES, **TRANSPORTS[transport], "UCX_NET_DEVICES": "lo", "LD_LIBRARY_PATH": path}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    timed, warm = ucx_perftest.perftest_iteration_counts(size, kind.measures)
    cores = sorted(os.sched_getaffinity(0))
    client_core, server_core = str(cores[0]), str(cores[-1])
    window = ["-O", str(ucx_perftest.WINDOW)] if kind.measures == ucx_perftest.BANDWIDTH else []
    line = ["-t", kind.test_name, "-s", str(size), "-n", str(timed), "-w", str(warm), *window]
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": {**os.environ, **own}}
    server = subprocess.Popen([str(program), "-p", port, "-c", server_core], stdout=subprocess.DEVNULL, **quiet)  # type: ignore[call-overload]
    try:
        for _ in range(50):
            time.sleep(0.1)
            client = subprocess.run(
                [str(program), "127.0.0.1", "-p", port, "-c", client_core, *line, "-f", "-v"],
                stdout=subprocess.PIPE,
                text=True,
                timeout=120,
                check=False,
                **quiet,
            )  # type: ignore[call-overload]
            if client.returncode == 0:
                break
    finally:
        server.kill()
        server.wait()
    rows = [row for row in client.stdout.splitlines() if row and row.strip()[0].isdigit()]
    cells = rows[-1].split(",")  # iterations, latencies (percentile, average, overall), bandwidths (average, overall)
    return float(cells[5]) * MIB if kind.measures == ucx_perftest.BANDWIDTH else float(cells[3]) * 1e-6


def by_probe(transport: str, size: int) -> Iterator[tuple[Key, float]]:
    """The same from one launch of `probe p2p`."""
    with tempfile.TemporaryDirectory(prefix="probe-agreement-") as folder:
        config = Path(folder) / "config.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in TRANSPORTS[transport].items()))
        line = options(config=config, sizes=size, repetitions=1, results=folder)
        document, _ = run_merge_bench(line, surroundings(), Path(folder, "run"), 300.0, verb=("probe", "p2p"))
        for row in document["rows"]:
            latency = row["test"].endswith("_lat")
            yield (transport, row["test"], row["size"]), row["seconds" if latency else "bandwidth_bytes_per_second"]


@click.command(context_settings=command.CONTEXT)
@command.option("--blocks", click.IntRange(1), 5, "Number of measurements of each pair.")
@command.option("--sizes", SIZES, "1,64,1K,4K,16K,64K,256K,1M,4M", "Message sizes.")
@command.option(
    "--transport", click.Choice(list(TRANSPORTS)), None, "Measure only this transport. [both]", multiple=True
)
@command.SEED
def agreement(blocks: int, sizes: Sequence[int], transport: tuple[str, ...], seed: int) -> None:
    """Compare `probe p2p` with ucx_perftest run by hand; exit 1 if a median differs by more than 10 %."""
    places = [(name, size) for name in transport or TRANSPORTS for size in sizes]
    order, hand, probe = random.Random(seed), dict[Key, list[float]](), dict[Key, list[float]]()
    worst = 0.0
    for block in range(blocks):
        for name, size in order.sample(places, len(places)):
            for who in order.sample((by_hand, by_probe), 2):
                for key, value in who(name, size):
                    (hand if who is by_hand else probe).setdefault(key, []).append(value)
        command.say(f"block {block + 1} of {blocks} done")
        worst = show(hand, probe)  # after every block, so that an interruption loses little
    sys.exit(0 if worst <= GOAL else 1)


def show(hand: Mapping[Key, list[float]], probe: Mapping[Key, list[float]]) -> float:
    """Print the table of all blocks so far; gives the largest difference of a median ratio from 1."""
    rows, worst = [], 0.0
    for key, values in sorted(hand.items()):
        transport, test, size = key
        unit, factor = ("µs", 1e6) if test.endswith("_lat") else ("MB/s", 1e-6)
        medians = [f"{median(each) * factor:.3f}" for each in (values, probe[key])]
        ratios = [y / x for x, y in zip(values, probe[key], strict=True)]
        spread = f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        rows.append((transport, test, str(size), *medians, unit, spread))
        worst = max(worst, abs(median(ratios) - 1))
    click.echo(command.aligned(HEADINGS, rows, text=(0, 1, 5)))
    click.echo(f"largest difference of a median: {worst:.1%} (goal: {GOAL:.0%})")
    return worst


if __name__ == "__main__":
    command.run(agreement, "probe_agreement")
