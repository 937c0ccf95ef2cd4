"""The tests that need a GPU, run by pytest in a process of its own and counted from its own report."""

from __future__ import annotations

import importlib.util
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from benchmarks.on_gpu.runs import ROOT, surroundings
from benchmarks.on_gpu.steps import Finding
from benchmarks.peer.children import run_limited
from merge_bench.errors import RunFailed

FAILED = RunFailed.exit_status


def run_tests(folder: Path, limit: float) -> Finding:
    """`pytest -m gpu` within `limit` seconds. A test that was skipped has proved nothing, and counts as a failure."""
    if importlib.util.find_spec("pytest") is None:
        return Finding("not run: no package pytest is installed here", status=FAILED)
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    report = logs / "tests.xml"
    argv = [
        sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", f"--junitxml={report}",
        str(ROOT / "tests" / "gpu"),
    ]  # fmt: skip
    ended = run_limited(argv, surroundings(), ROOT, logs / "tests.out", logs / "tests.err", limit)
    if ended.timed_out:
        return Finding(f"they were not done after {limit:.0f} s; logs/tests.out tells how far", status=FAILED)
    if not report.exists():
        return Finding(f"pytest ended with status {ended.status} and wrote no report", status=FAILED)
    return counted(report.read_text(), ended.status)


def counted(report: str, status: int) -> Finding:
    """What pytest's JUnit report counts; `status`: its exit status."""
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    names = []
    # The file was written a moment ago by our own child process.
    for suite in ElementTree.fromstring(report).iter("testsuite"):
        for key in counts:
            counts[key] += int(suite.get(key, "0"))
        names += [
            case.get("name", "?")
            for case in suite.iter("testcase")
            if any(case.find(bad) is not None for bad in ("failure", "error"))
        ]
    passed = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
    said = f"{passed} passed, {counts['failures'] + counts['errors']} failed, {counts['skipped']} skipped"
    said += f": {', '.join(names[:5])}" if names else ""
    well = status == 0 and passed > 0 and counts["skipped"] == 0
    return Finding(said, {**counts, "passed": passed, "failed_tests": names}, 0 if well else FAILED)
