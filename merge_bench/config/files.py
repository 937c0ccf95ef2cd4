"""Opens files that other people or programs name or can change, without risk, and finds loaded libraries.

Only regular files are read, up to a limit, so that a pipe or a device never makes a command wait or read for ever.
Files are written without following a link.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from pathlib import Path
from typing import IO

from merge_bench.errors import RunFailed, UsageError

TEXT_BYTES = 64 << 20
"""The most bytes that `read_regular` reads of a file, unless its caller sets another limit."""
TOKENS = ("MERGE_BENCH_TOKEN", "MERGE_BENCH_TOKEN_FILE")
"""Variables with a service client's secret token or its file: never recorded, and no child process inherits them."""


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading, without waiting for anything.

    Raises UsageError, which names the path, if it is a pipe, a device or a socket; OSError if it is a folder, or cannot
    be opened.
    """
    # A socket cannot be opened at all; a pipe must not wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        raise UsageError(f"{os.fspath(path)} is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | os.PathLike[str], limit: int = TEXT_BYTES) -> bytes:
    """The contents of a regular file of at most `limit` bytes.

    Raises UsageError, which names the path, if it is another kind of file, or larger; OSError if it cannot be read.
    """
    with open_regular(path) as file:
        contents = file.read(limit + 1)
    if len(contents) > limit:
        size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
        raise UsageError(f"{os.fspath(path)} is larger than {size}, the most that is read of such a file")
    return contents


def open_without_links(path: str, flags: int) -> int:
    """Open a file for writing, as the `opener` of `open`; returns its descriptor.

    Raises OSError as `os.open` does, and also if the path is a link or not a regular file.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "it is not a regular file", path)
    return descriptor


MAPS = Path("/proc/self/maps")
"""What this process has mapped into its memory, as lines of the kernel."""


def library_path(name: str, maps: Path = MAPS) -> Path | None:
    """The file from which this process has loaded a library, such as ``libucp``; None if it is not loaded.

    Wheels rename libraries to names such as ``libucp-1a2b3c4d.so.0``, which count if there is no ``libucp.so…``.
    """
    lines = maps.read_text().splitlines()
    paths = [Path(path) for line in lines if (path := line.split(maxsplit=5)[-1]).startswith("/")]
    return next((path for end in ".-" for path in paths if path.name.startswith(name + end)), None)


def loaded_library(name: str) -> ctypes.CDLL:
    """A library that this process has loaded, as an object whose functions can be called.

    Raises RunFailed if the process has not loaded it.
    """
    path = library_path(name)
    if path is None:
        raise RunFailed(
            f"this process has not loaded the library {name}, which it needs; check the installation with `doctor`"
        )
    return ctypes.CDLL(str(path))
