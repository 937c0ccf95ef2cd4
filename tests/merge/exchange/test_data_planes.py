"""The registry of data planes: what each can do, what is asked of that, and one file more that is a data plane."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from merge_bench.campaign import add_registry_values
from merge_bench.config.options import BY_KEY
from merge_bench.errors import UsageError
from merge_bench.merge import exchange
from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.exchange import (
    UNKNOWN,
    DataPlane,
    data_planes,
    find_data_plane,
    find_recorded_plane,
    format_plane_names,
    import_exchange_class,
)
from merge_bench.merge.exchange.base import Exchange
from tests.helpers.members import add_member
from tests.helpers.plans import prepared
from tests.helpers.runs import ROOT, run

SOCKETS = '''"""A data plane that nothing else in the package knows of: TCP sockets of Python."""

from __future__ import annotations

import socket
import threading
import time

import numpy as np

from merge_bench.merge.exchange import DataPlane
from merge_bench.merge.exchange.base import Exchange
from merge_bench.merge.exchange.base import FrameTransfer
from merge_bench.merge.partition import contiguous_buffers

PLANE = DataPlane(
    name="sockets", help="with Python's sockets", place=9, attribute="SocketExchange", runtime_filter=True,
    timeline=True, link_limit=True,
)


class SocketExchange(Exchange):
    """One connection for each pair, on loopback."""

    title = "sockets"

    def __init__(self, rank, workers, abort, timeout):
        super().__init__(rank, workers, abort=abort)
        self._listener, self._sockets = socket.create_server(("127.0.0.1", 0)), {}
        self._listener.settimeout(timeout)

    @classmethod
    def from_plan(cls, plan, rank, abort):
        return cls(rank, plan.workers, abort, plan.timeout)

    @property
    def address(self):
        return str(self._listener.getsockname()[1]).encode()

    def connect(self, addresses):
        for peer in range(self.rank):
            self._sockets[peer] = socket.create_connection(("127.0.0.1", int(addresses[peer])))
            self._sockets[peer].sendall(bytes([self.rank]))
        while len(self._sockets) < self.workers - 1:
            connection, _ = self._listener.accept()
            self._sockets[connection.recv(1)[0]] = connection
        self.barrier()

    def transfer(self, sends, receives, *, note_batches=False):
        flight, began = FrameTransfer(), time.perf_counter()
        threads = [threading.Thread(target=self._send, args=(peer, buffer)) for peer, buffer in sends.items()]
        for thread in threads:
            thread.start()
        for peer, buffer in receives.items():
            for run in contiguous_buffers(buffer):
                room = memoryview(run).cast("B") if run.nbytes else b""
                while room:
                    room = room[self._sockets[peer].recv_into(room):]
            flight.arrived[peer] = (buffer.nbytes, time.perf_counter() - began)
        for thread in threads:
            thread.join()
        flight.sent_bytes = sum(buffer.nbytes for buffer in sends.values())
        flight.seconds = time.perf_counter() - began
        return flight

    def _send(self, peer, buffer):
        for run in contiguous_buffers(buffer):
            if run.nbytes:
                self._sockets[peer].sendall(memoryview(run).cast("B"))

    def close(self):
        for connection in (self._listener, *self._sockets.values()):
            connection.close()
'''


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataPlane:
    """A data plane in a folder of its own, which the registry has beside that of the package."""
    add_member(monkeypatch, exchange, tmp_path, "sockets", SOCKETS)
    return find_data_plane("sockets")


def test_the_data_planes_of_the_package() -> None:
    assert [plane.name for plane in data_planes()] == ["ucx", "dask", "rapidsmpf"]
    assert add_registry_values(BY_KEY["exchange"]).help == (
        "How the frames are exchanged; ucx: with UCX endpoints; dask: with Dask's shuffle; rapidsmpf: with RAPIDS'"
        " shuffle, on GPUs. Several values make a sweep."
    )
    with pytest.raises(UsageError, match="there is no exchange 'mpi'; the exchanges are ucx, dask, rapidsmpf"):
        find_data_plane("mpi")


@pytest.mark.parametrize("plane", data_planes(), ids=lambda plane: plane.name)
def test_what_a_data_plane_declares_is_what_it_has(plane: DataPlane) -> None:
    if plane.attribute is not None:
        member = import_exchange_class(plane.name)
        assert issubclass(member, Exchange)
        assert hasattr(member, "post_message") == plane.pipeline
        assert hasattr(member, "shuffle") == plane.tables
        assert plane == sys.modules[member.__module__].PLANE
    else:
        assert not any((plane.pipeline, plane.runtime_filter, plane.timeline, plane.link_limit, plane.endpoints))
    assert {how for how, _ in plane.joins} <= {how.value for how in JoinKind}
    assert f"\n| `{plane.name}` |" in (ROOT / "docs" / "merging.md").read_text(encoding="utf-8")


def test_a_record_of_another_version_names_a_data_plane_without_capabilities() -> None:
    assert find_recorded_plane("carrier pigeons") == find_recorded_plane(None) == UNKNOWN
    assert not UNKNOWN.link_limit
    assert find_recorded_plane("ucx") is find_data_plane("ucx")


def test_a_file_in_the_folder_is_a_data_plane(sockets: DataPlane) -> None:
    assert format_plane_names(lambda plane: plane.link_limit) == "ucx or sockets"
    assert format_plane_names(lambda plane: plane.pipeline) == "ucx"
    assert not find_data_plane("dask").supports_join("anti")
    assert sockets.supports_join("anti")
    assert add_registry_values(BY_KEY["exchange"]).placeholder == "ucx|dask|rapidsmpf|sockets[,…]"
    assert "; sockets: with Python's sockets." in add_registry_values(BY_KEY["exchange"]).help


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"pipeline": "on"}, "--pipeline on needs --exchange ucx, not sockets"),
        ({"require_transport": ("tcp",)}, "--require-transport needs --exchange ucx"),
        ({"shuffle": ("p2p", "tasks")}, "several values of --shuffle need --exchange dask"),
    ],
)
def test_what_it_does_not_declare_is_refused(sockets: DataPlane, option: dict[str, object], message: str) -> None:
    (planned,) = prepared(exchange=sockets.name, workers=2, how="anti", runtime_filter="on", timeline="on")
    assert planned.plan.data_plane == sockets
    with pytest.raises(UsageError, match=message):
        prepared(exchange=sockets.name, workers=2, **option)


@pytest.mark.cluster
def test_one_file_more_is_all_that_a_run_needs(tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(ROOT / "merge_bench", package / "merge_bench")  # with what is compiled
    (package / "merge_bench" / "merge" / "exchange" / "sockets.py").write_text(SOCKETS)
    path = os.pathsep.join([str(package), str(ROOT)])
    words = ("--exchange", "sockets", "--workers", "3", "--chunk", "2000", "--iterations", "2")
    finished = run(tmp_path, *words, "--runtime-filter", "on", environ={"PYTHONPATH": path}).check_ended(0)
    assert finished.document["verified"]
    assert finished.document["plan"]["exchange"] == "sockets"
    assert finished.document["bandwidth_bytes_per_second"]["harmonic_mean"] > 0
    assert finished.document["link"]["limit_bytes_per_second"] > 0
