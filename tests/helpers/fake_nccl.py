"""As much of nccl4py as `probe all-to-all` uses, in host memory, between processes that share a folder.

Arguments have the names and the order of release 0.6. It refuses what nccl4py refuses (`NcclInvalid`) and what NCCL
refuses (`NCCLError`); where the real one would hang, because a peer never takes part or sizes differ, it raises, too.
What arrives is there when the stream is waited for, as with real streams (`fake_device`).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.fake_device import at, read, use, write

ID_BYTES, SECONDS = 128, 20.0
SUM = 0
_TYPES = {"i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8"}  # that NCCL has


class NcclInvalid(Exception):
    """What nccl4py refuses."""


class NCCLError(Exception):
    """What NCCL refuses."""


class UniqueId:
    def __init__(self, _internal: Any = None) -> None:
        self._bytes = bytes(ID_BYTES) if _internal is None else bytes(_internal)

    def __bytes__(self) -> bytes:
        return self._bytes

    @staticmethod
    def from_bytes(b: Any) -> UniqueId:
        if len(b) != ID_BYTES:
            raise ValueError(f"buffer length must be {ID_BYTES} bytes")
        return UniqueId(b)


def get_unique_id(empty: bool = False) -> UniqueId:
    return UniqueId() if empty else UniqueId(tempfile.mkdtemp(prefix="nccl-").encode().ljust(ID_BYTES, b"\0"))


def get_version() -> Any:
    return types.SimpleNamespace(nccl4py="0.6.0", libnccl="2.32.3+cuda13.4 @ /usr/lib/libnccl.so.2")


class _Group:
    """Of this process: how many groups are open, and what waits for the end of the outermost one."""

    open = 0
    sends: list[tuple[Communicator, np.ndarray[Any, Any], int]]
    receives: list[tuple[Communicator, int, int, int, Any]]
    sends, receives = [], []


def group_start() -> None:
    _Group.open += 1


def group_end(*, simulate: bool = False) -> None:
    if not _Group.open:
        raise NCCLError("InvalidUsage (5): invalid usage (run with NCCL_DEBUG=WARN for details)")
    _Group.open -= 1
    if _Group.open:
        return
    sends, receives, _Group.sends, _Group.receives = _Group.sends, _Group.receives, [], []
    for communicator, content, peer in sends:
        communicator.put(content, peer)
    for communicator, address, size, peer, stream in receives:
        content = communicator.get(peer)
        if content.size != size:
            raise NCCLError(f"it would hang: rank {peer} sent {content.size} bytes, and {size} were awaited")
        write(address, content, size, stream)


@contextlib.contextmanager
def _group() -> Iterator[None]:
    group_start()
    try:
        yield
    finally:
        group_end()


class Communicator:
    def __init__(self, ptr: int | None = None) -> None:
        self._folder: Path | None = None
        self._count: Counter[tuple[str, int]] = Counter()
        self._nranks = self._rank = 0

    @classmethod
    def init(cls, nranks: int, rank: int, unique_id: Any, config: Any = None) -> Communicator:
        use(None)  # a context is current
        if not isinstance(unique_id, (UniqueId, list, tuple)):
            raise NcclInvalid("unique_id must be a UniqueId or a sequence of UniqueIds")
        folder = Path(bytes(unique_id).rstrip(b"\0").decode())  # type: ignore[arg-type]
        if not 0 <= rank < nranks or not folder.name or not folder.is_dir():
            raise NCCLError("InvalidArgument (4): invalid argument (run with NCCL_DEBUG=WARN for details)")
        made = cls()
        made.meet(folder, nranks, rank)
        return made

    def send(self, sendbuf: Any, peer: int, *, stream: Any = None) -> None:
        address, size = self._buffer("send", sendbuf, "sendbuf")
        self._check_peer(peer)
        use(stream)
        with _group():
            _Group.sends.append((self, read(address, size), peer))

    def recv(self, recvbuf: Any, peer: int, *, stream: Any = None) -> None:
        address, size = self._buffer("recv", recvbuf, "recvbuf")
        self._check_peer(peer)
        with _group():
            _Group.receives.append((self, address, size, peer, use(stream)))

    def alltoall(self, sendbuf: Any, recvbuf: Any, *, stream: Any = None, config: Any = None) -> None:
        source, sent = self._buffer("alltoall", sendbuf, "sendbuf")
        target, room = self._buffer("alltoall", recvbuf, "recvbuf")
        part = sent // self._nranks
        if part < 1 or room < sent:
            raise NcclInvalid(f"Buffer count mismatch: {sent} and {room} elements for {self._nranks} ranks")
        use(stream)
        with _group():
            for peer in range(self._nranks):
                _Group.sends.append((self, read(source + peer * part, part), peer))
                _Group.receives.append((self, target + peer * part, part, peer, use(stream)))

    def allreduce(self, sendbuf: Any, recvbuf: Any, op: Any, *, stream: Any = None, config: Any = None) -> None:
        source, size = self._buffer("allreduce", sendbuf, "sendbuf")
        target, room = self._buffer("allreduce", recvbuf, "recvbuf")
        if room < size or op != SUM:
            raise NcclInvalid("Buffer count mismatch, or an operation that is not played")
        use(stream)
        content = read(source, size)
        for peer in range(self._nranks):
            self.put(content, peer)
        parts = [self.get(peer) for peer in range(self._nranks)]
        write(target, np.sum(parts, axis=0, dtype=np.uint8), size, use(stream))

    def get_async_error(self) -> int:
        self._check("get async error")
        return 0

    def get_last_error(self) -> str:
        self._check("get last error")
        return ""

    def destroy(self) -> None:
        if _Group.open:
            raise NCCLError("it would hang: a group was not ended")
        self._folder = None

    def abort(self) -> None:
        self._folder = None

    # -- what is played

    def meet(self, folder: Path, nranks: int, rank: int) -> None:
        """Become one of the ranks that share a folder, and wait for the others."""
        self._folder, self._nranks, self._rank = folder, nranks, rank
        (folder / f"rank-{rank}-of-{nranks}").touch(exist_ok=False)
        _until(lambda: len(list(folder.glob(f"rank-*-of-{nranks}"))) == nranks, "a rank never came")

    def _check(self, operation: str) -> Path:
        if self._folder is None:
            raise NcclInvalid(f"Cannot {operation}: Communicator not initialized")
        return self._folder

    def _check_peer(self, peer: int) -> None:
        if not 0 <= peer < self._nranks:
            raise NCCLError("InvalidArgument (4): invalid argument (run with NCCL_DEBUG=WARN for details)")

    def _buffer(self, operation: str, buffer: Any, name: str) -> tuple[int, int]:
        """Address and bytes of device memory."""
        self._check(operation)
        if isinstance(buffer, np.ndarray):
            raise NcclInvalid(f"{name} is on device -1, but communicator is on device 0")
        if not hasattr(buffer, "__cuda_array_interface__"):
            raise BufferError("the input object does not support any data exchange protocol")
        found = buffer.__cuda_array_interface__
        if found["typestr"][1:] not in _TYPES:
            raise NcclInvalid(f"Unsupported data type: numpy dtype {found['typestr']}")
        size = int(np.dtype(found["typestr"]).itemsize * np.prod(found["shape"]))
        at(found["data"][0], size)
        return found["data"][0], size

    def put(self, content: Any, peer: int) -> None:
        """Leave a message for a peer."""
        folder, number = self._check("send"), self._count["to", peer]
        self._count["to", peer] += 1
        made = folder / f"{self._rank}-{peer}-{number}.part"
        made.write_bytes(content.tobytes())
        os.rename(made, made.with_suffix(""))

    def get(self, peer: int) -> np.ndarray[Any, Any]:
        """Take the next message of a peer."""
        folder, number = self._check("recv"), self._count["from", peer]
        self._count["from", peer] += 1
        path = folder / f"{peer}-{self._rank}-{number}"
        _until(path.exists, f"rank {peer} sent nothing")
        found = np.frombuffer(path.read_bytes(), np.uint8)
        path.unlink()
        return found


def _until(done: Any, otherwise: str) -> None:
    end = time.monotonic() + SECONDS
    while not done():
        if time.monotonic() > end:
            raise NCCLError(f"it would hang: {otherwise}")
        time.sleep(0.0002)


def modules() -> dict[str, types.ModuleType]:
    """What to put into `sys.modules`."""
    core, nccl = types.ModuleType("nccl.core"), types.ModuleType("nccl")
    vars(core).update(
        Communicator=Communicator,
        SUM=SUM,
        UniqueId=UniqueId,
        get_unique_id=get_unique_id,
        get_version=get_version,
        group_end=group_end,
        group_start=group_start,
    )
    vars(nccl).update(core=core)
    return {"nccl": nccl, "nccl.core": core}
