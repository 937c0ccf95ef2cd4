"""Whether `probe p2p` agrees with ``ucx_perftest`` run by hand: interleaved, the median over blocks of their ratio.

    python -m benchmarks.probe_agreement [--blocks 5] [--sizes 1,64,4096,65536,1M,4M]

By hand means what a person types: one server and one client a run, no batch file, no logging, overall figures; of three
runs the middle one, as the probe has it. Both are measured right after each other, and it is the ratio within a block
that counts: in a virtual machine the two cores are now siblings that share a cache and now are not, which changes the
latency of shared memory tenfold and lasts for seconds to minutes. A block in which that happens in between is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from merge_bench.cluster import perftest
from merge_bench.config.names import UCXX_OVERRIDES
from merge_bench.errors import MergeBenchError
from merge_bench.probe.shared.sizes import parse_sizes
from merge_bench.units import MIB

TRANSPORTS = {"tcp": {"UCX_TLS": "tcp"}, "shared memory": {"UCX_TLS": "sysv,posix,cma"}}
KINDS = (perftest.Kind("tag", perftest.LATENCY), perftest.Kind("tag", perftest.BANDWIDTH))
GOAL = 0.10
Key = tuple[str, str, int]


def by_hand(transport: str, kind: perftest.Kind, size: int) -> float:
    """Bytes per second (bandwidth), or seconds (latency)."""
    program, library, _ = perftest.find()
    path = os.pathsep.join(filter(None, [str(library or ""), os.environ.get("LD_LIBRARY_PATH", "")]))
    environment = {
        **os.environ,
        **UCXX_OVERRIDES,
        **TRANSPORTS[transport],
        "UCX_NET_DEVICES": "lo",
        "LD_LIBRARY_PATH": path,
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    timed, warm = perftest.iterations(size, kind.measures)
    cores = sorted(os.sched_getaffinity(0))
    client_core, server_core = str(cores[0]), str(cores[-1])
    window = ["-O", "32"] if kind.measures == perftest.BANDWIDTH else []
    line = ["-t", kind.name, "-s", str(size), "-n", str(timed), "-w", str(warm), *window]
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    server = subprocess.Popen([str(program), "-p", port, "-c", server_core], stdout=subprocess.DEVNULL, **quiet)  # type: ignore[call-overload]
    try:
        for _ in range(50):
            time.sleep(0.1)
            client = subprocess.run(
                [str(program), "127.0.0.1", "-p", port, "-c", client_core, *line, "-f", "-v"], stdout=subprocess.PIPE,
                text=True, timeout=120, check=False, **quiet,
            )  # type: ignore[call-overload]  # fmt: skip
            if client.returncode == 0:
                break
    finally:
        server.kill()
        server.wait()
    rows = [row for row in client.stdout.splitlines() if row and row.strip()[0].isdigit()]
    cells = rows[-1].split(",")
    return float(cells[5]) * MIB if kind.measures == perftest.BANDWIDTH else float(cells[3]) * 1e-6


def by_probe(transport: str, sizes: list[int]) -> Iterator[tuple[Key, float]]:
    """The same from one launch of `probe p2p`."""
    with tempfile.TemporaryDirectory(prefix="probe-agreement-") as folder:
        config = Path(folder) / "config.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in TRANSPORTS[transport].items()))
        line = ["--config", str(config), "--sizes", ",".join(map(str, sizes)), "--repetitions", "1", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "merge_bench", "probe", "p2p", *line, "--results", folder],
            stdout=subprocess.PIPE, text=True, check=True, timeout=300,
        )  # fmt: skip
        for row in json.loads(done.stdout)["rows"]:
            latency = row["test"].endswith("_lat")
            yield (transport, row["test"], row["size"]), row["seconds" if latency else "bandwidth_bytes_per_second"]


def main() -> int:
    """Print every median of the two, their ratio, and whether all are within a tenth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--sizes", default="1,64,1K,4K,16K,64K,256K,1M,4M")
    parser.add_argument("--transport", choices=list(TRANSPORTS), action="append", help="only this one")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        sizes = list(parse_sizes(options.sizes))
    except (ValueError, MergeBenchError) as error:
        parser.error(str(error))
    order, hand, probe = random.Random(options.seed), dict[Key, list[float]](), dict[Key, list[float]]()
    for block in range(options.blocks):
        transports = list(options.transport or TRANSPORTS)
        places = [(transport, size) for transport in transports for size in sizes]
        for transport, size in order.sample(places, len(places)):
            for who in order.sample(("hand", "probe"), 2):
                if who == "probe":
                    for key, value in by_probe(transport, [size]):
                        probe.setdefault(key, []).append(value)
                    continue
                for kind in KINDS:
                    runs = sorted(by_hand(transport, kind, size) for _ in range(perftest.RUNS))
                    hand.setdefault((transport, kind.name, size), []).append(runs[len(runs) // 2])
        print(f"block {block + 1} of {options.blocks} done", file=sys.stderr)
        if block + 1 < options.blocks:  # what was measured is there whenever it is ended
            tell(hand, probe)
    return 0 if tell(hand, probe) <= GOAL else 1


def tell(hand: Mapping[Key, list[float]], probe: Mapping[Key, list[float]]) -> float:
    """Print the table of all blocks so far; gives the largest difference of a median ratio from 1."""
    print("transport      test    bytes    by hand     probe     probe ÷ by hand: median (min to max of blocks)")
    worst = 0.0
    for key, values in sorted(hand.items()):
        transport, test, size = key
        unit, factor = ("µs", 1e6) if test.endswith("_lat") else ("MB/s", 1e-6)
        a, b = median(values), median(probe[key])
        each = sorted(y / x for x, y in zip(values, probe[key], strict=True))
        ratio = median(each)
        worst = max(worst, abs(ratio - 1))
        print(
            f"{transport:13} {test:7} {size:8} {a * factor:10.3f} {b * factor:10.3f} {unit:4} {ratio:6.3f}"
            f" ({each[0]:.3f} to {each[-1]:.3f})"
        )
    print(f"largest difference of a median: {worst:.1%} (goal: {GOAL:.0%})", flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main())
