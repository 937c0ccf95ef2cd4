"""`ucxx.benchmarks.cudf_merge`, started so that it works, and ended when one of its processes fails.

- Its receivers look for a frame's class under ``type-serialized``. cuDF 26.10 names it elsewhere and differently, so
  that UCXX 0.52's program fails in its workers. Where cuDF writes the field, nothing changes.
- It forks its server and its workers after it has loaded CUDA's libraries. Here they are spawned, unless `METHOD` in
  the environment says ``fork``. A spawned process imports this module, so that it writes the field too.
- It waits for its workers' results for ever, even after they have died. Here it ends with one sentence.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Any

from ucxx.benchmarks import cudf_merge, utils

from merge_bench.cluster.supervisor import die_with_parent

METHOD, METHODS = "UCXX_PROGRAM_START", ("spawn", "fork")  # the first is the default
FIELD = "type-serialized"
POLL_SECONDS, END_SECONDS = 0.1, 5.0
CHILD = "__mp_main__"  # this module's name in a spawned process


def mend(frame_class: Any) -> None:
    """Make `frame_class.serialize` write the field."""
    original = frame_class.serialize

    def serialize(self: Any) -> tuple[dict[str, Any], list[Any]]:
        header, frames = original(self)
        header.setdefault(FIELD, pickle.dumps(type(self)))
        return header, frames

    frame_class.serialize = serialize


class Starter:
    """Stands for `multiprocessing` in UCXX: every context that it gives uses one method, and its queues are kept.

    `_run_cluster_workers` drops its queues as it returns. With them go the names of their semaphores, which a spawned
    process needs until it has opened them.
    """

    def __init__(self, method: str) -> None:
        self._context: Any = multiprocessing.get_context(method)
        self._queues: list[Any] = []

    def get_context(self, _: str) -> Starter:
        """This, whatever method is asked for."""
        return self

    def Queue(self) -> Any:
        """A queue that lives as long as this."""
        queue = self._context.Queue()
        self._queues.append(queue)
        return queue

    def Process(self, target: Callable[..., object], args: Sequence[object]) -> Any:
        """A process of the method, which ends with this one."""
        return self._context.Process(target=tied, args=(os.getpid(), target, *args))


def tied(parent: int, target: Callable[..., object], *args: object) -> None:
    """Call `target` in a process that the kernel kills when its parent, the process of this number, ends."""
    die_with_parent()
    if os.getppid() == parent:
        target(*args)


def method() -> str:
    """How processes are started: the value of `METHOD`."""
    chosen = os.environ.get(METHOD) or METHODS[0]
    if chosen not in METHODS:
        sys.exit(f"{METHOD}={chosen} must be {' or '.join(METHODS)}")
    return chosen


def watch(program: Any) -> dict[str, BaseProcess]:
    """End this process with status 1 as soon as a process that `program` starts has failed.

    Gives the processes by name, as they are started.
    """
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
    return processes


def main() -> None:
    """Run UCXX's program; SIGTERM ends it and its processes, and removes the semaphores of its queues."""
    signal.signal(signal.SIGTERM, _leave)
    die_with_parent(signal.SIGTERM)
    os.register_at_fork(after_in_child=die_with_parent)
    utils.mp = Starter(method())
    processes = watch(cudf_merge)
    try:
        cudf_merge.main()
    except SystemExit:
        _end(processes)
        raise


def _end_on_failure(processes: dict[str, BaseProcess]) -> None:
    while True:
        endings = {name: process.exitcode for name, process in list(processes.items())}
        failed = [f"{name} {_ending(status)}" for name, status in endings.items() if status]
        if failed:
            _end(processes)
            print(f"{cudf_merge.__name__}: {', '.join(failed)}", file=sys.stderr, flush=True)
            # The main thread waits for a result. It leaves the orderly way, which removes the queues' semaphores.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            time.sleep(END_SECONDS)
            os._exit(1)
        time.sleep(POLL_SECONDS)


def _end(processes: dict[str, BaseProcess]) -> None:
    started = list(processes.values())
    for process in started:
        process.kill()
    for process in started:
        process.join(END_SECONDS)


def _leave(number: int, frame: types.FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(1)


def _ending(status: int) -> str:
    if status > 0:
        return f"ended with status {status}"
    return f"was killed by signal {-status} ({signal.strsignal(-status)})"


mend(cudf_merge.cudf.DataFrame)

if __name__ == CHILD:
    die_with_parent()
elif __name__ == "__main__":
    main()
