"""The data plane: tagged messages over UCX endpoints directly between the workers.

Only this module uses UCXX. Endpoints are made from worker addresses, which Dask carries, and not through a listener:
that makes UCX's error handling optional, and without it UCX may use shared memory. The exchanging thread also drives
progress. Every wait checks an abort flag and a time limit.

Each collective operation takes the next number (`_stage`), which is part of every tag, so that messages of two
operations cannot be confused.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# By default UCX handles SIGHUP for its debugger, and a closed terminal would no longer end a run.
os.environ.setdefault("UCX_DEBUG_SIGNO", "0")

from ucxx._lib.arr import Array
from ucxx._lib.libucxx import Feature, UCXAddress, UCXContext, UCXEndpoint, UCXWorker, UCXXTag, get_ucx_version
from ucxx.exceptions import UCXError, UCXShmemSegmentError

from merge_bench.config.files import loaded_library_path, open_loaded_library
from merge_bench.config.ucx_choice import CUDA_REMEDY, cuda_module_problem, has_cuda_module
from merge_bench.errors import RunFailed, UsageError
from merge_bench.host.machine import shared_memory_problem
from merge_bench.merge.exchange import DataPlane
from merge_bench.merge.exchange.base import AbortFlag, Exchange, FrameTransfer, PendingMessage
from merge_bench.merge.partition import contiguous_buffers
from merge_bench.merge.plan import Plan
from merge_bench.records.schema import SizeRange
from merge_bench.units import plural_noun

PLANE = DataPlane(
    name="ucx",
    help="with UCX endpoints",
    place=1,
    attribute="UcxExchange",
    packages=("ucxx",),
    pipeline=True,
    runtime_filter=True,
    timeline=True,
    link_limit=True,
    endpoints=True,
    ucx=True,
)

SPINS_BEFORE_YIELD = 200
SPINS_BEFORE_SLEEP = 4000
SLEEP_SECONDS = 50e-6
GOODBYE = 0  # the number of no operation: the message with which a worker leaves after an aborted run
GOODBYE_SECONDS = 5.0  # for which it waits for its peers, which leave when they are asked to prepare the next run

_FIELD_MEMORY_TYPES = 1 << 2
_CUDA = 1 << 1  # UCS_MEMORY_TYPE_CUDA
_OK, _IN_PROGRESS = 0, 1
_FIRST_ERROR = 2**64 - 100  # UCS_STATUS_IS_ERR: a status code in place of a pointer

_kept: list[PendingMessage] = []
"""Messages of aborted runs that may be in flight as long as this process lives: their memory is never freed."""


class UcxExchange(Exchange):
    """One worker's end of the data plane ``ucx``.

    `error_handling`: UCX's peer error handling on the endpoints. With it UCX reports a dead peer, but drops shared
    memory unless `UCX_POSIX_ERROR_HANDLING` or `UCX_SYSV_ERROR_HANDLING` is `y`. `message_bytes`: longest message; each
    run of a parcel is cut into messages of this size; 0: never cut. `timeout`: seconds without a byte and without a
    heartbeat after which a wait ends. `puts`: whether peers may also put into each other's memory, through
    `ucx_handles`. `device_memory`: whether buffers are in GPU memory; raises `UsageError` if UCX would take it for host
    memory. Raises `RunFailed` if UCX cannot create shared memory.
    """

    title = "UCX"
    unanswered: tuple[int, ...] = ()
    """Peers that had not said goodbye when this worker left after an aborted run; they may still put."""

    def __init__(
        self,
        rank: int,
        workers: int,
        *,
        abort: AbortFlag,
        error_handling: bool = False,
        message_bytes: int = 0,
        timeout: float = 15.0,
        puts: bool = False,
        device_memory: bool = False,
    ) -> None:
        super().__init__(rank, workers, abort=abort)
        self._error_handling, self.message_bytes = error_handling, message_bytes
        self._timeout, self._puts = timeout, puts
        self._context = UCXContext(feature_flags=(Feature.TAG, Feature.RMA) if puts else (Feature.TAG,))
        if device_memory and not detects_cuda_memory(self._context.handle):
            raise UsageError(explain_missing_cuda_memory(".".join(map(str, get_ucx_version()))))
        try:
            self._worker = UCXWorker(self._context)
        except UCXShmemSegmentError as error:
            raise RunFailed(_shared_memory_error(Path(os.environ.get("UCX_POSIX_DIR", "/dev/shm")))) from error
        self._endpoints: dict[int, Any] = {}
        self._abandoned: list[PendingMessage] = []
        self._stage = 0

    @classmethod
    def from_plan(cls, plan: Plan, rank: int, abort: AbortFlag, *, puts: bool = False) -> UcxExchange:
        return cls(
            rank,
            plan.workers,
            abort=abort,
            error_handling=plan.error_handling,
            message_bytes=plan.message_bytes,
            timeout=plan.timeout,
            puts=puts,
            device_memory=plan.device_memory,
        )

    @property
    def address(self) -> bytes:
        return bytes(self._worker.address)

    @property
    def effective_config(self) -> dict[str, str]:
        return {f"UCX_{name}": value for name, value in self._context.config.items()}

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Make an endpoint to every other worker, and exchange a first message with each.

        Raises `RunFailed` if a peer does not answer within the limit, or UCX finds no transport that reaches it.
        """
        for peer in self.peers:
            try:
                address = UCXAddress.create_from_buffer(np.frombuffer(addresses[peer], np.uint8))
                self._endpoints[peer] = UCXEndpoint.create_from_worker_address(
                    self._worker, address, endpoint_error_handling=self._error_handling
                )
            except UCXError as error:
                raise RunFailed(f"rank {self.rank} cannot reach rank {peer} over UCX: {error}") from error
        hello = np.full(8, self.rank, np.uint8)
        self.transfer(dict.fromkeys(self.peers, hello), {peer: np.empty(8, np.uint8) for peer in self.peers})
        self.barrier()

    def transfer(
        self, sends: Mapping[int, Any], receives: Mapping[int, Any], *, note_batches: bool = False
    ) -> FrameTransfer:
        self._stage += 1
        flight, began = FrameTransfer(), time.perf_counter()
        posted: dict[tuple[int, bool], float] = {}
        pending: list[PendingMessage] = []
        try:
            for peer in reversed(self.peers):  # in each step from the one that sends to this worker then
                if peer in receives:
                    if note_batches:
                        posted[peer, True] = time.perf_counter()
                    self._post_parcel(pending, receives[peer], peer, receive=True)
            for peer in self.peers:
                if peer in sends:
                    if note_batches:
                        posted[peer, False] = time.perf_counter()
                    self._post_parcel(pending, sends[peer], peer, receive=False)
                    flight.sent_bytes += sends[peer].nbytes
            if pending:
                finished, ended = self._wait_for_messages(pending)
                flight.seconds = ended - began
                for peer, buffer in receives.items():
                    flight.arrived[peer] = (buffer.nbytes, finished.get((peer, True), began) - began)
                for key, start in posted.items():
                    if key in finished:  # otherwise there was nothing to send
                        flight.batches[key] = (start, finished[key], (receives if key[1] else sends)[key[0]].nbytes)
        except BaseException:
            self.abandon_messages(pending)
            raise
        return flight

    def describe_endpoints(self) -> dict[int, tuple[list[str], list[SizeRange]]]:
        texts = {peer: describe_endpoint(endpoint.handle) for peer, endpoint in sorted(self._endpoints.items())}
        return {peer: (parse_lanes(text), parse_size_ranges(text)) for peer, text in texts.items()}

    def ucx_handles(self, peer: int) -> tuple[int, int, int]:
        """Return the handles of UCX's context, of its worker, and of the endpoint to `peer`: addresses as integers."""
        return self._context.handle, self._worker.handle, self._endpoints[peer].handle

    def wait_for_token(self, peer: int, progress: Callable[[], None]) -> None:
        """Wait for a one-byte message from `peer`; calls `progress`, which drives UCX, until it has arrived.

        The peer sends it with `transfer`; both count as one operation.
        """
        self._stage += 1
        token = self.post_message(np.empty(1, np.uint8), peer, self._stage, 0, receive=True)
        try:
            while not token.request.completed:
                progress()
        except BaseException:
            self.abandon_messages([token])
            raise
        self.raise_if_failed(token)

    def reserve_operations(self, count: int) -> int:
        self._stage += count
        return self._stage - count + 1

    def post_message(
        self, buffer: Any, peer: int, operation: int, sequence_number: int, *, receive: bool
    ) -> PendingMessage:
        source = peer if receive else self.rank
        tag, piece = UCXXTag(operation << 32 | source << 16 | sequence_number & 0xFFFF), Array(buffer)
        request = self._worker.tag_recv(piece, tag) if receive else self._endpoints[peer].tag_send(piece, tag)
        return PendingMessage(request, peer, receive, buffer)

    def progress(self) -> bool:
        if not self._worker.progress_once():
            return False
        self._worker.progress()
        return True

    def abandon_messages(self, pending: Iterable[PendingMessage]) -> None:
        self._abandoned += pending

    def close(self) -> None:
        if self._abandoned or self.abort.is_aborted:
            self._drain_messages()
        requests = []
        for endpoint in self._endpoints.values():
            with contextlib.suppress(UCXError):
                requests.append(endpoint.close())
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and not all(request.completed for request in requests):
            self._worker.progress_once()
        self._endpoints.clear()

    def _drain_messages(self) -> None:
        """Drive UCX until no peer uses this worker's memory any more; memory that may still be used is never freed.

        A message that a receive has matched arrives, because its sender drives UCX here, too; other receives are
        cancelled. When nothing is left to receive from a peer, this worker sends it a goodbye, so that the peer need
        not wait for its own sends, which nobody will read.
        """
        for item in self._abandoned:
            if item.receive and not item.request.completed:
                cancel_receive(item.request)
        flush = PutFlush(self._worker.handle) if self._puts else None
        heard = {
            peer: self.post_message(np.empty(1, np.uint8), peer, GOODBYE, 0, receive=True) for peer in self._endpoints
        }
        untold, told = list(heard), list[PendingMessage]()
        unfinished, deadline = self._abandoned, time.monotonic() + GOODBYE_SECONDS
        while time.monotonic() < deadline:
            unfinished = [
                item
                for item in unfinished
                if not item.request.completed and (item.receive or not heard[item.peer].request.completed)
            ]
            if flush is None or flush.is_flush_complete():
                busy = {item.peer for item in unfinished if item.receive}
                goodbye = np.zeros(1, np.uint8)
                told += [
                    self.post_message(goodbye, peer, GOODBYE, 0, receive=False) for peer in untold if peer not in busy
                ]
                untold = [peer for peer in untold if peer in busy]
            self.unanswered = tuple(peer for peer, answer in heard.items() if not answer.request.completed)
            if not (unfinished or untold or (self._puts and self.unanswered)):
                break
            if not self.progress():
                time.sleep(SLEEP_SECONDS)
        for peer in self.unanswered:
            cancel_receive(heard[peer].request)
        self.kept_bytes = sum(item.buffer.nbytes for item in unfinished)
        _kept.extend(item for item in (*unfinished, *heard.values(), *told) if not item.request.completed)
        self._abandoned = []

    def _post_parcel(self, pending: list[PendingMessage], buffer: Any, peer: int, *, receive: bool) -> None:
        """Post the messages of a parcel to or from a peer, and append them to `pending`."""
        for number, message in enumerate(self._cut_into_messages(buffer)):
            pending.append(self.post_message(message, peer, self._stage, number, receive=receive))

    def _cut_into_messages(self, buffer: Any) -> Iterator[Any]:
        """Yield a parcel's buffers, cut into messages of at most `message_bytes`."""
        for run in contiguous_buffers(buffer):
            limit = self.message_bytes or run.nbytes
            for start in range(0, run.nbytes, max(limit, 1)):
                yield run if limit >= run.nbytes else run[start : start + limit]

    def _wait_for_messages(self, pending: list[PendingMessage]) -> tuple[dict[tuple[int, bool], float], float]:
        """Drive UCX until no message is pending; returns when each peer's messages were complete, and when all were.

        The times are seconds of `time.perf_counter`, by peer and whether messages were received (True) or sent.
        """
        finished: dict[tuple[int, bool], float] = {}
        progress = self._worker.progress_once
        spins, last_byte = 0, time.monotonic()
        while True:
            moved = progress()
            if moved or spins == 0:
                now = time.perf_counter()
                unfinished = []
                for item in pending:
                    if not item.request.completed:
                        unfinished.append(item)
                        continue
                    self.raise_if_failed(item)
                    finished[item.peer, item.receive] = now
                pending = unfinished
                if not pending:
                    return finished, now
            if moved:
                spins = 1
                last_byte = time.monotonic()
                continue
            spins += 1
            if spins > SPINS_BEFORE_YIELD:
                self.abort.raise_if_aborted()
                self.raise_if_stalled(pending, last_byte)
                if spins > SPINS_BEFORE_SLEEP:
                    time.sleep(SLEEP_SECONDS)
                else:
                    os.sched_yield()

    def raise_if_failed(self, message: PendingMessage) -> None:
        try:
            message.request.check_error()
        except UCXError as error:
            what = "receive from" if message.receive else "send to"
            raise RunFailed(f"rank {self.rank} failed to {what} rank {message.peer}: {error}") from error

    def raise_if_stalled(self, pending: list[PendingMessage], last_byte_time: float) -> None:
        silent = time.monotonic() - last_byte_time
        if self.abort.is_stalled(silent, self._timeout):
            peers = sorted({item.peer for item in pending})
            ranks = f"{plural_noun(len(peers), 'rank')} {', '.join(map(str, peers))}"
            raise RunFailed(f"rank {self.rank} received nothing from {ranks} for {silent:.0f} s")


def _shared_memory_error(folder: Path) -> str:
    """Return a sentence that says why UCX could not create shared memory in the folder of its posix transport."""
    return shared_memory_problem(folder, 1) or (
        f"UCX cannot create shared memory, but {folder} is writable; see the lines with UCX ERROR in this worker's log,"
        " and check the SysV limits with merge-bench doctor"
    )


_TITLE = re.compile(
    r"\|.*\| tagged message by ucp_tag_send\*(?P<kind>\([^)]*\))? from (?P<memory>\S+)(?: memory)?\s*\|"
)
_ROW = re.compile(r"\|\s*(?P<first>\w+)(?:\.\.(?P<last>\w+))?\s*\|\s*(?P<protocol>.*?)\s*\|\s*(?P<transports>.*?)\s*\|")
_LANE = re.compile(r"\blane\[\d+\]:\s+\d+:(?P<transport>\S+/\S+)\.\d+ ")
_OLD = re.compile(r"^#\s+tag_send: (?P<steps>0\.\..*)$", re.MULTILINE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_OLD_NAMES = {"egr": "eager", "rndv": "rendezvous", "bcopy": "copy-in copy-out", "zcopy": "zero-copy"}


def describe_endpoint(endpoint_handle: int) -> str:
    """Return the text that `ucp_ep_print_info` prints for an endpoint.

    `endpoint_handle`: the `ucp_ep_h` as an integer. It reads existing tables, takes microseconds and changes nothing,
    so it is called on the endpoints that are measured. (`UCX_PROTO_INFO` would have to be set before UCX starts, and
    writes to the log of every endpoint.) A memory type is listed once something was sent from it.
    """
    libc, show = ctypes.CDLL(None), open_loaded_library("libucp").ucp_ep_print_info
    libc.fdopen.restype, libc.fclose.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    show.argtypes, show.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    with open(os.memfd_create("ucp_ep_print_info"), encoding="utf-8", errors="replace") as file:
        stream = libc.fdopen(os.dup(file.fileno()), b"w")
        show(endpoint_handle, stream)
        libc.fclose(stream)  # only now the text is complete
        file.seek(0)
        return file.read()


def parse_size_ranges(text: str) -> list[SizeRange]:
    """Return the protocol of each range of message sizes, from the text of `describe_endpoint`.

    It is read from the tables of plain tag sends (UCX ≥ 1.12 with protocols v2), or the thresholds that older ones
    print.
    """
    ranges: list[SizeRange] = []
    memory: str | None = None
    for line in text.splitlines():
        title = _TITLE.search(line)
        if title:
            # The other kinds of sends (fast-completion, multi) are hints of the sender that the data plane never gives.
            memory = None if title["kind"] else title["memory"]
            continue
        row = _ROW.search(line)
        if row is None:
            if "+--" not in line:  # a table is over
                memory = None
            continue
        if memory is not None:
            first, protocol = _parse_size(row["first"]) or 0, row["protocol"]
            ranges.append(
                SizeRange(
                    memory=memory,
                    first_bytes=first,
                    last_bytes=_parse_size(row["last"]) if row["last"] else first,
                    protocol=protocol.removeprefix("(?)").strip(),
                    transports=row["transports"],
                    estimated=protocol.startswith("(?)"),
                )
            )
    return ranges or list(_parse_protocol_v1_ranges(text))


def parse_lanes(text: str) -> list[str]:
    """Return the lanes that UCX selected for an endpoint, as ``transport/device``, in UCX's order, without repeats."""
    return list(dict.fromkeys(match["transport"] for match in _LANE.finditer(text)))


def _parse_size(text: str) -> int | None:
    """Return the bytes of a size as UCX prints it (``8191``, ``8K``); None for ``inf``."""
    size = re.fullmatch(r"(\d+)([KMGT]?)", text)
    return int(size[1]) * _UNITS[size[2]] if size else None


def _parse_protocol_v1_ranges(text: str) -> Iterator[SizeRange]:
    """Yield the size ranges of UCX's protocols v1.

    They are printed as ``tag_send: 0..<egr/short>..93..<egr/bcopy>..8192..<rndv>..(inf)``.
    """
    line = _OLD.search(text)
    parts = line["steps"].split("..") if line else []
    for at in range(1, len(parts) - 1, 2):
        last = _parse_size(parts[at + 1])
        names = parts[at].strip("<>").split("/")
        yield SizeRange(
            memory="host",
            first_bytes=_parse_size(parts[at - 1]) or 0,
            last_bytes=None if last is None else last - 1,
            protocol=" ".join(_OLD_NAMES.get(name, name) for name in names),
            transports="",
            estimated=names[0] == "rndv",
        )


class _ContextAttributes(ctypes.Structure):
    """`ucp_context_attr_t` of UCX 1.12 and later (public header `ucp/api/ucp.h`), with room for later fields."""

    _fields_ = (
        ("field_mask", ctypes.c_uint64),
        ("request_size", ctypes.c_size_t),
        ("thread_mode", ctypes.c_int),
        ("memory_types", ctypes.c_uint64),
        ("rest", ctypes.c_uint8 * 256),
    )


def detects_cuda_memory(context_handle: int) -> bool:
    """Whether UCX recognizes GPU memory in this context (a `ucp_context_h` as an integer).

    UCXX's `cuda_support` only reads `UCX_TLS`.
    """
    attributes = _ContextAttributes(field_mask=_FIELD_MEMORY_TYPES)
    query = open_loaded_library("libucp").ucp_context_query
    query.restype = ctypes.c_int8
    status = query(ctypes.c_void_p(context_handle), ctypes.byref(attributes))
    if status != _OK:
        raise RunFailed(f"UCX did not say which kinds of memory it can send (ucp_context_query gave {status})")
    return bool(attributes.memory_types & _CUDA)


def explain_missing_cuda_memory(version: str) -> str:
    """Return a sentence that says why UCX of this version cannot send GPU memory in this process, and what to do."""
    library = loaded_library_path("libucp") or Path("libucp.so")
    reason, remedy = "it finds no GPU", "run merge-bench doctor on this host"
    if not has_cuda_module(library):
        reason, remedy = "it was built without CUDA", CUDA_REMEDY
    elif (problem := cuda_module_problem(library)) is not None:
        reason = f"its CUDA module cannot be loaded ({problem})"
        remedy = "install what it lacks, such as the GPU's driver"
    elif "UCX_TLS" in os.environ:
        reason, remedy = f"UCX_TLS={os.environ['UCX_TLS']} excludes CUDA", "add cuda to UCX_TLS"
    return f"UCX {version} on {socket.gethostname()} ({library}) cannot send GPU memory: {reason}; {remedy}"


def cancel_receive(request: Any) -> None:
    """Cancel a receive (a `UCXRequest`) that no message has matched; it completes at once.

    A matched receive is not cancelled.
    """
    library = open_loaded_library("libucxx")
    # `Request::cancel` and its override; without them (another compiler or release) nothing is cancelled.
    for name in ("_ZN4ucxx10RequestTag6cancelEv", "_ZN4ucxx7Request6cancelEv"):
        function = getattr(library, name, None)
        if function is not None:
            function.argtypes, function.restype = (ctypes.c_void_p,), None
            function(request.ucxx_ptr)
            return


class PutFlush:
    """A flush of all puts of a UCX worker (`ucp_worker_h`): complete once all puts are complete at their targets."""

    def __init__(self, worker: int) -> None:
        self._library = open_loaded_library("libucp")
        flush = self._library.ucp_worker_flush_nbx
        flush.restype = ctypes.c_uint64
        parameters = (ctypes.c_uint8 * 256)()  # an empty `ucp_request_param_t`
        self._request = flush(ctypes.c_void_p(worker), ctypes.byref(parameters))

    def is_flush_complete(self) -> bool:
        """Whether the flush is complete, or has failed; UCX has to progress between two calls."""
        if self._request and self._request < _FIRST_ERROR:
            check = self._library.ucp_request_check_status
            check.restype = ctypes.c_int8
            if check(ctypes.c_void_p(self._request)) == _IN_PROGRESS:
                return False
            self._library.ucp_request_free(ctypes.c_void_p(self._request))
        self._request = 0
        return True
