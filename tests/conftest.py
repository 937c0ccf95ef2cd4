"""Which tests run where, and a gate: in continuous integration a skip counts as a failure unless it is allowed.

A suite that quietly skips most of itself looks green. So under CI=true every skip, and every skipped module, turns
into a failure that carries the reason. Allowed is only what cannot run there:

* tests marked `gpu`, where there is no GPU;
* tests marked `ucx_releases`, where pip finds no releases of UCX;
* tests marked `soak`, which are not selected at all without `--soak`.

`--fast` leaves out `gpu`, `soak`, `slow` and `cluster`, and tries a quarter of the random examples. `cluster` is
checked: a test without that mark fails when it starts a cluster. In the folders of `CLUSTER_FOLDERS` every test has
it.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from merge_bench.config.ucx_choice import undo_ucx_choice

if TYPE_CHECKING:
    from tests.helpers.installed import Installed

# What a dumb terminal is shown does not depend on the width that a test names: each test means a real one.
os.environ["TERM"] = "xterm-256color"

# UCX hooks eight functions of the allocator in every process that loads it, and after each waits for 50 ms, in case
# a thread is in one of them just then. With 1 ms the hooks are the same, and a run of two workers takes 0.4 s less.
# Only processes that tests start get it.
QUICK_HOOKS = ("UCX_MEM_BISTRO_GRACE_DURATION", "1ms")


# jsonschema loads this package, where it is installed, for a check of addresses that no schema here makes; the grammar
# that it builds costs seconds in every process.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# How long one example takes depends on what else the machine does.
hypothesis.settings.register_profile("any-machine", deadline=None, max_examples=50)
hypothesis.settings.register_profile("fast", deadline=None, max_examples=12)
hypothesis.settings.register_profile("soak", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("any-machine")

# In the background a shell has SIGINT ignored, and nohup SIGHUP; what tests start shall not inherit that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector off thousands of tests and what they import: nothing of it ever becomes free.

    Some code under test calls the collector in every iteration, and each call would look through all of it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Records are on the disk after every line, which takes some 5 ms; no test is about a disk that loses power."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module", autouse=True)
def _quiet_host() -> Iterator[None]:
    """Tests run side by side, so the host is busy; `tests/host/test_other_load.py` has the function that looks."""
    from merge_bench.host import other_load

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(other_load, "measure_other_load", other_load.OtherProcessLoad)
        patched.setattr(other_load, "begin_load_measurement", lambda: other_load.OtherProcessLoad)
        yield


SHARED_MEMORY = "/dev/shm"
NEW_MOUNTS = 0x20000  # CLONE_NEWNS
PRIVATE, ALL_BELOW = 1 << 18, 1 << 14  # MS_PRIVATE, MS_REC


def own_shared_memory() -> bool:
    """Gives this process and all that it starts a /dev/shm of its own; False where that is not allowed.

    What a killed process leaves in /dev/shm carries no name of its maker. So of test files that run side by side
    each one looks at its own.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS) != 0:
        return False
    space = os.statvfs(SHARED_MEMORY)
    size = f"size={space.f_blocks * space.f_frsize},mode=1777".encode()
    if libc.mount(None, b"/", None, PRIVATE | ALL_BELOW, None) != 0:
        return False
    return bool(libc.mount(b"tmpfs", SHARED_MEMORY.encode(), b"tmpfs", 0, size) == 0)


def pytest_configure(config: pytest.Config) -> None:
    for name in ("fast", "soak"):
        if config.getoption(f"--{name}"):
            hypothesis.settings.load_profile(name)
    if "PYTEST_XDIST_WORKER" in os.environ:  # several of them side by side
        own_shared_memory()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="also run the repetitions that take minutes")
    parser.addoption("--fast", action="store_true", help="only what is quick and needs no cluster, no GPU and no root")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--fast`, folders without a test for it are not even imported."""
    return True if config.getoption("--fast") and collection_path in CLUSTER_FOLDERS else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    of_clusters = {path: not CLUSTER_FOLDERS.isdisjoint(path.parents) for path in {item.path for item in items}}
    for item in items:
        if of_clusters[item.path]:
            item.add_marker("cluster")
    left_out = ("soak", "gpu", "slow", "cluster") if config.getoption("--fast") else ("soak",)
    if not config.getoption("--soak"):
        deselected = [item for item in items if any(item.get_closest_marker(name) for name in left_out)]
        config.hook.pytest_deselected(items=deselected)
        gone = set(deselected)
        items[:] = [item for item in items if item not in gone]
    if "PYTEST_XDIST_WORKER" in os.environ:
        # What takes longest begins first, so that at the end no core waits for one long file.
        clusters = Counter(item.path for item in items if item.get_closest_marker("cluster"))
        # Files of one folder are spread over the run: side by side they would compile the same loops at once.
        files = list(dict.fromkeys(item.path for item in items))
        folders = Counter(file.parent for file in files)
        before: Counter[Path] = Counter()
        place = {}
        for file in files:
            place[file] = (-clusters[file], before[file.parent] / folders[file.parent], file)
            before[file.parent] += 1
        items.sort(key=lambda item: place[item.path])


HERE = Path(__file__).resolve().parent
CLUSTER_FOLDERS = frozenset(HERE / name for name in ("hosts", "runs", "browser", "soak"))
"""Every test there starts a cluster, or hosts, or a browser beside it."""
_CLUSTER = re.compile(
    r"-m merge_bench (?!.*--(help|version|dry-run))(run|probe|transports|tune|-)"
    r"|-m (dask (cuda )?(scheduler|worker)|distributed\.cli|merge_bench\.cluster\.host_agent)"
    r"|(^|[ /])(mpirun(\.\w+)?|srun|sshd|slurmctld|ucx_perftest|ucc_perftest|unshare|chromium) (?!--version)"
)
_running: pytest.Item | None = None  # the test without the mark `cluster` that is under way


def _refuse_clusters(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "subprocess.Popen" or _running is None:
        return
    words = arguments[1] if isinstance(arguments[1], list | tuple) else [arguments[1]]
    line = " ".join(map(os.fsdecode, words))
    if _CLUSTER.search(line):
        pytest.fail(f"it starts a cluster and is not marked so (pytest.mark.cluster): {line[:200]}")


sys.addaudithook(_refuse_clusters)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    global _running
    _running = None if item.get_closest_marker("cluster") else item
    try:
        return (yield)
    finally:
        _running = None


@pytest.fixture(autouse=True)
def _no_choice_of_ucx_outlives_its_test() -> Iterator[None]:
    with undo_ucx_choice():
        yield


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The package, installed from a wheel into an environment of its own."""
    from tests.helpers.installed import install

    return install(tmp_path_factory.mktemp("elsewhere"))


@functools.cache
def gpu_present() -> bool:
    """Whether the driver lists a GPU; asked of nvidia-smi, or of NVIDIA's library in containers that have no such."""
    if shutil.which("nvidia-smi") is None:
        from merge_bench.host.gpu import count_visible_gpus

        return count_visible_gpus() > 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    return listed.returncode == 0 and "GPU " in listed.stdout


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not gpu_present():
        pytest.skip("needs an NVIDIA GPU")


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"true", "1"}


def _refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"not allowed to skip when CI=true, yet it did: {reason.removeprefix('Skipped: ')}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    allowed = item.get_closest_marker("gpu") is not None and not gpu_present()
    allowed |= item.get_closest_marker("ucx_releases") is not None
    # An expected failure (xfail) is reported as skipped too; it did run.
    if report.skipped and _in_ci() and not allowed and not hasattr(report, "wasxfail"):
        _refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped and _in_ci():
        _refuse(report)
    return report
