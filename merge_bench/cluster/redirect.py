"""Keeps what libraries say off the terminal, which is for sentences, and off standard output, which is for results."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def libraries(log: Path) -> Iterator[None]:
    """Send the log lines of Dask's client, and whatever native code prints on standard output, to `log`.

    UCX prints its warnings on file descriptor 1, past Python's `sys.stdout`.
    """
    import distributed  # noqa: F401  (it sets its loggers up when it is first imported)

    with _kept_open(log) as file, _descriptor_to(file.fileno()):
        handler = _Silent(file)
        named = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
        loggers = [logging.getLogger(name) for name in ("distributed", "tornado", "asyncio", *named)]
        before = [(logger.propagate, list(logger.handlers)) for logger in loggers]
        for logger in loggers:
            logger.propagate, logger.handlers = False, [handler]
        try:
            yield
        finally:
            for logger, (propagate, handlers) in zip(loggers, before, strict=True):
                logger.propagate, logger.handlers = propagate, handlers


class _Silent(logging.StreamHandler[TextIO]):
    """Loses a line that cannot be written, on a full disk for example, instead of telling of it on the terminal."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing."""


@contextlib.contextmanager
def _kept_open(log: Path) -> Iterator[TextIO]:
    """The log opened for more lines; those that it has no room for are lost."""
    file = log.open("a")
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):
            file.close()


@contextlib.contextmanager
def _descriptor_to(target: int) -> Iterator[None]:
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(target, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
