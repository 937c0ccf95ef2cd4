"""The package installed from a wheel into a fresh environment in another folder, used from an empty folder.

Everything here runs the program that pip made, as its user would: with an empty HOME, and without this checkout.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.helpers.installed import Installed, build_sdist, build_wheel, files_of
from tests.helpers.runs import ROOT

pytestmark = pytest.mark.cluster

SECONDS = 300.0
SMALL = ("--chunk", "2e4", "--iterations", "2")
ONCE = ("--chunk", "2e4", "--iterations", "1", "--warmup", "0", "--link-rounds", "0", "--workers", "1")
DATA_FILES = (
    "report/page/templates/body.html.j2", "dashboard/styles/page.css", "config/ucx_names.json", "py.typed"
)  # fmt: skip


@pytest.fixture(scope="module")
def merged(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one merge was run, by a job's script as a batch system runs it.

    By bash, from another folder, without the environment on PATH. There is no batch system: of two --launcher the last
    one counts (tests/hosts/test_slurm.py has a real one).
    """
    folder, spool = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("spool")
    merge = ("optimized.cfg", "--", *ONCE, "--launcher", "local", "--ucx", "wheel", "--json")
    asked = ("submit", "--launcher", "slurm", "--nodes", "1", "--time", "5:00", *merge)
    done = subprocess.run(
        ["bash"], input=typed(installed, folder, *asked).stdout, cwd=spool, capture_output=True, text=True,
        timeout=SECONDS, check=False,
        env=installed.environment({"SLURM_SUBMIT_DIR": str(folder), "MERGE_BENCH_RESULTS": "mine"}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["verified"], document["config"]["name"]) == (True, "optimized")
    assert (folder / document["records"]).parent.parent == folder / "mine"
    return folder


def start(installed: Installed, folder: Path, *words: str, **extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(installed.program), *words], cwd=folder, env=installed.environment(extra), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def typed(
    installed: Installed, folder: Path, *words: str, status: int = 0, **extra: str
) -> subprocess.CompletedProcess[str]:
    """A whole command, which is to end with `status` and without a traceback."""
    process = start(installed, folder, *words, **extra)
    try:
        output, errors = process.communicate(timeout=SECONDS)
    finally:
        end(process)
    assert process.returncode == status, f"{words}: {output}{errors}"
    assert "Traceback" not in errors, errors
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_wheel_and_source_distribution_carry_the_same(installed: Installed, tmp_path: Path) -> None:
    files = files_of(installed.wheel)
    for folder, name in (("configs", "config/shipped_configs"), ("results/published", "analysis/published_data")):
        data = {path.relative_to(ROOT / folder): path for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert data
        for inside, path in data.items():
            assert files[f"merge_bench/{name}/{inside}"] == path.read_bytes()
    assert all(f"merge_bench/{name}" in files for name in DATA_FILES)
    assert {name.partition("/")[0] for name in files} == {"merge_bench"}
    assert files_of(build_wheel(build_sdist(installed.sources, tmp_path / "sdist"), tmp_path / "wheel")) == files


def test_nothing_comes_from_the_checkout(installed: Installed, merged: Path) -> None:
    look = "import merge_bench, json, sys; print(json.dumps([merge_bench.__file__, sys.path]))"
    done = subprocess.run(
        [installed.python, "-c", look], cwd=merged, env=installed.environment(), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    file, path = json.loads(done.stdout)
    assert Path(file).is_relative_to(installed.folder)
    assert str(ROOT) not in path
    (records,) = merged.glob("mine/*-optimized-*/records.jsonl")
    head, *lines = map(json.loads, records.read_text().splitlines())
    assert head["git"] is None
    assert Path(head["configs"][0]["path"]).is_relative_to(installed.folder)
    (launch,) = (line for line in lines if line["kind"] == "launch")
    loaded = {(worker["ucx"]["origin"], worker["environment"]["MERGE_BENCH_UCX"]) for worker in launch["workers"]}
    assert loaded == {("wheel", "wheel")}
    started = typed(installed, merged, *SMALL, "--dry-run").stdout
    assert (
        started.count(f"{installed.python} -P -m merge_bench.cluster.start_dask ") == 3
    )  # a scheduler and two workers
    assert str(ROOT) not in started
    home = {path.relative_to(installed.home) for path in installed.home.rglob("*") if path.is_file()}
    assert home <= {Path(".cache/merge_bench/stores.json")}  # what launches measured of this processor


def test_check_says_what_becomes_of_a_shipped_config(installed: Installed, merged: Path) -> None:
    document = json.loads(typed(installed, merged, "check", "optimized.cfg", "--json").stdout)
    assert document["ok"] is True
    assert "UCX_POSIX_ERROR_HANDLING" in [each["name"] for each in document["variables"]]
    assert "(wheel)" in document["ucx"]


def test_a_config_of_ones_own_wins_over_the_shipped_one(installed: Installed, tmp_path: Path) -> None:
    assert typed(installed, tmp_path, "configs", "copy", "tcp").stdout == "tcp.cfg\n"
    (tmp_path / "tcp.cfg").write_text("export UCX_TLS=tcp,self\n")
    document = json.loads(typed(installed, tmp_path, "check", "tcp", "--json").stdout)
    assert document["config"]["path"] == "tcp.cfg"
    assert typed(installed, tmp_path, "configs", "show", "tcp").stdout == (ROOT / "configs" / "tcp.cfg").read_text()
    assert len(typed(installed, tmp_path, "configs").stdout.splitlines()) == len(list((ROOT / "configs").iterdir()))


def test_tune_finds_its_space(installed: Installed, tmp_path: Path) -> None:
    """One setting of the shipped space; that launches work is seen above."""
    narrow = ("--strategy", "exhaustive", "--only", "mutex", "--workers", "1", "--chunk", "2e4", "--iterations", "1")
    shown = typed(installed, tmp_path, "tune", "default.cfg", *narrow, "--dry-run").stdout
    assert shown.splitlines()[0] == "mutex=y: UCX_USE_MT_MUTEX=y"
    tuned = tmp_path / f"tuned-{socket.gethostname().partition('.')[0]}.cfg"
    tuned.mkdir()
    assert tuned.name in typed(installed, tmp_path, "tune", "default.cfg", *narrow, status=2).stderr


def test_report_makes_a_page(installed: Installed, merged: Path) -> None:
    (folder,) = merged.glob("mine/*-optimized-*")
    typed(installed, merged, "report", str(folder.relative_to(merged)))
    assert "<html" in (folder / "report.html").read_text()[:500]


def test_dashboard_serves_and_ends(installed: Installed, merged: Path) -> None:
    process = start(installed, merged, "dashboard", "--no-open", "--port", "0")
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"http://\S+/", said)
        assert found is not None, said
        with urllib.request.urlopen(found[0], timeout=60) as answer:
            assert answer.status == 200
            assert "<title>merge_bench</title>" in answer.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        end(process)


@pytest.mark.parametrize(("launcher", "folder"), [("slurm", "SLURM_SUBMIT_DIR"), ("pbs", "PBS_O_WORKDIR")])
def test_a_job_calls_what_is_installed(installed: Installed, tmp_path: Path, launcher: str, folder: str) -> None:
    asked = ("submit", "--launcher", launcher, "--nodes", "2", "--time", "5:00")
    *lines, call = typed(installed, tmp_path, *asked).stdout.splitlines()
    assert call == f"{installed.python} -P -m merge_bench run --config optimized.cfg --launcher {launcher}"
    assert f'cd "${folder}"' in lines
    assert str(ROOT) not in "".join(lines)
    *_, call = typed(installed, tmp_path, *asked, "--configs", "a.cfg,b.cfg").stdout.splitlines()
    assert call == f"{installed.python} -P -m merge_bench run --launcher {launcher} --configs a.cfg,b.cfg"


@pytest.mark.parametrize("words", [("--ucx", "mine"), ("--config", "nothing.cfg"), ("configs", "show", "nothing")])
def test_mistakes_are_one_sentence(installed: Installed, tmp_path: Path, words: tuple[str, ...]) -> None:
    refused = typed(installed, tmp_path, *words, status=2)
    (line,) = refused.stderr.splitlines()
    assert line.startswith("merge_bench: ")
    assert words[-1] in line
    assert list(tmp_path.iterdir()) == []
