"""Starts Dask's scheduler or worker: ``python -P -m merge_bench.cluster.start_dask dask_worker OPTION…``.

Not ``dask worker``: that program imports every package that adds a command to it, among them this one and dask-cuda.
This one leaves out RMM, SciPy and cffi on CPUs, Jinja2 where there is no dashboard, and collects no garbage while it
imports: to import Dask's worker takes 0.32 s of CPU instead of 0.40 (AMD EPYC; Jinja2 not counted).

``start_dask fork PARENT MERGE COMMAND…`` imports Dask once for several such processes with one environment, and forks
them before any of them has UCX or a thread of Python. Where MERGE is ``true``, workers have what a merge imports, too.
They become children of the process PARENT, which gets a line with each one's number and process number, and the rest of
the command line is that of the process started alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from merge_bench.cluster.base import FORK, START_DASK
from merge_bench.cluster.supervisor import become_session_of
from merge_bench.config.files import open_without_links
from merge_bench.config.installation import block_imports

_ARGUMENTS_START, _ARGUMENTS_END = 48, 49
"""Fields of /proc/PID/stat, counted from 1: the memory that /proc/PID/cmdline shows."""


def main() -> None:
    """Run the program of `distributed.cli` that the first argument names, with the arguments after it."""
    gc.disable()
    options = " ".join(sys.argv)
    block_imports("rmm", "scipy", "cffi", *(["jinja2"] if "--no-dashboard" in options else []))
    if sys.argv[1] == FORK:
        parent, merge, *commands = map(json.loads, sys.argv[2:])
        _fork_processes(parent, commands, workers_merge=merge)
    run = _import_program(sys.argv.pop(1))
    gc.enable()
    run()


def _import_program(name: str) -> Callable[[], object]:
    run: Callable[[], object]
    if name == "dask_scheduler":
        from distributed.cli import dask_scheduler

        run = dask_scheduler.main
    else:
        from distributed.cli import dask_worker

        run = dask_worker.main
    return run


def _open_log(path: str) -> int:
    return open_without_links(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def _send_output_to(log: int) -> None:
    """Have this process write both of its outputs to a log, given as an open file that is closed."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _import_merge(log: str) -> None:
    """Import what a worker needs for a merge of the native engine: Arrow, numba and the loops, but not UCX.

    What libraries print goes to `log`, of a worker. It imports again what could not be imported here, and its failure
    is the run's.
    """
    _send_output_to(_open_log(log))
    with contextlib.suppress(Exception):
        import merge_bench.merge.engines.native
        import merge_bench.merge.worker
        import merge_bench.merge.workload.synthetic  # noqa: F401
        from merge_bench.merge.jit import prepare_for_loops

        prepare_for_loops()


def _fork_processes(parent_pid: int, commands: list[tuple[list[str], str]], *, workers_merge: bool) -> None:
    """Fork a process for each command line and log; returns in each of these, with `sys.argv` set, and nowhere else.

    Standard input is a pipe to the parent: text that a library prints does not get there.
    """
    for argv, _ in commands:
        _import_program(argv[0])
    for number, (argv, log) in enumerate(commands):
        if workers_merge and argv[0] != "dask_scheduler":
            workers_merge = False  # once, for all workers; the scheduler does not wait for it
            _import_merge(log)
        file = _open_log(log)
        between = os.fork()
        if between:
            os.close(file)
            if os.waitpid(between, 0)[1]:
                sys.exit(f"process {number} could not be forked")
            continue
        between = os.getpid()
        try:
            if os.fork():
                os._exit(0)
        except OSError:
            os._exit(1)
        announcement = f"{number} {os.getpid()}\n".encode()
        become_session_of(parent_pid, between, functools.partial(os.write, 0, announcement))
        _send_output_to(file)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)  # the last end of the pipe that this process has
        os.close(empty)
        _show_command_line([*START_DASK, *argv])
        sys.argv[1:] = argv
        return
    os._exit(0)


def _show_command_line(words: list[str]) -> None:
    """Have the kernel show these words as this process's command line, which was longer.

    Where the last byte is not zero it shows the text up to the first zero, as for setproctitle(3).
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()  # from the third on
    start, end = (int(fields[place - 3]) for place in (_ARGUMENTS_START, _ARGUMENTS_END))
    text = " ".join(words).encode()
    if start and len(text) + 2 <= end - start:
        ctypes.memmove(start, text.ljust(end - start - 1, b"\0") + b" ", end - start)


if __name__ == "__main__":
    main()
