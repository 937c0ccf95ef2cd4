"""Folders for a run's scratch files. The next run removes those of killed runs: no process holds their locks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import tempfile
from pathlib import Path

PREFIX = "merge-bench-"
_locks: dict[Path, int] = {}


def make_folder(kind: str = "") -> Path:
    """A new folder that only this user can read; this process holds its lock until `remove_folder`, or its own end."""
    _remove_unlocked_folders()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX + (f"{kind}-" if kind else "")))
    with contextlib.suppress(OSError):  # a file system without locks: then only `remove_folder` removes it
        draft = folder / ".draft"
        _locks[folder] = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(_locks[folder], fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(folder / _lock_name())  # so a file of this name is locked from the beginning
    return folder


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    descriptor = _locks.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)


def _lock_name() -> str:
    """The name of a lock file, with the host's name: hosts may share the folder without seeing each other's locks."""
    return f".in-use-{socket.gethostname()}"


def _remove_unlocked_folders() -> None:
    """Delete the folders of this user's killed runs on this host: no process holds their locks."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{_lock_name()}"):
        if lock.parent in _locks:
            continue
        with contextlib.suppress(OSError):
            if lock.parent.is_symlink() or lock.parent.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)
