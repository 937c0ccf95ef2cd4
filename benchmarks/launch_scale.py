"""How launch time grows with the number of workers: tiny merges in test hosts, or on this machine alone.

    python -m benchmarks.launch_scale [--workers 8,16,32,64] [--hosts 4 | --hosts 0] [--output FILE.md]

Every run starts the workers, connects all to all, merges, verifies, and stops. Needs root for test hosts; with
`--hosts 0` the local launcher is measured. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from merge_bench.records.reader import read_campaign
from tests.hosts.make_hosts import Hosts, why_not

ROOT = Path(__file__).resolve().parents[1]
HEADINGS = ("Workers", "Hosts", "Start to connected (s)", "Merges and checks (s)", "Stop (s)", "In all (s)", "Verified")


def measure(workers: int, hosts: Hosts | None, rows: int) -> list[str]:
    """One run's row of the table."""
    with tempfile.TemporaryDirectory(prefix="merge-bench-scale-") as folder:
        options = ["--workers", str(workers), "--chunk", str(rows), "--iterations", "3", "--link-rounds", "0"]
        limits = ["--timeout", "120", "--start-timeout", "400", "--results", folder, "--json"]
        command = [sys.executable, "-P", "-m", "merge_bench", "run", *options, *limits]
        if hosts is not None:
            command += ["--hosts", str(hosts.hosts_file), "--ssh-config", str(hosts.ssh_config)]
            command = hosts.command(*command)
        started = time.monotonic()
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True, timeout=900, check=False,
        )  # fmt: skip
        whole = time.monotonic() - started
        document = json.loads(done.stdout)
        if done.returncode:
            return [str(workers), *["-"] * 4, f"{whole:.1f}", f"no: {document['error']['message']}"]
        launch = read_campaign(Path(document["records"]).parent).runs[0].launches[0]
        assert launch.line is not None
        assert launch.end is not None
        startup = launch.line.startup_seconds or 0.0
        merges = max(check.time for check in launch.verifications) - launch.line.time
        stopped = launch.end.time - max(check.time for check in launch.verifications)
        count = len({worker.host for worker in launch.line.workers})
        seconds = [f"{value:.1f}" for value in (startup, merges, stopped, whole)]
        return [str(workers), str(count), *seconds, "yes" if document["verified"] else "no"]


def main() -> int:
    """Measure every number of workers, the smallest first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", default="8,16,32,64", help="numbers of workers, separated by commas")
    parser.add_argument("--hosts", type=int, default=4, help="test hosts; 0: this machine")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of a chunk")
    parser.add_argument("--output", type=Path, help="also write the table here")
    arguments = parser.parse_args()
    reason = why_not() if arguments.hosts else None
    if reason:
        print(f"launch_scale: {reason}; --hosts 0 measures this machine alone", file=sys.stderr)
        return 2
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{' --: |' * len(HEADINGS)}"]
    with Hosts(arguments.hosts, None) if arguments.hosts else contextlib.nullcontext() as hosts:
        for count in sorted(int(word) for word in arguments.workers.split(",")):
            lines.append(f"| {' | '.join(measure(count, hosts, arguments.rows))} |")
            print(lines[-1], file=sys.stderr, flush=True)
    table = "\n".join(lines) + "\n"
    print(table, end="")
    if arguments.output:
        arguments.output.write_text(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
