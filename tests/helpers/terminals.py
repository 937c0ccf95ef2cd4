"""A terminal without a person at it, on standard error."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator


@contextlib.contextmanager
def terminal(columns: int) -> Iterator[list[str]]:
    """Make a terminal of so many columns standard error; afterwards the list has the lines that it got."""
    driver, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    lines: list[str] = []
    with os.fdopen(end, "w") as stream, contextlib.redirect_stderr(stream):
        yield lines
    lines += _read_all(driver).decode().replace("\r\n", "\n").splitlines()


def _read_all(driver: int) -> bytes:
    """All that was written to a terminal that is closed; on a busy machine it comes in several parts."""
    content = b""
    with os.fdopen(driver, "rb", buffering=0) as stream:
        while True:
            try:
                part = stream.read(1 << 16)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                return content
            if not part:
                return content
            content += part
