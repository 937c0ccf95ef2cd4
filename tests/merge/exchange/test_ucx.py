"""The data plane between real processes over loopback and shared memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merge_bench.errors import RunFailed
from merge_bench.merge.exchange.base import AbortFlag
from merge_bench.merge.partition import ByteRuns
from tests.conftest import QUICK_HOOKS
from tests.merge.exchange.ranks import ABORTED, Ranks, clock, ranks

pytestmark = pytest.mark.cluster

MIB = 1 << 20
SIZES = (0, 1, 7, 8191, 8192, 8193, MIB, 9 * MIB)
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def five() -> Iterator[Ranks]:
    with ranks(5) as made:
        yield made


def content(source: int, target: int, size: int, turn: int) -> np.ndarray:
    """Bytes that differ for every pair, size and turn."""
    words = -(-size // 8)
    start = np.uint64((source * 31 + target) * 1_000_003 + size * 7 + turn)
    return ((np.arange(words, dtype=np.uint64) + start) * np.uint64(0x9E3779B97F4A7C15)).view(np.uint8)[:size]


def exchange_sizes(exchange: Any, sizes: tuple[int, ...]) -> list[str]:
    """Every rank to every other, each size twice; gives what was wrong."""
    wrong = []
    peers = [peer for peer in range(exchange.workers) if peer != exchange.rank]
    for size in sizes:
        for turn in range(2):
            receives = {peer: np.full(size + 1, 0xEE, np.uint8) for peer in peers}
            sends = {peer: content(exchange.rank, peer, size, turn) for peer in peers}
            flight = exchange.transfer(sends, {peer: buffer[:size] for peer, buffer in receives.items()})
            for peer, buffer in receives.items():
                if not np.array_equal(buffer[:size], content(peer, exchange.rank, size, turn)):
                    wrong.append(f"{size} bytes from rank {peer} in turn {turn}")
                if buffer[size] != 0xEE:
                    wrong.append(f"written past the end of {size} bytes from rank {peer}")
            if flight.sent_bytes != size * len(peers):
                wrong.append(f"{flight.sent_bytes} bytes counted as sent, not {size * len(peers)}")
            if {peer: got for peer, (got, _) in flight.arrived.items()} != (
                dict.fromkeys(peers, size) if size else {}
            ) or flight.seconds < 0:
                wrong.append(f"arrivals of {size} bytes: {flight}")
    return wrong


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_every_size_arrives(five: Ranks, workers: int) -> None:
    sizes = SIZES if workers < 5 else SIZES[:-1]
    assert five.everyone(exchange_sizes, workers, sizes) == [[]] * workers


@pytest.mark.parametrize("message_bytes", [1000, 8192, MIB - 1])
def test_cut_into_messages(five: Ranks, message_bytes: int) -> None:
    many = min(2 * MIB, 200 * message_bytes + 1)
    sizes = (0, 1, message_bytes - 1, message_bytes, message_bytes + 1, 3 * message_bytes, many)
    assert five.everyone(exchange_sizes, 3, sizes, message_bytes=message_bytes) == [[]] * 3


def test_with_error_handling(five: Ranks) -> None:
    assert five.everyone(exchange_sizes, 3, SIZES[:-1], error_handling=True, message_bytes=300_000) == [[]] * 3


def exchange_unevenly(exchange: Any) -> list[str]:
    """Each pair has a size of its own, zero among them."""

    def size(source: int, target: int) -> int:
        return (source * 7919 + target * 104_729) % 5 * 40_001

    peers = [peer for peer in range(exchange.workers) if peer != exchange.rank]
    receives = {peer: np.empty(size(peer, exchange.rank), np.uint8) for peer in peers}
    sends = {peer: content(exchange.rank, peer, size(exchange.rank, peer), 0) for peer in peers}
    flight = exchange.transfer(sends, receives)
    wrong = [
        f"rank {peer}"
        for peer, got in receives.items()
        if not np.array_equal(got, content(peer, exchange.rank, got.size, 0))
    ]
    if flight.sent_bytes != sum(buffer.size for buffer in sends.values()):
        wrong.append("count of bytes sent")
    return wrong


def test_sizes_differ_by_pair(five: Ranks) -> None:
    assert five.everyone(exchange_unevenly, 5, message_bytes=16_384) == [[]] * 5


def exchange_runs(exchange: Any, sizes: tuple[int, ...]) -> list[str]:
    """Parcels of several runs, empty ones among them: each run arrives in its own place."""
    peers = [peer for peer in range(exchange.workers) if peer != exchange.rank]
    sends = {
        peer: ByteRuns(tuple(content(exchange.rank, peer, size, at) for at, size in enumerate(sizes))) for peer in peers
    }
    receives = {peer: ByteRuns(tuple(np.empty(size, np.uint8) for size in sizes)) for peer in peers}
    flight = exchange.transfer(sends, receives)
    wrong = [
        f"run {at} of rank {peer}"
        for peer, parcel in receives.items()
        for at, got in enumerate(parcel.runs)
        if not np.array_equal(got, content(peer, exchange.rank, got.size, at))
    ]
    if (flight.sent_bytes, {got for got, _ in flight.arrived.values()}) != (len(peers) * sum(sizes), {sum(sizes)}):
        wrong.append(f"counts of bytes: {flight}")
    return wrong


@pytest.mark.parametrize("message_bytes", [0, 1000])
@pytest.mark.parametrize("sizes", [(3000, 0, 1, 1000, 20_001), (0, 5), (7,)])
def test_a_parcel_of_several_runs(five: Ranks, sizes: tuple[int, ...], message_bytes: int) -> None:
    assert five.everyone(exchange_runs, 3, sizes, message_bytes=message_bytes) == [[]] * 3


def late(exchange: Any, seconds: float) -> list[tuple[float, float]]:
    """One barrier for each rank, which comes late to it: when this rank entered and left each."""
    times = []
    for who in range(exchange.workers):
        if exchange.rank == who:
            time.sleep(seconds)
        entered = clock()
        exchange.barrier()
        times.append((entered, clock()))
    return times


def check_in_step(times: list[list[tuple[float, float]]]) -> None:
    """Every rank left every barrier after all had entered it."""
    for at_once in zip(*times, strict=True):
        assert min(left for _, left in at_once) >= max(entered for entered, _ in at_once)


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_nobody_leaves_a_barrier_before_all_have_come(five: Ranks, workers: int) -> None:
    times = five.everyone(late, workers, 0.05)
    assert [len(each) for each in times] == [workers] * workers
    check_in_step(times)


def barriers(exchange: Any, count: int) -> list[tuple[float, float]]:
    rng = np.random.default_rng(exchange.rank)
    times = []
    for _ in range(count):
        if rng.random() < 0.2:
            time.sleep(rng.random() * 0.005)
        entered = clock()
        exchange.barrier()
        times.append((entered, clock()))
    return times


def test_many_barriers_stay_in_step(five: Ranks) -> None:
    check_in_step(five.everyone(barriers, 5, 60))


def wait_for_nothing(exchange: Any, abort_after: float | None) -> tuple[str, float]:
    """Wait for a message that rank 1 never sends; gives the reason for the end and how long it took to be heard."""
    if exchange.rank == 1:
        return "", 0.0
    abort: AbortFlag = exchange.abort
    aborted_at = [0.0]
    if abort_after is not None:

        def abort_later() -> None:
            aborted_at[0] = clock()
            abort.abort_run("a peer died")

        threading.Timer(abort_after, abort_later).start()
    began = clock()
    try:
        exchange.transfer({}, {1: np.empty(100, np.uint8)})
    except RunFailed as reason:
        return str(reason), clock() - (aborted_at[0] or began)
    return "it ended", 0.0


def test_abort_ends_a_wait(five: Ranks) -> None:
    (reason, seconds), _ = five.everyone(wait_for_nothing, 2, 0.3, timeout=100)
    assert reason == "a peer died"
    assert seconds < 2  # it is looked at thousands of times a second


def test_silence_ends_a_wait_and_names_the_rank(five: Ranks) -> None:
    (reason, seconds), _ = five.everyone(wait_for_nothing, 2, None, timeout=0.5)
    assert re.fullmatch(r"rank 0 received nothing from rank 1 for \d+ s", reason)
    assert seconds >= 0.5


def wait_with_heartbeats(exchange: Any, seconds: float) -> tuple[str, float]:
    """Rank 1 sends late; rank 0 hears a heartbeat all the while."""
    if exchange.rank == 1:
        time.sleep(seconds)
        exchange.transfer({0: np.full(100, 7, np.uint8)}, {})
        return "", 0.0
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.05):
            exchange.abort.note_heartbeat()

    threading.Thread(target=beat, daemon=True).start()
    buffer, began = np.zeros(100, np.uint8), clock()
    try:
        exchange.transfer({}, {1: buffer})
    except RunFailed as reason:
        return str(reason), clock() - began
    finally:
        stop.set()
    return "arrived" if (buffer == 7).all() else "wrong bytes", clock() - began


def test_a_slow_link_is_not_a_dead_one(five: Ranks) -> None:
    """No byte for longer than the timeout, and heartbeats: the wait goes on."""
    (how, seconds), _ = five.everyone(wait_with_heartbeats, 2, 1.6, timeout=0.8)
    assert how == "arrived"
    assert seconds > 0.8


def test_even_heartbeats_do_not_help_forever(five: Ranks) -> None:
    (reason, seconds), _ = five.everyone(wait_with_heartbeats, 2, 2.0, timeout=0.2)
    assert "nothing from rank 1 for" in reason
    assert seconds >= 0.8


def talk_on(exchange: Any) -> str:
    """Exchange until something ends it."""
    other = 1 - exchange.rank
    try:
        while True:
            exchange.transfer({other: np.zeros(MIB, np.uint8)}, {other: np.empty(MIB, np.uint8)})
    except RunFailed as reason:
        return str(reason)


@pytest.mark.parametrize("error_handling", [False, True])
def test_killed_peer(error_handling: bool) -> None:
    """With error handling UCX reports the death.

    Without it the limit does, or shared memory that is gone; or UCX aborts, if it was reading the peer's memory.
    """
    with ranks(2) as pair:
        pair.begin(2, error_handling=error_handling, timeout=60 if error_handling else 1)
        reason = pair.survivor(talk_on, after=0.2)
    assert "rank 1" in reason or (not error_handling and reason == ABORTED)
    assert "failed" in reason or (not error_handling and ("received nothing" in reason or reason == ABORTED)), reason


LANES_CASES = (  # UCX's error handling, and settings
    ("off", {}),
    ("on", {}),
    ("off", {"UCX_TLS": "tcp"}),
    ("on", {"UCX_POSIX_ERROR_HANDLING": "y"}),
)
LANES = """
import ctypes, json, os, sys
from multiprocessing.connection import Client, Listener
import numpy as np
from merge_bench.merge.exchange.base import AbortFlag
from merge_bench.merge.exchange.ucx import UcxExchange
rank, path = int(sys.argv[1]), sys.argv[2]
if rank == 0:
    with Listener(path) as listener:
        print("ready", flush=True)
        pipe = listener.accept()
else:
    pipe = Client(path)
for handling, settings in json.loads(sys.argv[3]):
    os.environ.update(settings)
    exchange = UcxExchange(rank, 2, abort=AbortFlag(), error_handling=handling == "on", timeout=60)
    for name in settings:
        del os.environ[name]
    pipe.send(exchange.address)
    addresses = [exchange.address, exchange.address]
    addresses[1 - rank] = pipe.recv()
    exchange.connect(addresses)
    exchange.transfer({1 - rank: np.zeros(1 << 20, np.uint8)}, {1 - rank: np.empty(1 << 20, np.uint8)})
    exchange.barrier()
    ctypes.CDLL(None).fflush(None)  # what UCX logged
    print("lanes " + json.dumps(exchange.describe_endpoints()[1 - rank][0]), flush=True)
    pipe.send("done")
    pipe.recv()
    exchange.close()
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What both ranks print and UCX logs in each of `LANES_CASES`. The level of its log is read when UCX is loaded."""
    folder = tmp_path_factory.mktemp("lanes")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UCX")}
    environment |= {"UCX_NET_DEVICES": "lo", "UCX_LOG_LEVEL": "info", "PYTHONPATH": str(ROOT)}
    environment |= dict([QUICK_HOOKS])
    processes: list[subprocess.Popen[bytes]] = []
    outputs = [folder / f"{rank}.out" for rank in range(2)]
    try:
        for rank in range(2):
            argv = [sys.executable, "-P", "-c", LANES, str(rank), str(folder / "meet"), json.dumps(LANES_CASES)]
            with outputs[rank].open("w") as output:
                processes.append(subprocess.Popen(argv, env=environment, stdout=output, stderr=output))
            deadline = time.monotonic() + 120
            while rank == 0 and "ready" not in outputs[0].read_text():
                assert time.monotonic() < deadline
                assert processes[0].poll() is None, outputs[0].read_text()
                time.sleep(0.05)
        for process in processes:
            process.wait(timeout=120)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    texts = [output.read_text() for output in outputs]
    cut = [re.findall(r"(.*?^lanes .*?$)", text, re.MULTILINE | re.DOTALL) for text in texts]
    assert [len(each) for each in cut] == [len(LANES_CASES)] * 2, texts
    return cut


@pytest.mark.parametrize("case", range(len(LANES_CASES)), ids=[f"{on} {settings}" for on, settings in LANES_CASES])
def test_lanes_are_those_that_ucx_logs(logs: list[list[str]], case: int) -> None:
    handling, settings = LANES_CASES[case]
    for text in (of_rank[case] for of_rank in logs):
        ours = json.loads(text.rpartition("\nlanes ")[2])
        logged = logged_lanes(text)
        assert logged, text
        assert set(ours) == set(logged), text
        assert ours
        if settings.get("UCX_TLS") == "tcp":
            assert ours == ["tcp/lo"]
        elif handling == "on" and not settings:
            assert not any(lane.startswith(("sysv", "posix", "cma")) for lane in ours)
        else:
            assert any(lane.startswith(("sysv", "posix")) for lane in ours)


def logged_lanes(text: str) -> list[str]:
    """The lanes of the last configuration that UCX logged: ``cfg#1 tag(sysv/memory cma/memory)``."""
    found = re.findall(r"(?:cfg#\d+|ep_cfg\[\d+\]:?)\s+(.*)$", text, re.MULTILINE)
    return re.findall(r"[a-z0-9_]+/[A-Za-z0-9_.:]+", found[-1]) if found else []


WITHOUT_A_SEGMENT = """
from merge_bench.errors import RunFailed
from merge_bench.merge.exchange.base import AbortFlag
from merge_bench.merge.exchange.ucx import UcxExchange
try:
    UcxExchange(0, 1, abort=AbortFlag())
except RunFailed as failed:
    print(failed)
"""


def test_a_read_only_dev_shm_is_named_with_a_remedy() -> None:
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro tmpfs /dev/shm && exec "$@"', "sh"]
    try:
        subprocess.run([*mount, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a mount namespace (root)")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UCX")}
    environment |= {"PYTHONPATH": str(ROOT), **dict([QUICK_HOOKS])}
    program = [*mount, sys.executable, "-P", "-c", WITHOUT_A_SEGMENT]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120, check=True)
    sentence = done.stdout.splitlines()[-1]
    assert sentence.startswith("UCX cannot create shared memory in /dev/shm (Read-only file system)")
    assert "remount,rw" in sentence
