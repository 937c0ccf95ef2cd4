"""Opens files that a person, a batch system or another login names or can change, and finds loaded libraries.

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
"""The largest file that is read whole, unless its reader has another limit."""
TOKENS = ("MERGE_BENCH_TOKEN", "MERGE_BENCH_TOKEN_FILE")
"""Variables with a client's token, or the file that has it: never recorded, and not inherited by any process."""


def path_name(text: str) -> str:
    """A path as it was typed, with the home of ``~`` and ``~user`` in it.

    Raises ValueError if it is empty, no file can have this name, or there is no such user; the message is one sentence.
    """
    if not text.strip():
        raise ValueError("the value is empty")
    try:
        path = str(Path(text).expanduser()) if text.startswith("~") else text
        os.stat(path)
    except RuntimeError:
        user = text[1:].partition("/")[0]
        who = f"there is no user {user!r}" if user else "you have no home folder"
        raise ValueError(f"{text!r}: {who}; write the whole path") from None
    except FileNotFoundError:
        pass
    except OSError as error:
        if not isinstance(error, PermissionError | NotADirectoryError):  # the file may be on another machine
            raise ValueError(f"{text!r}: {error.strerror}") from None
    except ValueError:
        raise ValueError(f"{text!r} contains a NUL character, which no file name can") from None
    return path


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading, without waiting for anything.

    Raises UsageError if it is a pipe, a device or a socket; the message names it; OSError if it is a folder, or cannot
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

    Raises UsageError if it is another kind of file, or larger; the message names it; OSError if it cannot be read.
    """
    with open_regular(path) as file:
        contents = file.read(limit + 1)
    if len(contents) > limit:
        size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
        raise UsageError(f"{os.fspath(path)} is larger than {size}, the most that is read of such a file")
    return contents


def no_link(path: str, flags: int) -> int:
    """The `opener` of `open` for files that are written: a link, a pipe or a device of that name is an error.

    Raises OSError as `os.open`; also if the path is not a regular file.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "it is not a regular file", path)
    return descriptor


def library_path(name: str) -> Path | None:
    """The file of a loaded library, such as ``libucp``; None if it is not loaded.

    Wheels rename libraries like ``libucp-1a2b3c4d.so.0``, so that name counts if there is no ``libucp.so…``.
    """
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = [Path(path) for line in lines if (path := line.split(maxsplit=5)[-1]).startswith("/")]
    return next((path for end in ".-" for path in paths if path.name.startswith(name + end)), None)


def loaded_library(name: str) -> ctypes.CDLL:
    """A library that this process has loaded, for calls of its functions.

    Raises RunFailed if the process has not loaded it.
    """
    path = library_path(name)
    if path is None:
        raise RunFailed(
            f"this process has not loaded the library {name}, which it needs; check the installation with `doctor`"
        )
    return ctypes.CDLL(str(path))
