"""NCCL between GPUs, with fakes of GPUs and nccl4py that fail where the real ones do; nothing here ran on a GPU."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.engines.gpu_memory import DeviceBytes
from merge_bench.merge.exchange.base import Abort
from merge_bench.probe.all_to_all import AllToAllOverNccl, Pattern
from merge_bench.probe.ranks import exchanging
from merge_bench.probe.ranks.exchanging import NcclRank
from merge_bench.probe.shared.exchange_matrix import equal_matrix
from merge_bench.records.schema import LaunchLine, ProbeLine
from tests.cluster.test_gpu_workers import PRETENCE, WITHOUT_DRIVER
from tests.helpers import fake_device, fake_nccl, fake_rapids
from tests.helpers.fake_nccl import NCCLError, NcclInvalid
from tests.helpers.runs import start

VERB = ("probe", "all-to-all")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NcclRank:
    """The one rank of a communicator."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, module in fake_rapids.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    fake_device.forget()
    gpu_memory.own_stream.cache_clear()
    gpu_memory.bind_context()
    monkeypatch.setattr(fake_nccl, "SECONDS", 0.2)
    return NcclRank(1, exchanging.new_communicator_id(), 0, Abort())


def buffers(*contents: bytes) -> list[DeviceBytes]:
    made = gpu_memory.allocate([len(each) for each in contents])
    for each, room in zip(contents, made, strict=True):
        gpu_memory.upload(np.frombuffer(each, np.uint8), room)
    return made


def content(message: DeviceBytes) -> bytes:
    found = np.empty(message.size, np.uint8)
    gpu_memory.download(message, found)
    return found.tobytes()


def test_device_memory_is_written_and_read(alone: NcclRank) -> None:
    (message,) = buffers(b"some bytes")
    assert fake_device.at(message.ptr, 10).tobytes() == b"some bytes"  # also for those who wait for no stream
    assert content(message) == b"some bytes"
    assert content(message[5:]) == b"bytes"


def test_what_arrived_is_there_when_the_transfer_ends(alone: NcclRank) -> None:
    source, target = buffers(b"abcd", b"----")
    alone.barrier()
    assert alone.transfer({0: source}, {0: target}).seconds > 0
    assert fake_device.is_drained()
    assert content(target) == b"abcd"


def test_messages_of_one_size_include_the_own_one_and_follow_each_other(alone: NcclRank) -> None:
    held = exchanging.HeldMessages([equal_matrix(1000, 1)], 0, alone, exchanging.DeviceMemory(), own=True)
    held.overwrite_received()
    assert held.count_wrong_bytes() == 1000
    held.exchange_seconds()
    assert held.count_wrong_bytes() == 0
    rooms = exchanging.DeviceMemory().allocate_messages([10, 7, 3])
    assert [each.ptr - rooms[0].ptr for each in rooms] == [0, 10, 17]


def test_an_aborted_run_ends_with_its_reason(alone: NcclRank) -> None:
    alone._abort.set("the run is ending")
    end = time.monotonic() + 5
    while alone._communicator._folder is not None and time.monotonic() < end:  # what the GPU waits for is aborted
        time.sleep(0.01)
    with pytest.raises(RunFailed, match=r"^the run is ending$"):
        alone.barrier()


def test_a_failed_communicator_is_one_sentence(alone: NcclRank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_nccl.Communicator, "get_async_error", lambda self: 6)
    monkeypatch.setattr(fake_nccl.Communicator, "get_last_error", lambda self: "a link is down")
    monkeypatch.setattr(fake_nccl.Communicator, "abort", lambda self: None)
    with pytest.raises(RunFailed, match="NCCL failed with status 6: a link is down"):
        alone.barrier()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda c, one, two: c.send(np.zeros(4, np.uint8), 0), NcclInvalid),
        (lambda c, one, two: c.send(bytearray(4), 0), BufferError),
        (lambda c, one, two: c.send(typed("<i2"), 0), NcclInvalid),
        (lambda c, one, two: c.send(one, 1), NCCLError),
        (lambda c, one, two: c.recv(two, 0), NCCLError),  # nobody sends
        (lambda c, one, two: c.alltoall(two, one), NcclInvalid),
        (lambda c, one, two: c.allreduce(one, two, 1), NcclInvalid),
        (lambda c, one, two: (c.send(one, 0), c.recv(two, 0)), NCCLError),  # sizes differ
        (lambda c, one, two: fake_nccl.group_end(), NCCLError),
        (lambda c, one, two: (c.abort(), c.send(one, 0)), NcclInvalid),
        (lambda c, one, two: c.init(1, 0, b"x" * 128), NcclInvalid),
        (lambda c, one, two: c.init(1, 0, fake_nccl.UniqueId()), NCCLError),
        (lambda c, one, two: fake_nccl.UniqueId.from_bytes(b"short"), ValueError),
        (lambda c, one, two: c.init(2, 0, fake_nccl.get_unique_id()), NCCLError),  # the other rank never comes
    ],
)
def test_the_fake_refuses_what_the_real_one_refuses(alone: NcclRank, wrong: Any, error: type[Exception]) -> None:
    one, two = buffers(b"abcd", b"abcdefgh")
    with pytest.raises(error):
        wrong(alone._communicator, one, two)


def test_the_fake_holds_messages_back_until_the_group_ends(alone: NcclRank) -> None:
    source, target = buffers(b"abcd", b"----")
    fake_nccl.group_start()
    alone._communicator.send(source, 0, stream=alone._stream)
    alone._communicator.recv(target, 0, stream=alone._stream)
    with pytest.raises(NCCLError, match="group was not ended"):
        alone._communicator.destroy()
    assert content(target) == b"----"
    fake_nccl.group_end()
    assert content(target) == b"abcd"


def typed(typestr: str) -> Any:
    return SimpleNamespace(__cuda_array_interface__={"data": (0, False), "shape": (2,), "typestr": typestr})


def test_ranks_that_share_a_gpu_are_refused() -> None:
    pattern = Pattern(sizes=(8,), chunks=(), iterations=None, limit=None)
    with pytest.raises(UsageError, match="needs a GPU for each rank; use --workers-per-gpu 1"):
        AllToAllOverNccl(pattern).prepare(SimpleNamespace(settings=SimpleNamespace(workers_per_gpu=2)))  # type: ignore[arg-type]


def test_without_nccl4py_and_without_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nccl", None)
    with pytest.raises(UsageError, match=r"--backend nccl needs the package nccl4py, .*; run: \S+ --setup-only"):
        exchanging.nccl_version()
    for name, module in fake_nccl.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    assert exchanging.nccl_version() == "NCCL 2.32.3+cuda13.4 through nccl4py 0.6.0"
    absent = SimpleNamespace(libnccl=None, nccl4py="0.6.0")
    monkeypatch.setattr(sys.modules["nccl.core"], "get_version", lambda: absent)
    with pytest.raises(UsageError, match=r"NCCL's library libnccl\.so\.2, .*pip install nvidia-nccl-cu13"):
        exchanging.nccl_version()


@pytest.mark.cluster
def test_both_backends_send_device_memory_between_pretended_gpus(tmp_path: Path) -> None:
    pytest.importorskip("dask_cuda")
    sizes = ("--sizes", "8,1000", "--chunk", "5000", "--iterations", "3")
    words = ("--backend", "ucx,nccl", *sizes, "--repetitions", "1", "--workers", "2")
    running = start(tmp_path, *words, verb=VERB, environ={"PYTHONPATH": PRETENCE, **WITHOUT_DRIVER})
    try:
        found = running.finish().check_ended(0)
    finally:
        running.end()
    rows = {(row.test, row.size): row for row in found.of(ProbeLine)}
    sizes = {size for test, size in rows if test == "nccl_alltoall"}
    assert sizes == {8, 1000}
    assert {size for test, size in rows if test == "nccl_alltoallv"} == {
        size for test, size in rows if test == "ucx_alltoallv"
    }
    assert len(rows) == 6
    for (test, size), row in rows.items():
        assert (row.wrong, row.iterations, row.memory, row.ranks) == (0, 3, "cuda", [0, 1])
        if test == "nccl_alltoall":  # nccl-tests: S / t (n - 1) / n, S with the own part
            assert row.bus_bandwidth_bytes_per_second == pytest.approx(2 * size / row.seconds / 2)
            assert row.method == "NCCL 2.32.3+cuda13.4 through nccl4py 0.6.0, ncclAlltoAll"
    assert len(found.of(LaunchLine)) == 2


SABOTAGE = """
import sys, importlib.util
spec = importlib.util.spec_from_file_location("pretence", {pretence!r})
spec.loader.exec_module(importlib.util.module_from_spec(spec))
if any("spawn_main" in word for word in sys.orig_argv):  # the nannies' workers
    from tests.helpers import fake_nccl
    honest = fake_nccl.Communicator.put
    def put(self, content, peer):
        if content.size > 1 and self._rank == 1:
            content[5] ^= 1
        honest(self, content, peer)
    fake_nccl.Communicator.put = put
"""


@pytest.mark.soak  # wrong bytes are counted above, and what they lead to is in test_all_to_all_runs.py
@pytest.mark.cluster
def test_a_wrong_byte_ends_the_campaign_with_status_4(tmp_path: Path) -> None:
    pytest.importorskip("dask_cuda")
    site, root = PRETENCE.split(":")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SABOTAGE.format(pretence=f"{site}/sitecustomize.py"))
    words = ("--backend", "nccl", "--sizes", "64,128", "--iterations", "2", "--repetitions", "1", "--workers", "2")
    environ = {"PYTHONPATH": f"{tmp_path / 'site'}:{root}", **WITHOUT_DRIVER}
    running = start(tmp_path / "run", *words, verb=VERB, environ=environ)
    try:
        found = running.finish().check_ended(4)
    finally:
        running.end()
    assert [(row.size, row.wrong) for row in found.of(ProbeLine)] == [(64, 2)]  # also what the rank sends to itself
    assert "all-to-all over nccl: 2 bytes that arrived are wrong" in found.errors
