"""Forecasts of `predict` beside merges on clusters that it was not fitted on: test hosts with links of known rates.

    python -m benchmarks.predict_validation [--rate 100] [--chunk 1e6] [--launches 3] [--iterations 5]

The model is fitted on two hosts, with one worker each and with two; what it says of 4 and 8 hosts and of links half as
fast is held against measurements made afterwards. All hosts share this machine's processors, which the model does not
know, so links have to be slow enough to decide: 8 hosts at 100 Mbit/s send 0.1 GB/s in all. Needs root, and a machine
with nothing else to do. Prints a table in Markdown; status 5 if a forecast of the wall is more than --goal off.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merge_bench.predicting.document import predict
from merge_bench.record.reader import read_campaign
from tests.hosts.make_hosts import Hosts, why_not

ROOT = Path(__file__).resolve().parents[1]
HEADINGS = (
    "Hosts", "Workers a host", "Mbit/s a link", "What", "Forecast", "Interval", "Measured", "Error (%)", "Limited by"
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A cluster: hosts, workers of each, and its links' rate as a multiple of the rate that was fitted on."""

    hosts: int
    per_host: int = 1
    rate: float = 1.0


FITTED = (Target(2), Target(2, 2))
TARGETS = (Target(4), Target(8), Target(4, rate=0.5), Target(4, 2))


class Bench:
    """Test hosts, and how merges are run on some of them."""

    def __init__(self, hosts: Hosts, arguments: argparse.Namespace) -> None:
        self.hosts, self.asked = hosts, arguments

    def measure(self, target: Target) -> Path:
        """A campaign on this cluster, its folder."""
        used = self.hosts.hosts[: target.hosts]
        for host in used:
            self.hosts.shape(host, f"{round(self.asked.rate * target.rate * 1e6)}bit")
        listed = self.hosts.write_hosts([f"{host.name} slots={target.per_host}" for host in used], "some.txt")
        command = [
            sys.executable, "-P", "-m", "merge_bench", "run", "--config", "ethernet.cfg", "--fresh", "--json",
            "--hosts", str(listed), "--ssh-config", str(self.hosts.ssh_config), "--workers",
            str(target.hosts * target.per_host), "--chunk", self.asked.chunk, "--launches", str(self.asked.launches),
            "--iterations", str(self.asked.iterations), "--link-rounds", "0", "--results", str(self.asked.results),
            "--timeout", "60", "--start-timeout", "180",
        ]  # fmt: skip
        done = subprocess.run(
            self.hosts.command(*command), env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, timeout=1800, check=False,
        )  # fmt: skip
        document: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"error": {"message": "nothing printed"}}
        if done.returncode:
            raise RuntimeError(f"{target}: {document['error']['message']}")
        return Path(str(document["records"])).parent


def rows_of(target: Target, rate: float, forecast: Mapping[str, Any], measured: Mapping[str, Any]) -> list[list[str]]:
    """Wall and bandwidth: forecast beside measured; and how far off, in percent."""
    found = []
    for what, unit, factor, key, middle in (
        ("wall", "ms", 1e3, "wall_seconds", measured["wall_seconds"]["median"]),
        (
            "bandwidth", "MB/s", 1e-6, "bandwidth_bytes_per_second",
            measured["bandwidth_bytes_per_second"]["harmonic_mean"],
        ),
    ):  # fmt: skip
        said = forecast[key]
        low, high = said["interval"]
        found.append(
            [
                str(target.hosts), str(target.per_host), f"{rate * target.rate:g}", f"{what} ({unit})",
                f"{said['value'] * factor:.4g}", f"{low * factor:.4g} to {high * factor:.4g}", f"{middle * factor:.4g}",
                f"{100 * (said['value'] / middle - 1):+.1f}", forecast["limit"],
            ]
        )  # fmt: skip
    return found


def validate(bench: Bench, targets: Sequence[Target]) -> list[list[str]]:
    """Fit once, then forecast and measure every target."""
    from merge_bench.summary import summarize

    fitted = [read_campaign(bench.measure(target)) for target in FITTED]
    found = []
    for target in targets:
        document = predict(
            fitted, workers=target.hosts * target.per_host, hosts=target.hosts, config="ethernet",
            what_if=[] if target.rate == 1 else [f"nic={target.rate:g}x"],
        )  # fmt: skip
        measured = summarize(read_campaign(bench.measure(target)))
        rows = rows_of(target, bench.asked.rate, document["forecast"], measured)
        for row in rows:
            print(f"| {' | '.join(row)} |", file=sys.stderr, flush=True)
        found += rows
    return found


def main() -> int:
    """Validate, print the table, and say whether the goal was met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    parser.add_argument("--rate", type=float, default=100.0, help="of each link, Mbit/s each way")
    parser.add_argument("--chunk", default="1e6", help="rows of a chunk")
    parser.add_argument("--launches", type=int, default=3, help="of each cluster")
    parser.add_argument("--iterations", type=int, default=5, help="of each launch")
    parser.add_argument("--most-hosts", type=int, default=8, help="leave out clusters of more hosts")
    parser.add_argument("--goal", type=float, default=15.0, help="percent that a forecast of the wall may be off")
    parser.add_argument("--results", type=Path, help="folder for the campaigns; by default they are not kept")
    parser.add_argument("--output", type=Path, help="also write the table here")
    arguments = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"predict_validation: {reason}", file=sys.stderr)
        return 2
    targets = [target for target in TARGETS if target.hosts <= arguments.most_hosts]
    with tempfile.TemporaryDirectory(prefix="merge-bench-predict-") as folder:
        arguments.results = arguments.results or Path(folder)
        with Hosts(max(target.hosts for target in (*targets, *FITTED))) as hosts:
            rows = validate(Bench(hosts, arguments), targets)
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{' --- |' * len(HEADINGS)}", *(f"| {' | '.join(row)} |" for row in rows)]
    print("\n".join(lines))
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")
    worst = max((abs(float(row[7])) for row in rows if row[3].startswith("wall")), default=0.0)
    print(f"\nThe wall is off by at most {worst:.1f} %; the goal is {arguments.goal:g} %.")
    return 0 if worst <= arguments.goal else 5


if __name__ == "__main__":
    sys.exit(main())
