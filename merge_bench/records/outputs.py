"""Output files of commands: checked before anything is measured, and replaced completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from merge_bench.config.files import open_without_links
from merge_bench.errors import UsageError


def check_writable(option: str, path: Path) -> None:
    """Check that `path` can be written, without changing it.

    Raises UsageError if it cannot; the message names `option`.
    """
    try:
        if path.is_dir():
            raise UsageError(f"{option} {path} is a folder; name a file")
        if _is_special(path) or _names_standard_output(path):
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


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file to write, which takes the place of `path` at the end; after an exception, `path` stays as it was.

    Nobody's link is followed: a link of that name is replaced, and what it points to stays as it was. A device and a
    pipe that were named directly are written to. Who could not read the old file cannot read the new one.
    """
    if _names_standard_output(path):
        sys.stdout.flush()  # what was printed before comes first
        yield sys.stdout.buffer
        return
    if _is_special(path):
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "wb") as stream:
            os.set_blocking(stream.fileno(), True)
            yield stream
        return
    draft = path.with_name(f".merge-bench-{secrets.token_hex(8)}")
    try:
        with open(draft, "xb", opener=open_without_links) as stream:
            _keep_from_others(path, stream.fileno())
            yield stream
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _keep_from_others(path: Path, descriptor: int) -> None:
    with contextlib.suppress(OSError):
        before = path.lstat().st_mode
        if stat.S_ISREG(before):
            os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode & before))


def _names_standard_output(path: Path) -> bool:
    """Whether `path` stands for standard output, whose descriptor this program has moved (`view.streams`)."""
    return str(path) in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def _is_special(path: Path) -> bool:
    """Whether `path` is a device, a pipe or a socket, and not by a link that anybody can have made."""
    anybodys_link = path.is_symlink() and path.parts[:2] not in (("/", "dev"), ("/", "proc"))
    return path.exists() and not path.is_file() and not anybodys_link
