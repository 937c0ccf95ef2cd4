"""As much of rapidsmpf and cudf_streaming as the data plane uses, between processes, in a folder of files.

Arguments have the names and the order that they have in release 26.10. It fails where the real ones do: a chunk can be
used once, a `Shuffler` waits for ever for what a peer does not send, and ends the process if it is freed too early.
The address of the root is the folder; ranks are numbered as they come. What is packed lies in the memory of
`fake_device` before it is sent and after it is unpacked.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import itertools
import os
import pickle
import shutil
import tempfile
import time
import types
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.helpers import fake_rapids
from tests.helpers.fake_columns import (
    DeviceBuffer,
    Table,
    copy_host_to_ptr,
    gpumemoryview,
    pack,
    unpack_from_memoryviews,
)
from tests.helpers.fake_device import Process, read, use

SENT, RECEIVED = "shuffle-payload-send", "shuffle-payload-recv"


class Statistics:
    def __init__(self, *, enable: bool) -> None:
        assert enable
        self._values: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def add_stat(self, name: str, value: float) -> None:
        self._values[name] += value
        self._counts[name] += 1

    def to_dict(self) -> dict[str, dict[str, int | float]]:
        return {name: {"count": self._counts[name], "value": value} for name, value in self._values.items()}


class ProgressThread:
    def __init__(self, statistics: Statistics | None = None) -> None:
        assert statistics is not None
        self.statistics = statistics


class Options:
    def __init__(self, options_as_strings: Mapping[str, str] | None = None) -> None:
        self._options = dict(options_as_strings or {})

    def insert_if_absent(self, options_as_strings: Mapping[str, str]) -> int:
        new = options_as_strings.keys() - self._options.keys()
        self._options |= {name: options_as_strings[name] for name in new}
        return len(new)

    def get_strings(self) -> dict[str, str]:
        return dict(self._options)


def get_environment_variables(key_regex: str = "RAPIDSMPF_(.*)") -> dict[str, str]:
    return {}


class Communicator:
    """Made by `new_communicator`."""

    def __init__(self, folder: Path, nranks: int, statistics: Statistics) -> None:
        self.folder, self.nranks, self.statistics = folder, nranks, statistics
        self.rank = next(number for number in itertools.count() if _create(folder / f"rank-{number}"))
        self.barriers = 0
        self.active: set[int] = set()

    def get_str(self) -> str:
        return f"fake(rank={self.rank}, nranks={self.nranks})"


def _create(path: Path) -> bool:
    with contextlib.suppress(FileExistsError):
        path.open("xb").close()
        return True
    return False


def new_communicator(
    nranks: int, ucx_worker: Any, root_ucxx_address: Any, options: Options, progress_thread: Any
) -> Any:
    Process.driver.require_context()  # otherwise UCX takes no device memory
    assert ucx_worker is None
    assert isinstance(options, Options)
    if root_ucxx_address is None:
        root = Path(tempfile.mkdtemp(prefix="fake-rapidsmpf-"))
        atexit.register(shutil.rmtree, root, ignore_errors=True)
        return Communicator(root, nranks, progress_thread.statistics)
    folder = Path(bytes(root_ucxx_address).decode())
    while not (folder / "barrier-1-0").exists():  # the root answers only while it is in a barrier
        time.sleep(0.001)
    return Communicator(folder, nranks, progress_thread.statistics)


def get_root_ucxx_address(comm: Communicator) -> bytes:
    if comm.rank:
        os._exit(134)
    return str(comm.folder).encode()


def barrier(comm: Communicator) -> None:
    comm.barriers += 1
    (comm.folder / f"barrier-{comm.barriers}-{comm.rank}").touch()
    while len(list(comm.folder.glob(f"barrier-{comm.barriers}-*"))) < comm.nranks:
        time.sleep(0.001)


class BufferResource:
    def __init__(
        self,
        device_mr: Any,
        *,
        pinned_pool_properties: Any = None,
        memory_limits: Any = None,
        periodic_spill_check: float | None = 1e-3,
        stream_pool: Any = None,
        statistics: Statistics | None = None,
    ) -> None:
        Process.driver.require_context()
        assert isinstance(device_mr, fake_rapids.DeviceMemoryResource)
        assert statistics is not None


class PackedData:
    """`content`: libcudf's description of a table and its bytes; None once it is used."""

    content: tuple[bytes, bytes] | None

    def take(self) -> tuple[bytes, bytes]:
        if self.content is None:
            raise ValueError("PackedData was empty")
        taken, self.content = self.content, None
        return taken


def _packed(content: tuple[bytes, bytes]) -> PackedData:
    made = PackedData()
    made.content = content
    return made


def partition_and_pack(
    table: Table,
    columns_to_hash: Iterable[int],
    num_partitions: int,
    stream: Any,
    br: BufferResource,
    seed: int = 0,
    reservation: Any = None,
) -> dict[int, PackedData]:
    use(stream, "partition_and_pack")
    assert isinstance(br, BufferResource)
    parts, edges = fake_rapids.hash_partition(
        table, list(columns_to_hash), num_partitions, seed=seed or 1, stream=stream
    )
    bounds = [edge for pair in itertools.pairwise([*edges[:num_partitions], parts.num_rows()]) for edge in pair]
    chunks = {}
    for rank, part in enumerate(fake_rapids.slice_(parts, bounds, stream=stream)):
        description, data = pack(part, stream=stream).release()
        chunks[rank] = _packed((bytes(description), read(data.ptr, data.size).tobytes()))
    return chunks


def unpack_and_concat_cost(partitions: Iterable[PackedData]) -> int:
    found = [each.content for each in partitions]
    if None in found:
        raise ValueError("partition has already been consumed")
    return sum(len(content[1]) for content in found if content)


def unpack_and_concat(
    partitions: Iterable[PackedData], stream: Any, br: BufferResource, reservation: Any = None
) -> Table:
    use(stream, "unpack_and_concat")
    assert isinstance(br, BufferResource)
    tables = []
    for description, data in [each.take() for each in partitions]:
        buffer = DeviceBuffer(size=len(data), stream=stream)
        copy_host_to_ptr(data, buffer.ptr, stream)
        tables.append(unpack_from_memoryviews(memoryview(description), gpumemoryview(buffer), stream=stream))
    return fake_rapids.concatenate(tables, stream=stream)


class PartitionAssignment(enum.IntEnum):
    ROUND_ROBIN = 0
    CONTIGUOUS = 1


class Shuffler:
    max_concurrent_shuffles = 1 << 20

    def __init__(
        self,
        comm: Communicator,
        op_id: int,
        total_num_partitions: int,
        br: BufferResource,
        partition_assignment: PartitionAssignment = PartitionAssignment.ROUND_ROBIN,
    ) -> None:
        assert op_id not in comm.active, "two shuffles with one number"
        comm.active.add(op_id)
        self._comm, self._op, self._parts, self._br = comm, op_id, total_num_partitions, br
        self._folder = comm.folder / f"shuffle-{op_id}"
        self._folder.mkdir(exist_ok=True)
        self._inserted = self._finished = 0
        self._active = 1

    def _write(self, name: str, content: object) -> None:
        whole = self._folder / f"{name}.part-{self._comm.rank}"
        whole.write_bytes(pickle.dumps(content))
        whole.rename(self._folder / name)

    def insert_chunks(self, chunks: Mapping[int, PackedData]) -> None:
        assert not self._finished
        for part, chunk in chunks.items():
            assert 0 <= part < self._parts
            content = chunk.take()
            if part % self._comm.nranks != self._comm.rank:
                self._comm.statistics.add_stat(SENT, len(content[1]))
            self._write(f"chunk-{part}-{self._comm.rank}-{self._inserted}", content)
            self._inserted += 1

    def insert_finished(self) -> None:
        assert not self._finished
        self._finished = 1
        self._write(f"finished-{self._comm.rank}", self._inserted)

    def wait(self) -> None:
        while len(list(self._folder.glob("finished-?"))) < self._comm.nranks:
            time.sleep(0.001)

    def extract(self, pid: int) -> list[PackedData]:
        assert pid % self._comm.nranks == self._comm.rank, "a partition of another rank"
        found = []
        for file in sorted(self._folder.glob(f"chunk-{pid}-*")):
            content = pickle.loads(file.read_bytes())
            file.unlink()
            found.append(_packed(content))
            if file.name.split("-")[2] != str(self._comm.rank):
                self._comm.statistics.add_stat(RECEIVED, len(content[1]))
        return found

    def local_partitions(self) -> list[int]:
        return list(range(self._comm.rank, self._parts, self._comm.nranks))

    def shutdown(self) -> None:
        if not self._finished:
            os._exit(134)  # as std::terminate ends the process
        self.wait()
        self._active = 0
        self._comm.active.discard(self._op)

    def __del__(self) -> None:
        if getattr(self, "_active", 0):
            self.shutdown()


def _module(name: str, **members: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(members)
    module.__spec__ = types.SimpleNamespace(name=name)
    return module


def modules() -> dict[str, types.ModuleType]:
    """What to put into `sys.modules` beside `fake_rapids.modules`."""
    made = [
        _module("rapidsmpf", __path__=[], __version__="26.10.00"),
        _module("rapidsmpf.communicator", __path__=[]),
        _module(
            "rapidsmpf.communicator.ucxx",
            new_communicator=new_communicator,
            get_root_ucxx_address=get_root_ucxx_address,
            barrier=barrier,
        ),
        _module("rapidsmpf.config", Options=Options, get_environment_variables=get_environment_variables),
        _module("rapidsmpf.progress_thread", ProgressThread=ProgressThread),
        _module("rapidsmpf.statistics", Statistics=Statistics),
        _module("rapidsmpf.shuffler", Shuffler=Shuffler, PartitionAssignment=PartitionAssignment),
        _module("rapidsmpf.memory", __path__=[]),
        _module("rapidsmpf.memory.buffer_resource", BufferResource=BufferResource),
        _module("cudf_streaming", __path__=[]),
        _module(
            "cudf_streaming.partition_utils",
            partition_and_pack=partition_and_pack,
            unpack_and_concat=unpack_and_concat,
            unpack_and_concat_cost=unpack_and_concat_cost,
        ),
    ]
    return {module.__name__: module for module in made}


def install() -> None:
    """For a process of its own, with `fake_rapids`."""
    import sys

    from merge_bench.config import files

    fake_rapids.install()
    sys.modules.update(modules())
    loaded_library = files.open_loaded_library

    def with_cuda(name: str) -> Any:
        library = loaded_library(name)
        if name == "libucp":
            library.ucp_context_query = _support_all_memory
        return library

    files.open_loaded_library = with_cuda  # before the data plane imports it


def _support_all_memory(context: Any, attributes: Any) -> int:
    """Have UCX say that it can send GPU memory: what is played lies in host memory."""
    attributes._obj.memory_types = -1
    return 0
