"""Dask's P2P shuffle of a frame, without a merge: the bytes of both frames of a merge, through memory.

    python -m benchmarks.peer.dask_shuffle --workers 2 --chunk 1e6 --iterations 5
    … --addresses node1,node2 --ssh-config FILE --host ADDRESS        one worker on each host, started by ssh

Prints one JSON object: `seconds` of each timed iteration and `bytes` that a worker receives from others in one. Rows
are those of both frames of a synthetic merge, of a key and a payload of 8 bytes each; after the last iteration every
row has to be there once, on the worker that owns its partition (exit status 4 if not).
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import dask
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

from benchmarks import command
from benchmarks.peer.dask_merge import wait_until_held
from merge_bench.errors import RunFailed, WrongResult
from merge_bench.merge.exchange.dask import NO_DISK

ROW_BYTES = 16
START_SECONDS = 60.0
END_SECONDS = 10.0


def make_part(rank: int, rows: int, workers: int, seed: int) -> pd.DataFrame:
    """The rows of one worker: keys are drawn from those of all workers, so that (W - 1) ÷ W of the rows leave it."""
    keys = np.random.default_rng((seed, rank)).integers(0, rows * workers, rows)
    return pd.DataFrame({"key": keys, "payload": np.arange(rows) + rank * rows})


def describe(part: pd.DataFrame) -> tuple[int, int, int, int]:
    """Rows, sum of keys and of payloads of a part, and how many of its keys it has; runs on a worker."""
    return len(part), int(part["key"].sum()), int(part["payload"].sum()), int(part["key"].nunique())


@contextlib.contextmanager
def local_cluster(workers: int) -> Iterator[Client]:
    """A cluster of this host, one thread a worker."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextlib.contextmanager
def cluster_of_hosts(addresses: list[str], ssh_config: str, host: str) -> Iterator[Client]:
    """A scheduler here and one worker on each host, started by ssh; all of them end with the block."""
    workers: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack:
        loop = stack.enter_context(_scheduler(host))
        client = stack.enter_context(Client(loop))
        for address in addresses:
            words = [
                sys.executable,
                "-m",
                "distributed.cli.dask_worker",
                loop,
                "--nthreads",
                "1",
                "--no-dashboard",
                "--host",
                address,
                "--death-timeout",
                str(START_SECONDS),
            ]
            there = shlex.join(["env", "-C", str(command.ROOT), f"PYTHONPATH={command.ROOT}", *words])
            workers.append(
                subprocess.Popen(
                    ["ssh", "-F", ssh_config, "-tt", address, there], stdin=subprocess.DEVNULL, stdout=sys.stderr
                )
            )
            stack.callback(_end, workers[-1])
        client.wait_for_workers(len(addresses), timeout=START_SECONDS)
        yield client
        client.shutdown()


@contextlib.contextmanager
def _scheduler(host: str) -> Iterator[str]:
    """The address of a scheduler in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", host, "--port", "8786", "--no-dashboard"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
    ) as process:
        try:
            yield f"tcp://{host}:8786"
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def shuffle(client: Client, rows: int, iterations: int, warmup: int, seed: int) -> list[float]:
    """Seconds of each timed shuffle of `rows` rows a worker.

    Raises
    ------
    WrongResult
        If rows are missing or twice there.
    """
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
    count = len(addresses)
    parts = [
        client.submit(make_part, rank, rows, count, seed, workers=[address], pure=False)
        for rank, address in enumerate(addresses)
    ]
    frame = dd.from_delayed(parts, meta=make_part(0, 0, count, seed), verify_meta=False)
    distributed.wait(parts)
    expected = _sums(client.gather(client.map(describe, parts, pure=False)))
    seconds, result = [], None
    for number in range(warmup + iterations):
        result = None
        wait_until_held(client, count)
        began = time.perf_counter()
        result = frame.shuffle("key", npartitions=count, shuffle_method="p2p").persist()
        distributed.wait(result)
        if number >= warmup:
            seconds.append(time.perf_counter() - began)
    found = client.gather(client.map(describe, client.futures_of(result), pure=False))
    keys = client.gather(client.submit(_distinct, parts, pure=False))
    if _sums(found) != expected or sum(each[3] for each in found) != keys:
        raise WrongResult(f"the shuffled rows are {_sums(found)}, not {expected}, or a key lies on two workers")
    return seconds


def _sums(parts: list[tuple[int, int, int, int]]) -> tuple[int, ...]:
    return tuple(sum(each[place] for each in parts) for place in range(3))


def _distinct(parts: list[pd.DataFrame]) -> int:
    return int(pd.concat([part["key"] for part in parts]).nunique())


@click.command(context_settings=command.CONTEXT)
@command.option("--workers", click.IntRange(2), 2, "Number of workers on this host.")
@command.option("--chunk", command.ROWS, "1e6", "Rows of one worker in each of the two frames.")
@command.option("--iterations", click.IntRange(1), 5, "Timed shuffles.")
@command.option("--warmup", click.IntRange(0), 1, "Shuffles before them.")
@command.option("--addresses", command.NAMES, None, "Hosts: one worker on each.")
@command.option("--ssh-config", str, None, "ssh configuration file that reaches the hosts.")
@command.option("--host", str, "127.0.0.1", "Address of the scheduler, which the hosts reach.")
@command.SEED
def dask_shuffle(
    workers: int,
    chunk: int,
    iterations: int,
    warmup: int,
    addresses: list[str] | None,
    ssh_config: str | None,
    host: str,
    seed: int,
) -> None:
    """Measure Dask's P2P shuffle."""
    count = len(addresses or range(workers))
    place: Any = cluster_of_hosts(addresses, ssh_config or "", host) if addresses else local_cluster(workers)
    with dask.config.set(NO_DISK), place as client:
        try:
            seconds = shuffle(client, 2 * chunk, iterations, warmup, seed)
        except (TimeoutError, OSError) as error:
            raise RunFailed(f"Dask's shuffle failed: {error}") from error
    received = 2 * chunk * ROW_BYTES * (count - 1) // count
    click.echo(json.dumps({"seconds": seconds, "bytes": received, "version": distributed.__version__}))


if __name__ == "__main__":
    command.run(dask_shuffle, Path(__file__).stem)
