"""Redirects library logs and native standard output to a file, away from the terminal and from results."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from merge_bench.config.files import no_link


@contextlib.contextmanager
def libraries(log: Path) -> Iterator[None]:
    """Send the log lines of Dask's client, and what native code prints on standard output, to the end of `log`.

    UCX prints its warnings on file descriptor 1 directly, so that `sys.stdout` never gets them. Lines that the log has
    no room for are lost. What a closed client leaves behind is freed before this ends: asyncio then logs errors that
    nobody took, such as the ``TimeoutError: Timeout`` of a wait that the closing cut short.
    """
    import distributed  # noqa: F401  (it sets up its loggers when it is first imported)

    named = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    loggers = [logging.getLogger(name) for name in ("distributed", "tornado", "asyncio", *named)]
    before = [(logger.propagate, list(logger.handlers)) for logger in loggers]
    file = open(log, "a", opener=no_link, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    sys.stdout.flush()
    standard_output = os.dup(1)
    try:
        os.dup2(file.fileno(), 1)
        for logger in loggers:
            logger.propagate, logger.handlers = False, [_SilentHandler(file)]
        yield
    finally:
        gc.collect()
        for logger, (propagate, handlers) in zip(loggers, before, strict=True):
            logger.propagate, logger.handlers = propagate, handlers
        os.dup2(standard_output, 1)
        os.close(standard_output)
        with contextlib.suppress(OSError):
            file.close()


class _SilentHandler(logging.StreamHandler[TextIO]):
    """Prints no error if a line cannot be written, on a full disk for example."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing."""
