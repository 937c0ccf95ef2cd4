"""The checks that `__main__.py` makes with the real packages, each with its conclusion."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers.rapidsmpf_ranks import connect_ranks
from tests.rapids import contexts, fakes, fitting, options, packages, record, sources, typed
from tests.rapids.installed import Installed
from tests.rapids.uses import Reading

REFUSALS = ("cuInit=100", "cuDeviceGet=101", "cuDevicePrimaryCtxRetain=2", "cuCtxSetCurrent=201")
_WRONG = re.compile(rf"^wrong_(\d+)\.py.*{typed.WRONG}_(\d+)_")


@dataclass(frozen=True)
class Result:
    """One check: its name, whether it passed, the conclusion, and what else there is to say, a line each."""

    name: str
    passed: bool
    text: str
    details: tuple[str, ...] = field(default=())


def versions() -> Result:
    """The installed packages are those of the lock."""
    wanted = packages.locked()
    found = packages.installed(wanted)
    wrong = tuple(
        f"{name}: installed {found[name]}, locked {wanted[name]}" for name in found if found[name] != wanted[name]
    )
    wrong += tuple(f"{name}: locked, not installed" for name in wanted if name not in found)
    return Result("lock", not wrong, f"{len(found)} packages are installed in the versions of the cu13 lock", wrong)


def interfaces(*, write: bool) -> Iterator[Result]:
    """What source and fakes use is there, fits, and is what was recorded."""
    library = Installed()
    readings = sources.read(library)
    misfits = tuple(f"{name}: {line}" for name, found in readings.items() for line in fitting.misfits(found, library))
    count = sum(use.positional is not None for found in readings.values() for use in found.uses)
    yield Result("calls", not misfits, f"{count} calls in {len(readings)} files fit the parameters", misfits)
    wrong = tuple(fakes.ours(library, readings.values()))
    yield Result("fakes", not wrong, "the fakes in tests/ have the real parameters and values", wrong)
    yield command_line()
    yield recording(library, write=write)


def recording(library: Installed, *, write: bool) -> Result:
    """The interfaces are as in the record, or are written to it."""
    from dask_cuda.cli import worker

    before, taken = record.read(), options.taken(worker)
    now = record.made(library, packages.recorded(packages.installed(packages.locked())), taken)
    changed = tuple(record.differences(before, now))
    names = len(now["names"]) + sum(map(len, now["members"].values()))
    text = f"{names} names, {len(taken)} options, {len(now['packages'])} versions"
    if not write:
        return Result("record", not changed, f"{text} are as in tests/data/{record.FILE.name}", changed)
    record.FILE.write_text(record.text(now))
    if not before["names"]:
        return Result("record", True, f"{text} recorded for the first time")
    return Result("record", True, f"{text} recorded; {len(changed)} changes", changed)


def command_line() -> Result:
    """`dask cuda worker` takes what we give it."""
    from dask_cuda.cli import worker

    logging.getLogger("distributed").setLevel(logging.WARNING)  # it tells of every preload
    refused = []
    for words in options.given():
        found = worker.make_context("worker", [*words]).params
        refused += [f"taken for something else than an option: {word}" for word in found["preload_argv"]]
        refused += [f"taken for the scheduler's address: {found['scheduler']}"] if found["scheduler"] else []
    return Result("options", not refused, "dask cuda worker parses our command lines", tuple(refused))


def types(folder: Path) -> Result:
    """`mypy --strict` of the engine against the stubs finds nothing, and would."""
    library = Installed()
    right, wrong, calls = {}, {}, set()
    # A copy changes the trees of its reading.
    one, other = sources.read(library), sources.read(library)
    names = [name for name, found in one.items() if name.startswith("merge_bench/") and _uses_typed(found)]
    for number, name in enumerate(names):
        copy = typed.Copy(one[name], library)
        right[f"typed_{number}"] = copy.text()
        wrong[f"wrong_{number}"] = typed.Copy(other[name], library, wrong=True).text()
        calls |= {(str(number), str(call)) for call in range(len(copy.calls))}
    errors = typed.check(right, folder)
    refused = {found for line in typed.check(wrong, folder) for found in _WRONG.findall(line)}
    missed = tuple(f"a wrong argument is taken: call {call} of {names[int(file)]}" for file, call in calls - refused)
    text = f"mypy --strict of {', '.join(names)}: {len(errors)} errors in {len(calls)} calls of pylibcudf and RMM;"
    text = f"{text} {len(refused)} of {len(calls)} are refused with a wrong argument"
    return Result("types", not errors and not missed and bool(calls), text, (*errors, *missed))


def _uses_typed(reading: Reading) -> bool:
    return any(use.path.partition(".")[0] in typed.TYPED for use in reading.uses)


def array() -> Result:
    """UCXX takes our device buffers for device memory of the right place and size."""
    from ucxx._lib.arr import Array

    from merge_bench.merge.engines.gpu_memory import DeviceBytes

    whole = DeviceBytes(0x7F0000000000, 1000, object())
    wrong = []
    for buffer, place, size in ((whole, 0x7F0000000000, 1000), (whole[100:356], 0x7F0000000064, 256)):
        made = Array(buffer)
        found = (made.ptr, made.nbytes, made.cuda, made.c_contiguous, made.readonly)
        if found != (place, size, True, True, False):
            wrong.append(
                f"pointer, bytes, cuda, contiguous, readonly: {found}, expected {(place, size, True, True, False)}"
            )
    text = "ucxx.Array takes a whole buffer and a slice of it as device memory, with pointer and bytes"
    return Result("array", not wrong, text, tuple(wrong))


def communicator() -> Result:
    """rapidsmpf connects processes by the addresses that our data plane carries."""
    found = connect_ranks(3)
    wrong = tuple(str(each) for rank, each in enumerate(found) if each != (rank, 3, True))
    return Result("rapidsmpf", not wrong, "its communicator connects 3 processes by addresses that we carry", wrong)


def cuda_ipc() -> Result:
    """UCX's module for CUDA is there and has CUDA IPC in it."""
    import libucx

    found = sorted(Path(libucx.__file__).parent.rglob("libuct_cuda.so*"))
    if not found:
        return Result("cuda_ipc", False, "libucx has no libuct_cuda.so")
    content = found[0].read_bytes()
    missing = tuple(
        f"{found[0].name} has no {name}" for name in ("cuda_ipc", "cuda_copy") if f"\0{name}\0".encode() not in content
    )
    return Result(
        "cuda_ipc", not missing, f"{found[0].name} ({len(content):,} bytes) has cuda_ipc and cuda_copy", missing
    )


def first_calls(folder: Path) -> Iterator[Result]:
    """A context is bound before the first call that needs one, and a refused one is noticed."""
    import cuda.bindings

    release = int(cuda.bindings.__version__.partition(".")[0])
    stub = contexts.build(folder, release)
    for name, step in contexts.steps(stub).items():
        why = contexts.judge(step)
        yield Result("context", not why, f"{name} in a new thread: {why or contexts.call_names(step)}")
    tried = [
        (f"{name} with {fail}", step, fail.partition("=")[2])
        for fail in REFUSALS
        for name, step in contexts.steps(stub, fail=fail).items()
    ]
    older = contexts.steps(contexts.build(folder, release - 1), fail="no call=0")
    tried += [(f"{name} with an older driver", step, f"CUDA {release - 1}") for name, step in older.items()]
    wrong = tuple(
        f"{what}: {step.kind}: {step.error} ({contexts.call_names(step)})"
        for what, step, reason in tried
        if not contexts.refused(step, reason)
    )
    text = f"{len(tried) - len(wrong)} of {len(tried)} failures of the driver end in one sentence, before any call that"
    yield Result("refusals", not wrong, f"{text} needs a context", wrong)


def everything(*, write: bool) -> Iterator[Result]:
    """All checks."""
    yield versions()
    yield from interfaces(write=write)
    with tempfile.TemporaryDirectory() as scratch:
        yield types(Path(scratch))
        yield array()
        yield communicator()
        yield cuda_ipc()
        try:
            yield from first_calls(Path(scratch))
        except contexts.CannotCheck as error:
            yield Result("context", False, str(error))
