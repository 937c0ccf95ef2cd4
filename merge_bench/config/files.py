"""Opens files that other people or programs name or can change, without risk; replaces output files; finds libraries
and the user's cache.

Only regular files are read, up to a limit, so that a pipe or a device never makes a command wait or read for ever.
Files are written without following a link. Output files of commands are checked before anything is measured, and
replaced completely or not at all.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from merge_bench.errors import RunFailed, UsageError

TEXT_BYTES = 64 << 20
"""The most bytes that `read_regular_file` reads of a file, unless its caller sets another limit."""
TOKENS = ("MERGE_BENCH_TOKEN", "MERGE_BENCH_TOKEN_FILE")
"""Variables with a service client's secret token or its file: never recorded, and no child process inherits them."""


def user_cache_folder() -> Path:
    """This package's folder in the user's cache, which need not exist; raises RuntimeError if the user has no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "merge_bench"


def make_user_cache_folder() -> Path:
    """Make this package's folder in the user's cache if it is missing, readable for the user only, and return its path.

    Raises OSError, RuntimeError if it cannot be made, or the user has no home.
    """
    folder = user_cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def open_regular_file(path: str | os.PathLike[str]) -> IO[bytes]:
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


def read_regular_file(path: str | os.PathLike[str], limit: int = TEXT_BYTES) -> bytes:
    """Read a regular file of at most `limit` bytes.

    Raises UsageError, which names the path, if it is another kind of file, or larger; OSError if it cannot be read.
    """
    with open_regular_file(path) as file:
        contents = file.read(limit + 1)
    if len(contents) > limit:
        size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
        raise UsageError(f"{os.fspath(path)} is larger than {size}, the most that is read of such a file")
    return contents


def open_without_links(path: str, flags: int) -> int:
    """Open a regular file for writing, but never through a link; returns its descriptor, as the `opener` of `open`.

    Raises OSError as `os.open` does, and also if the path is a link or not a regular file.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "it is not a regular file", path)
    return descriptor


MAPS = Path("/proc/self/maps")
"""What this process has mapped into its memory, as lines of the kernel."""


def loaded_library_path(library_name: str, maps_file: Path = MAPS) -> Path | None:
    """The file from which this process has loaded a library, such as ``libucp``; None if it is not loaded.

    Wheels rename libraries to names such as ``libucp-1a2b3c4d.so.0``, which count if there is no ``libucp.so…``.
    """
    lines = maps_file.read_text().splitlines()
    paths = [Path(path) for line in lines if (path := line.split(maxsplit=5)[-1]).startswith("/")]
    return next((path for end in ".-" for path in paths if path.name.startswith(library_name + end)), None)


def open_loaded_library(library_name: str) -> ctypes.CDLL:
    """Open a library that this process has loaded, to call its functions.

    Raises RunFailed if the process has not loaded it.
    """
    path = loaded_library_path(library_name)
    if path is None:
        raise RunFailed(
            f"this process has not loaded the library {library_name}, which it needs; check the installation with"
            " `doctor`"
        )
    return ctypes.CDLL(str(path))


def check_output_file(option: str, path: Path) -> None:
    """Check that an output file can be written, without changing it.

    Raises UsageError if it cannot; the message names `option`.
    """
    try:
        if path.is_dir():
            raise UsageError(f"{option} {path} is a folder; name a file")
        if _is_device_or_pipe(path) or _is_standard_output(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        folder = path.parent.resolve()
        if not folder.is_dir():
            raise UsageError(f"{option} {path}: there is no folder {folder}")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be written: {error.strerror}") from error


def check_output_folder(option: str, folder: Path) -> None:
    """Check that a folder can be made, if it is missing, and written to; leaves nothing behind.

    Raises UsageError if it cannot; the message names `option`.
    """
    missing = [path for path in (folder, *folder.parents) if not os.path.exists(path)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{option} {folder} cannot be written: {error.strerror}; name another folder") from None
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()


def without_parent_steps(path: Path) -> Path:
    """Return `path` without ``..`` if that names the same place, which it does not behind a symbolic link."""
    short = Path(os.path.normpath(path))
    return short if short.resolve() == path.resolve() else path


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file, which replaces the file at `path` at the end of the block; after an error `path` is unchanged.

    Links are not followed: a link at `path` is replaced, and its target stays as it was. A device or a pipe that was
    named directly is written to. A user who could not read the old file cannot read the new one.
    """
    if _is_standard_output(path):
        sys.stdout.flush()  # what was printed before comes first
        yield sys.stdout.buffer
        return
    if _is_device_or_pipe(path):
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "wb") as stream:
            os.set_blocking(stream.fileno(), True)
            yield stream
        return
    draft = path.with_name(f".merge-bench-{secrets.token_hex(8)}")
    try:
        with open(draft, "xb", opener=open_without_links) as stream:
            _restrict_to_permissions_of(path, stream.fileno())
            yield stream
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _restrict_to_permissions_of(path: Path, descriptor: int) -> None:
    """Remove from an open file the permissions that the file at `path` does not have."""
    with contextlib.suppress(OSError):
        before = path.lstat().st_mode
        if stat.S_ISREG(before):
            os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode & before))


def _is_standard_output(path: Path) -> bool:
    """Whether `path` stands for standard output, whose descriptor this program has moved (`view.streams`)."""
    return str(path) in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def _is_device_or_pipe(path: Path) -> bool:
    """Whether `path` is a device, a pipe or a socket, and not reached by a link outside ``/dev`` and ``/proc``."""
    anybodys_link = path.is_symlink() and path.parts[:2] not in (("/", "dev"), ("/", "proc"))
    return path.exists() and not path.is_file() and not anybodys_link
