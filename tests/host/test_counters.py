"""Counters of a host, read from a made-up /proc and /sys."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from merge_bench.host import gpu, machine
from tests.helpers.fake_nvml import library, unsupported

NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 1000       5    0    0    0     0          0         0 2000      7    0    0    0     0       0          0
eth0:1:99999999999 1 0 0 0 0 0 0 42 1 0 0 0 0 0 0
  short: 1 2 3
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/self/net").mkdir(parents=True)
    (tmp_path / "proc/self/net/dev").write_text(NET_DEV)
    for port, numbers in (("1", ("10", "20")), ("2", ("x", "y"))):
        folder = tmp_path / "sys/class/infiniband/mlx5_0/ports" / port / "counters"
        folder.mkdir(parents=True)
        (folder / "port_xmit_data").write_text(numbers[0] + "\n")
        (folder / "port_rcv_data").write_text(numbers[1] + "\n")
    return tmp_path


def test_interfaces_are_sent_then_received(root: Path) -> None:
    assert machine.read_interface_byte_counters(root) == {"lo": (2000, 1000), "eth0:1": (42, 99999999999)}


def test_infiniband_counts_words_of_four_bytes_and_leaves_out_what_cannot_be_read(root: Path) -> None:
    assert machine.read_infiniband_byte_counters(root) == {"mlx5_0:1": (40, 80)}


def test_a_host_without_counters(tmp_path: Path) -> None:
    assert machine.read_interface_byte_counters(tmp_path) == {}
    assert machine.read_infiniband_byte_counters(tmp_path) == {}


def test_this_host_has_a_loopback_that_counts() -> None:
    import socket

    before = machine.read_device_byte_counters()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        with peer:
            client.sendall(bytes(1 << 20))
            received = 0
            while received < 1 << 20:
                received += len(peer.recv(1 << 16))
    sent, arrived = machine.byte_counter_difference(before, machine.read_device_byte_counters())["lo"]
    assert sent >= 1 << 20
    assert arrived >= 1 << 20


def test_a_device_that_comes_goes_or_starts_over_counts_for_nothing() -> None:
    before = {"lo": (10, 10), "gone": (5, 5), "reset": (100, 100)}
    after = {"lo": (15, 30), "new": (7, 7), "reset": (1, 1)}
    assert machine.byte_counter_difference(before, after) == {"lo": (5, 20), "reset": (0, 0)}


def field_value(status: int, kib: int) -> SimpleNamespace:
    return SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(ullVal=kib))


def test_nvlink_counts_kib_over_all_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def values(handle: int, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:
        assert fields == [(138, 0xFFFFFFFF), (139, 0xFFFFFFFF)]
        return [field_value(0, 3), field_value(0, 5)] if handle == 0 else [field_value(3, 0), field_value(3, 0)]

    module = library(
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX=138,
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX=139,
        nvmlDeviceGetFieldValues=values,
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert gpu.read_nvlink_byte_counters() == {"nvlink 00000000:1B:00.0": (3072, 5120)}
    module.nvmlDeviceGetFieldValues = unsupported
    assert gpu.read_nvlink_byte_counters() == {}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu.read_nvlink_byte_counters() == {}
