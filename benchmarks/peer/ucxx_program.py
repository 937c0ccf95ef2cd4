"""`ucxx.benchmarks.cudf_merge` with a header field that cuDF no longer writes; it ends when one of its processes fails.

Its receivers look for a frame's class under ``type-serialized``. cuDF 26.10 names it elsewhere and differently, so that
UCXX 0.52's program fails in its workers. Where cuDF writes the field, nothing changes. Server and workers are forked
from this process, so they have the field too. The program waits for their results for ever, even after they have died.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from multiprocessing.process import BaseProcess
from typing import Any

from ucxx.benchmarks import cudf_merge

FIELD = "type-serialized"
POLL_SECONDS, END_SECONDS = 0.1, 5.0


def mend(frame_class: Any) -> None:
    """Make `frame_class.serialize` write the field."""
    original = frame_class.serialize

    def serialize(self: Any) -> tuple[dict[str, Any], list[Any]]:
        header, frames = original(self)
        header.setdefault(FIELD, pickle.dumps(type(self)))
        return header, frames

    frame_class.serialize = serialize


def watch(program: Any) -> None:
    """End this process with status 1 as soon as a process that `program` starts has failed."""
    processes: dict[str, BaseProcess] = {}
    start_server, start_workers = program._run_cluster_server, program._run_cluster_workers

    def server(*args: Any, **options: Any) -> Any:
        started = start_server(*args, **options)
        processes["the server"] = started[0]
        return started

    def workers(*args: Any, **options: Any) -> Any:
        started = start_workers(*args, **options)
        processes.update((f"worker {rank}", process) for rank, process in enumerate(started))
        return started

    program._run_cluster_server, program._run_cluster_workers = server, workers
    threading.Thread(target=_end_on_failure, args=(processes,), daemon=True).start()


def _end_on_failure(processes: dict[str, BaseProcess]) -> None:
    while True:
        endings = {name: process.exitcode for name, process in list(processes.items())}
        failed = [f"{name} {_ending(status)}" for name, status in endings.items() if status]
        if failed:
            print(f"{cudf_merge.__name__}: {', '.join(failed)}", file=sys.stderr, flush=True)
            started = list(processes.values())
            for process in started:
                process.kill()
            for process in started:
                process.join(END_SECONDS)
            os._exit(1)
        time.sleep(POLL_SECONDS)


def _ending(status: int) -> str:
    if status > 0:
        return f"ended with status {status}"
    return f"was killed by signal {-status} ({signal.strsignal(-status)})"


mend(cudf_merge.cudf.DataFrame)

if __name__ == "__main__":
    watch(cudf_merge)
    cudf_merge.main()
