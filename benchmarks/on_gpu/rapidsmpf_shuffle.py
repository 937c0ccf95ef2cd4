"""RAPIDS' shuffle alone: processes on one GPU hash-partition and pack a table, shuffle it, and put it together again.

    python -m benchmarks.on_gpu.rapidsmpf_shuffle --rows 1e6,25e6 --output FILE

A table has two int64 columns, key and payload, of random rows. Every process writes a JSON line to FILE when it begins
a phase and when a round has ended; the parent prints these lines and, at the end, one line of medians for each size:

- ``partition_seconds``: ``partition_and_pack``, until the stream is drained
- ``shuffle_seconds``: from making the ``Shuffler`` until ``wait`` returns
- ``unpack_seconds``: ``extract`` and ``unpack_and_concat``, until the stream is drained
- ``gigabytes_per_second``: bytes that a process sent to others, by rapidsmpf's statistics, in a shuffle's seconds

The seconds of a round are those of the slowest process. The last round's rows are checked: their number, the sum of
their keys over all processes, and each payload against its key. Imports neither merge_bench nor any of its libraries
but rapidsmpf, cudf_streaming, pylibcudf, rmm, ucxx, pyarrow and NumPy. Status 0: all rows right; 1: it failed or took
too long.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SECONDS = 60.0
ROW_BYTES = 16
SENT, RECEIVED = "shuffle-payload-send", "shuffle-payload-recv"
DEFAULTS = {
    "UCX_POSIX_ERROR_HANDLING": "y",
    "UCX_SYSV_ERROR_HANDLING": "y",
    "UCX_HANDLE_ERRORS": "bt",
    "UCX_WARN_UNUSED_ENV_VARS": "n",
}
"""Variables of UCX for the processes, where the environment does not set them."""


class Log:
    """Appends JSON lines of one process to a file, each at once."""

    def __init__(self, path: str, rank: int | None) -> None:
        self._path, self._rank = path, rank
        self._began = time.perf_counter()

    def write(self, what: str, **fields: Any) -> None:
        """Write one line: what happened, after how many seconds of this process, and further fields."""
        line = {
            "what": what,
            "rank": self._rank,
            "after_seconds": round(time.perf_counter() - self._began, 4),
            **fields,
        }
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class Rank:
    """One process: its communicator, memory, and table."""

    def __init__(self, rank: int, arguments: argparse.Namespace, log: Log) -> None:
        self.rank, self.ranks, self.log = rank, arguments.processes, log
        log.write("importing")
        import cudf_streaming.partition_utils as packing
        import pylibcudf
        import rapidsmpf
        import rmm
        from rapidsmpf.shuffler import Shuffler
        from rmm.pylibrmm.stream import CudaStreamFlags, Stream

        self.plc, self.packing, self.shuffler = pylibcudf, packing, Shuffler
        log.write("imported", rapidsmpf=rapidsmpf.__version__)
        pool = rmm.mr.PoolMemoryResource(
            rmm.mr.CudaMemoryResource(), initial_pool_size=arguments.pool, maximum_pool_size=arguments.pool
        )
        rmm.mr.set_current_device_resource(pool)
        self.pool = pool
        self.stream = Stream(flags=CudaStreamFlags.NON_BLOCKING)
        log.write("allocated the pool", bytes=arguments.pool)

    def connect(self, links: Sequence[Connection], progress: str | None) -> None:
        """Make the communicator: the root sends its address through `links`, the others receive it from theirs."""
        from rapidsmpf.communicator.ucxx import barrier, get_root_ucxx_address, new_communicator
        from rapidsmpf.config import Options, get_environment_variables
        from rapidsmpf.memory.buffer_resource import BufferResource
        from rapidsmpf.progress_thread import ProgressThread
        from rapidsmpf.statistics import Statistics
        from ucxx._lib.libucxx import UCXAddress

        options = Options(get_environment_variables())
        if progress is not None:
            options.insert_if_absent({"ucxx_progress_mode": progress})
        self.statistics, self.barrier = Statistics(enable=True), barrier
        thread = ProgressThread(self.statistics)
        if self.rank == 0:
            self.comm = new_communicator(self.ranks, None, None, options, thread)
            address = get_root_ucxx_address(self.comm)
            for link in links:
                link.send_bytes(address)
        else:
            root = UCXAddress.create_from_buffer(links[0].recv_bytes())
            self.comm = new_communicator(self.ranks, None, root, options, thread)
        self.log.write("made the communicator", text=self.comm.get_str(), options=options.get_strings())
        barrier(self.comm)
        self.log.write("passed the first barrier")
        self.buffers = BufferResource(self.pool, periodic_spill_check=None, statistics=self.statistics)
        self.log.write("made the buffer resource")

    def measure(self, rows: int, rounds: int) -> None:
        """Shuffle a table of `rows` rows so many times, after one round of warm-up, and check the last one."""
        import numpy as np
        import pyarrow as pa

        keys = np.random.default_rng(self.rank).integers(0, 2**62, rows, np.int64)
        host = pa.table({"key": keys, "payload": keys ^ 1})
        table = self.plc.Table.from_arrow(host, stream=self.stream)
        self.stream.synchronize()
        self.log.write("made the table", rows=rows)
        received = None
        for number in range(rounds + 1):
            received = None  # frees the last result before the round
            received = self._shuffle(table, rows, number, warmup=number == 0)
        assert received is not None
        found = received.to_arrow(["key", "payload"], stream=self.stream)
        got, payload = (column.to_numpy() for column in found.columns)
        self.log.write(
            "checked",
            rows=rows,
            received=int(received.num_rows()),
            payloads_right=bool(np.array_equal(got ^ 1, payload)),
            keys_sum=int(keys.view(np.uint64).sum()),
            received_sum=int(got.view(np.uint64).sum()),
        )

    def _shuffle(self, table: Any, rows: int, number: int, *, warmup: bool) -> Any:
        before = self._bytes()
        self.barrier(self.comm)
        start = time.perf_counter()
        packed = self.packing.partition_and_pack(table, (0,), self.ranks, self.stream, self.buffers)
        self.stream.synchronize()
        partitioned = time.perf_counter()
        shuffler = self.shuffler(self.comm, number, self.ranks, self.buffers)
        shuffler.insert_chunks(packed)
        shuffler.insert_finished()
        shuffler.wait()
        shuffled = time.perf_counter()
        pieces = [piece for part in shuffler.local_partitions() for piece in shuffler.extract(part)]
        received = self.packing.unpack_and_concat(pieces, self.stream, self.buffers)
        self.stream.synchronize()
        unpacked = time.perf_counter()
        del packed, pieces
        shuffler.shutdown()
        self.log.write(
            "round",
            rows=rows,
            number=number,
            warmup=warmup,
            partition_seconds=partitioned - start,
            shuffle_seconds=shuffled - partitioned,
            unpack_seconds=unpacked - shuffled,
            sent_bytes=self._bytes()[0] - before[0],
            received_bytes=self._bytes()[1] - before[1],
            received_rows=int(received.num_rows()),
        )
        return received

    def _bytes(self) -> tuple[int, int]:
        found = self.statistics.to_dict()
        sent, received = (int(found.get(name, {}).get("value", 0)) for name in (SENT, RECEIVED))
        return sent, received

    def finish(self) -> None:
        """Write rapidsmpf's statistics, and wait for the other processes."""
        self.log.write("statistics", statistics=self.statistics.to_dict())
        self.barrier(self.comm)
        time.sleep(0.2)  # until the other processes have what this one sent in the barrier
        self.log.write("done")


def run_rank(rank: int, arguments: argparse.Namespace, links: Sequence[Connection]) -> None:
    """The program of one process; it ends the process without waiting for threads of libraries."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(arguments.seconds - 2.0, 1.0))
    log, status = Log(arguments.output, rank), 1
    try:
        log.write("started", process=os.getpid())
        process = Rank(rank, arguments, log)
        process.connect(links, arguments.progress)
        for rows in arguments.rows:
            process.measure(rows, arguments.rounds)
        process.finish()
        status = 0
    except BaseException as error:
        log.write("failed", error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())
    sys.stdout.flush()
    os._exit(status)


def summarise(lines: Sequence[dict[str, Any]], ranks: int) -> list[dict[str, Any]]:
    """For each size one line: medians over the rounds, and whether all rows are right."""
    summary = []
    for rows in dict.fromkeys(line["rows"] for line in lines if line["what"] == "round"):
        rounds: dict[int, list[dict[str, Any]]] = {}
        for line in lines:
            if line["what"] == "round" and line["rows"] == rows and not line["warmup"]:
                rounds.setdefault(line["number"], []).append(line)
        whole = [each for each in rounds.values() if len(each) == ranks]
        checks = [line for line in lines if line["what"] == "checked" and line["rows"] == rows]
        found: dict[str, Any] = {"what": "summary", "rows": rows, "processes": ranks, "rounds": len(whole)}
        names = ("partition_seconds", "shuffle_seconds", "unpack_seconds")
        if whole:
            found |= {name: statistics.median(max(one[name] for one in each) for each in whole) for name in names}
            sent = statistics.median(max(one["sent_bytes"] for one in each) for each in whole)
            total = [max(sum(one[name] for name in names) for one in each) for each in whole]
            found |= {
                "seconds": statistics.median(total),
                "sent_bytes": sent,
                "gigabytes_per_second": sent / found["shuffle_seconds"] / 1e9,
                "rows_per_second": rows * ranks / statistics.median(total),
            }
        found["right"] = len(checks) == ranks and (
            all(each["payloads_right"] for each in checks)
            and sum(each["received"] for each in checks) == rows * ranks
            and (sum(each["keys_sum"] for each in checks) - sum(each["received_sum"] for each in checks)) % 2**64 == 0
        )
        summary.append(found)
    return summary


def read_lines(path: str) -> list[dict[str, Any]]:
    """The whole lines of a file of JSON lines."""
    lines = []
    for text in Path(path).read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):
            lines.append(json.loads(text))
    return lines


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1e6,25e6", help="rows of a process's table, several by commas")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds of each size, after one of warm-up")
    parser.add_argument("--pool", type=float, default=8e9, help="bytes of each process's RMM pool")
    modes = ("thread-blocking", "thread-polling", "polling")
    parser.add_argument("--progress", choices=modes, help="rapidsmpf's ucxx_progress_mode; its default is the first")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="after which the processes are killed")
    parser.add_argument("--output", default="rapidsmpf-shuffle.jsonl", help="file of JSON lines; written anew")
    arguments = parser.parse_args(words)
    arguments.rows = [int(float(each)) for each in arguments.rows.split(",")]
    arguments.pool = int(arguments.pool) // 256 * 256
    return arguments


def main(words: Sequence[str] | None = None) -> int:
    """Run the processes, print their lines and the summary; returns the exit status."""
    arguments = parse(words)
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    Path(arguments.output).write_text("", encoding="utf-8")
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(1, arguments.processes)]
    links = [[sender for _, sender in pipes], *([receiver] for receiver, _ in pipes)]
    processes = [context.Process(target=run_rank, args=(rank, arguments, links[rank])) for rank in range(len(links))]
    deadline = time.monotonic() + arguments.seconds
    for process in processes:
        process.start()
    try:
        while any(process.exitcode is None for process in processes) and time.monotonic() < deadline:
            if any(process.exitcode for process in processes):
                deadline = min(deadline, time.monotonic() + 2.0)  # the others would wait for it for ever
            time.sleep(0.05)
    finally:
        for process in processes:
            if process.exitcode is None:
                process.kill()
            process.join()
    ends = [process.exitcode for process in processes]
    lines = read_lines(arguments.output)
    log = Log(arguments.output, None)
    for line in summarise(lines, arguments.processes):
        log.write(**line)
    log.write("ended", exit_statuses=ends)
    for line in read_lines(arguments.output):
        print(json.dumps(line), flush=True)
    return 0 if not any(ends) and all(line["right"] for line in summarise(lines, arguments.processes)) else 1


if __name__ == "__main__":
    sys.exit(main())
