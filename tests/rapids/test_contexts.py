"""The GPU path's first calls on a driver without a GPU, with the real RMM and cuda-bindings of the stack."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rapids import contexts
from tests.rapids.sources import ROOT

pytestmark = pytest.mark.slow

# With nobody's context: the thread, the status of cuStreamSynchronize before and after each of these.
STUB = """
import ctypes, sys, threading
cuda = ctypes.CDLL(sys.argv[1])
context, function, status = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()

def synchronize():
    return cuda.cuStreamSynchronize(None)

found = [synchronize(), cuda.cuInit(0), synchronize(), cuda.cuCtxSetCurrent(ctypes.c_void_p(8))]
found += [cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), synchronize(), cuda.cuCtxSetCurrent(context)]
found += [synchronize()]
other = threading.Thread(target=lambda: found.append(synchronize()))
other.start(), other.join()
cuda.cuGetProcAddress_v2(b"cuMemAlloc_v2", ctypes.byref(function), 13000, ctypes.c_uint64(0), ctypes.byref(status))
found += [ctypes.CFUNCTYPE(ctypes.c_int)(function.value)(), cuda.cuCtxSetCurrent(None), synchronize()]
print(*found)
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import cuda.bindings

    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler: the stub of libcuda.so.1 cannot be built")
    return contexts.build(tmp_path_factory.mktemp("stub"), int(cuda.bindings.__version__.partition(".")[0]))


def changed(folder: Path, file: str, right: str, wrong: str) -> Path:
    """A folder with this merge_bench in which one file has other words."""
    package, inner = folder / "merge_bench", Path(file).parent
    for place in (inner, *inner.parents):
        (package / place).mkdir(parents=True, exist_ok=True)
        for entry in (ROOT / "merge_bench" / place).iterdir():
            if entry.name not in {Path(file).name, *inner.parts}:
                (package / place / entry.name).symlink_to(entry)
    source = (ROOT / "merge_bench" / file).read_text()
    assert right in source
    (package / file).write_text(source.replace(right, wrong))
    return folder


def test_the_stub_follows_contexts_by_thread(stub: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUB, str(stub / "libcuda.so.1")], capture_output=True, text=True, timeout=60, check=True
    )
    # Not initialised; no context; one that nobody retained; retained but not current; current; another thread; a call
    # that the stub cannot carry out; no longer current.
    assert done.stdout.split() == ["3", "0", "201", "201", "0", "201", "0", "0", "201", "801", "0", "201"]


def test_a_context_is_bound_before_the_first_call_that_needs_one(stub: Path) -> None:
    found = contexts.steps(stub)
    assert {"set_up_pool", "CudfEngine"} <= set(found)
    assert {name: contexts.judge(step) for name, step in found.items()} == dict.fromkeys(found, "")
    assert len({step.calls[0].thread for step in found.values()}) == len(found)


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("merge/engines/gpu_memory.py", "    bind_cuda_context()\n", ""),
        (
            "merge/engines/gpu_memory.py",
            '_checked_driver_result("cuCtxSetCurrent", *driver.cuCtxSetCurrent(context))',
            "context",
        ),
    ],
)
def test_without_a_context_it_ends_with_201(stub: Path, tmp_path: Path, file: str, right: str, wrong: str) -> None:
    for step in contexts.steps(stub, root=changed(tmp_path, file, right, wrong)).values():
        assert contexts.judge(step).startswith("cuStreamSynchronize gave 201, without a context in its thread")
        assert "500" not in contexts.judge(step)


@pytest.mark.parametrize("fail", ["cuInit=100", "cuDevicePrimaryCtxRetain=2", "cuCtxSetCurrent=201"])
def test_a_refusal_of_the_driver_is_one_sentence(stub: Path, fail: str) -> None:
    for step in contexts.steps(stub, fail=fail).values():
        assert contexts.refused(step, fail.partition("=")[2]), step


def test_a_status_that_is_not_checked_is_found(stub: Path, tmp_path: Path) -> None:
    unchecked = ("if int(status) == 0:\n        return value", "return value")
    root = changed(tmp_path, "merge/engines/gpu_memory.py", *unchecked)
    for step in contexts.steps(stub, root=root, fail="cuCtxSetCurrent=201").values():
        assert not contexts.refused(step, "201")
        assert contexts.judge(step).startswith("cuStreamSynchronize gave 201")


def test_no_compiler_is_a_failure_that_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(contexts.CannotCheck, match="no C compiler"):
        contexts.build(tmp_path, 13)
