"""The tests that need a GPU, run by pytest in a process of its own and counted from its own report."""

from __future__ import annotations

import importlib.util
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from benchmarks.on_gpu.steps import Finding
from benchmarks.processes import ROOT, run_limited, surroundings
from merge_bench.errors import RunFailed

FAILED = RunFailed.exit_status


def run_tests(folder: Path, limit: float) -> Finding:
    """`pytest -m gpu` within `limit` seconds. A skipped test proves nothing, so it counts as a failure."""
    if importlib.util.find_spec("pytest") is None:
        return Finding("not run: the package pytest is not installed", status=FAILED)
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    report = logs / "tests.xml"
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "gpu",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
        str(ROOT / "tests" / "gpu"),
    ]
    ended = run_limited(argv, surroundings(), logs / "tests", limit)
    if ended.timed_out:
        return Finding(
            f"the tests did not finish within {limit:.0f} s; read their progress in logs/tests.out", status=FAILED
        )
    if not report.exists():
        return Finding(f"pytest ended with status {ended.status} and wrote no report", status=FAILED)
    return counted(report.read_text(), ended.status)


def counted(report: str, status: int) -> Finding:
    """What pytest's JUnit report counts; `status`: its exit status."""
    # The file was written a moment ago by our own child process.
    suites = list(ElementTree.fromstring(report).iter("testsuite"))
    kinds = ("tests", "failures", "errors", "skipped")
    counts = {kind: sum(int(suite.get(kind, "0")) for suite in suites) for kind in kinds}
    names = [
        case.get("name", "?")
        for suite in suites
        for bad in ("failure", "error")
        for case in suite.iterfind(f"testcase[{bad}]")
    ]
    passed = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
    summary = f"{passed} passed, {counts['failures'] + counts['errors']} failed, {counts['skipped']} skipped"
    summary += f": {', '.join(names[:5])}" if names else ""
    well = status == 0 and passed > 0 and counts["skipped"] == 0
    return Finding(summary, {**counts, "passed": passed, "failed_tests": names}, 0 if well else FAILED)
