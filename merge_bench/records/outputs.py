"""Output files of commands: checked before anything is measured, and replaced completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from merge_bench.errors import UsageError


def check_writable(option: str, path: Path) -> None:
    """Check that `path` can be written, without changing it.

    Raises
    ------
    UsageError
        If it cannot; the message names `option`.
    """
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder; name a file")
    try:
        if _is_special(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        folder = path.resolve().parent
        if not folder.is_dir():
            raise UsageError(f"{option} {path}: there is no folder {folder}")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write that replaces `path` at the end; after an exception, `path` stays as it was.

    A link stays a link, and a device or a pipe is written to directly.
    """
    if _is_special(path):
        yield path
        return
    target = path.resolve()
    draft = target.with_name(f".merge-bench-{secrets.token_hex(4)}{target.suffix}")
    try:
        yield draft
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Whether `path` is a device, a pipe or a socket."""
    return path.exists() and not path.is_file()
