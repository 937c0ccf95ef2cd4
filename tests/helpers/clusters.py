"""A Dask cluster that a test starts itself, as a user's own: scheduler and workers on loopback, ended by their ids."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from merge_bench.cluster.dask_commands import SCHEDULER, WORKER
from tests.helpers.runs import LIMIT, environment


@contextlib.contextmanager
def dask_cluster(
    folder: Path, workers: int, environ: Mapping[str, str] | None = None, *, memory_limit: str = "0"
) -> Iterator[Path]:
    """Gives the scheduler file once all workers have registered; `memory_limit`: of each worker, as Dask takes it."""
    temp, file = folder / "tmp", folder / "scheduler.json"
    temp.mkdir(parents=True)
    meet = ["--scheduler-file", str(file), "--host", "127.0.0.1", "--no-dashboard"]
    one = ["--nthreads", "1", "--no-nanny", "--memory-limit", memory_limit, "--local-directory", str(temp)]
    one += ["--preload", "tests.helpers.loaded"]
    commands = [[*SCHEDULER, "--port", "0", *meet]]
    commands += [[*WORKER, *meet, *one, "--name", f"own-{n}"] for n in range(workers)]
    surroundings = environment(temp, {"UCX_NET_DEVICES": "lo", **(environ or {})})
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            with (folder / f"{number}.log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        command,
                        env=surroundings,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        deadline = time.monotonic() + LIMIT
        logs = {folder / f"{number}.log": "Registered to" for number in range(1, workers + 1)}
        logs[folder / "0.log"] = "Scheduler at"
        while not all(words in log.read_text() for log, words in logs.items()):
            assert started[0].poll() is None, (folder / "0.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield file
        assert all(process.poll() is None for process in started), "a run ended a process of a cluster that is not its"
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in started:
            process.wait()


@contextlib.contextmanager
def scheduler_alone(file: Path | None = None) -> Iterator[str]:
    """Gives the address of a scheduler in this process that has no workers; `file`: its scheduler file."""
    from distributed import Scheduler
    from distributed.utils import LoopRunner

    runner = LoopRunner(asynchronous=False)
    runner.start()

    async def begin() -> Scheduler:
        where = str(file) if file else None
        return await Scheduler(
            host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0", scheduler_file=where
        )

    scheduler = runner.run_sync(begin)
    try:
        yield str(scheduler.address)
    finally:
        runner.run_sync(scheduler.close)
        runner.stop()
