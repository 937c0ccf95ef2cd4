"""The slurm launcher and generated batch scripts, in a real SLURM of two nodes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from merge_bench.cli import cli
from merge_bench.records.reader import read_campaign
from tests.helpers.installed import Installed
from tests.hosts.conftest import ROOT
from tests.hosts.make_slurm import Slurm


def generated(results: Path, *options: str) -> str:
    """The script that `submit` prints, with the front door's own call where this checkout has no .venv."""
    asked = ("--launcher", "slurm", "--nodes", "2", "--time", "05:00", "default.cfg")
    to_run = ("--results", str(results), "--interface", "slurm0", "--json", *options)
    script = CliRunner().invoke(cli, ["submit", *asked, *to_run])
    assert script.exit_code == 0, script.output
    if (ROOT / ".venv/.merge-bench-stack").exists():
        return script.output
    python = f"PYTHONPATH={ROOT} {sys.executable} -P -m merge_bench run --config"
    return script.output.replace("./run-cluster.sh", python)


def printed_by(installed: Installed, results: Path, *options: str) -> str:
    """The script that `submit` of an installed package prints."""
    asked = ("submit", "--launcher", "slurm", "--nodes", "2", "--time", "05:00", "default.cfg")
    to_run = ("--results", str(results), "--interface", "slurm0", "--json", *options)
    done = subprocess.run(
        [installed.program, *asked, *to_run],
        cwd=results.parent,
        env=installed.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def state_of(slurm: Slurm, job: str) -> dict[str, str]:
    shown = slurm.run("scontrol", "show", "--oneliner", "job", job).stdout
    return dict(word.split("=", 1) for word in shown.split() if "=" in word)


def wait_for(slurm: Slurm, job: str, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = state_of(slurm, job).get("JobState", "")
        if state not in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING"):
            return state
        time.sleep(0.2)
    raise AssertionError(f"job {job} is still {state} after {seconds} s")


def nodes_of_workers(slurm: Slurm, records: Path) -> dict[int, str]:
    """The node on which SLURM started each rank's process, as the process's own surroundings name it."""
    line = read_campaign(records.parent).runs[0].launches[0].line
    assert line is not None
    found = {}
    for worker in line.workers:
        surroundings = slurm.run("cat", f"/proc/{worker.pid}/environ").stdout.split("\0")
        found[worker.rank] = dict(each.partition("=")[::2] for each in surroundings).get("SLURMD_NODENAME", "none")
    return found


def submit(slurm: Slurm, script: str, output: Path, folder: Path = ROOT) -> str:
    done = slurm.run("sbatch", "--parsable", f"--chdir={folder}", f"--output={output}", text=script)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.cluster
@pytest.mark.soak
def test_the_job_of_an_installed_package_runs_to_a_verified_report_and_needs_no_checkout(
    slurm: Slurm, installed: Installed, results: Path, tmp_path: Path
) -> None:
    script = printed_by(installed, results, "--chunk", "1e5", "--iterations", "3", "--start-timeout", "90")
    assert str(ROOT) not in script
    job = submit(slurm, script, tmp_path / "job.out", tmp_path)
    state = wait_for(slurm, job, 240)  # kernels are compiled first
    said = (tmp_path / "job.out").read_text()
    assert state == "COMPLETED", said
    document = next(json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert document["verified"] is True
    assert document["error"] is None
    assert document["plan"]["workers"] == 2
    folder = Path(document["records"]).parent
    line = read_campaign(folder).runs[0].launches[0].line
    assert line is not None
    assert (line.cluster.launcher, line.cluster.protocol) == ("slurm", "tls")
    logs = {path.name for path in (folder / "logs").iterdir()}
    assert {"launch-000-scheduler.log", "launch-000-worker-0.log", "launch-000-worker-1.log"} <= logs
    head = json.loads(Path(document["records"]).read_text().partition("\n")[0])
    assert Path(head["configs"][0]["path"]).is_relative_to(installed.folder)
    assert head["surroundings"]["clusters"]["default/0"]["launcher"] == "slurm"


@pytest.mark.cluster
def test_workers_run_on_both_nodes_and_a_cancelled_job_leaves_nothing(
    slurm: Slurm, results: Path, tmp_path: Path
) -> None:
    options = ("--chunk", "1e5", "--iterations", "100000", "--start-timeout", "90")
    job = submit(slurm, generated(results, *options), tmp_path / "job.out")
    deadline = time.monotonic() + 120
    while not any('"kind":"iteration"' in path.read_text() for path in results.glob("*/records.jsonl")):
        assert time.monotonic() < deadline, (tmp_path / "job.out").read_text()
        time.sleep(0.1)
    (records,) = results.glob("*/records.jsonl")
    assert nodes_of_workers(slurm, records) == {0: "n1", 1: "n2"}
    slurm.run("scancel", job)
    assert wait_for(slurm, job, 60) == "CANCELLED"
    deadline = time.monotonic() + 15
    while left := slurm.run("pgrep", "-af", "dask|merge_bench").stdout:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
