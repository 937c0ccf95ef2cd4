"""All checks together, on made-up machines and on this one; `tests/probe/test_running_cluster.py` has a cluster."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from merge_bench.host.description import Finding
from merge_bench.host.doctor import (
    BAD,
    CHECKS,
    OK,
    STATES,
    WARN,
    HostExamination,
    compare_host_software,
    examine_host,
    free_disk_bytes,
    worst_finding_state,
)
from merge_bench.report.host_and_config import print_doctor_findings
from tests.helpers.runs import environment
from tests.host.doctor.conftest import Make


def test_every_check_answers_on_a_machine_of_which_nothing_is_known(machine: Make) -> None:
    found = examine_host(machine(ucx=None, shared_memory=None, limits={}, packages={}), "a").findings
    assert len(found) == len(CHECKS)
    assert {finding.host for finding in found} == {"a"}
    assert len({finding.check for finding in found}) == len(CHECKS)
    assert all(finding.remedy for finding in found if finding.state == BAD)


def test_worst() -> None:
    states = [Finding("c", state, "") for state in (OK, BAD, WARN)]
    assert worst_finding_state(states) == BAD
    assert worst_finding_state(states[::2]) == WARN
    assert worst_finding_state([]) == OK


def host(name: str, **versions: str) -> HostExamination:
    return HostExamination(name, (), {"dask": "2026.7.1", "kernel": "6.1", **versions})


def test_one_host_agrees_with_itself() -> None:
    assert compare_host_software([host("a")]) == []


def test_hosts_that_agree() -> None:
    (found,) = compare_host_software([host("a"), host("b")])
    assert (found.state, found.fact) == (OK, "2 hosts have the same software")


def test_a_difference_names_the_host_and_is_weighed_by_what_differs() -> None:
    found = compare_host_software([host("a"), host("b", kernel="5.4"), host("c", UCX="1.19.0 (system)"), host("d")])
    assert [(finding.host, finding.state) for finding in found] == [("b", WARN), ("c", BAD)]
    assert found[0].fact == "kernel 5.4 on b, 6.1 on a"
    assert found[1].fact == "UCX 1.19.0 (system) on c, none on a"


def test_people_see_what_is_bad_before_what_is_doubtful() -> None:
    page = io.StringIO()
    print_doctor_findings(
        [
            Finding("one", OK, "fine", host="a"),
            Finding("two", WARN, "so so", "times scatter", "mend it", "a"),
            Finding("three", BAD, "broken", "nothing runs", "replace it", "b"),
        ],
        page,
    )
    lines = page.getvalue().splitlines()
    assert "three (broken)" in next(line for line in lines if line.startswith("bad "))
    assert lines.index("  → replace it") < lines.index("  → mend it")
    assert lines[-1] == "1 bad, 1 warn, 1 ok"


@pytest.mark.parametrize(("refused", "free"), [(None, 6 << 20), (PermissionError, None)])
def test_free_space_of_a_folder_that_a_run_would_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: type[OSError] | None, free: int | None
) -> None:
    """The real `statvfs` fails on a missing folder, and so does this one."""

    def statvfs(folder: Path) -> os.statvfs_result:
        if not folder.exists():
            raise FileNotFoundError(folder)
        if refused is not None:
            raise refused(folder)
        assert folder == tmp_path
        return os.statvfs_result((8192, 4096, 1 << 20, 1 << 12, 1536, 0, 0, 0, 0, 255))

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert free_disk_bytes(tmp_path / "new" / "results") == free


def doctor(folder: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "merge_bench", "doctor", *map(str, options)],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_this_host(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["worst"] in STATES
    assert [finding["check"] for finding in document["findings"]] == [
        finding.check for finding in examine_nothing().findings
    ]
    by_check = {finding["check"]: finding for finding in document["findings"]}
    assert by_check["UCX"]["state"] == OK
    assert str(tmp_path / "results") in by_check["disk space"]["found"]
    assert by_check["Python packages"]["state"] == OK
    assert all(set(finding) == {"check", "state", "found", "spoils", "remedy", "host"} for finding in by_check.values())


def examine_nothing() -> HostExamination:
    from merge_bench.host.doctor import HostCheckFacts

    return examine_host(HostCheckFacts(root=Path("/nowhere")), "x")


def test_a_scheduler_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--scheduler-file", tmp_path / "none.json")
    assert done.returncode == 2
    assert done.stderr.startswith("merge_bench: --scheduler-file")
    assert "Traceback" not in done.stderr


def test_strict_makes_a_bad_finding_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    from merge_bench.cli import cli
    from merge_bench.host import doctor as module

    def made(state: str) -> HostExamination:
        return HostExamination("a", (Finding("one", state, "x", host="a"),), {})

    for state, strict, status in ((BAD, True, 5), (BAD, False, 0), (WARN, True, 0), (OK, True, 0)):
        monkeypatch.setattr(module, "examine_this_host", lambda state=state: made(state))
        done = CliRunner().invoke(cli, ["doctor", "--json", *["--strict"] * strict])
        assert done.exit_code == status
        assert json.loads(done.stdout)["worst"] == state
