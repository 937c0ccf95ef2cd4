"""Writes a campaign's folder: one line per event, which is on the disk before the call returns."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import msgspec

from merge_bench.config.files import open_without_links, replace_file
from merge_bench.errors import NotRecorded, RunFailed, UsageError
from merge_bench.records.schema import Record

RECORDS = "records.jsonl"
LOGS = "logs"
_LONGEST_NAME = 60
_BLOCK_BYTES = 64 << 10
_RESERVE = ".room"
_RESERVE_BYTES = 64 << 10
"""Disk space for the last lines, which say that the disk is full."""
_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Encode a record as one line of JSON, without the newline.

    Raises ValueError if a field has a wrong type, a value out of range, or NaN where null is not allowed.
    """
    line = _ENCODER.encode(record)
    try:
        _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise ValueError(f"not written, because it could not be read back: {type(record).__name__}: {error}") from None
    return line


def make_safe_folder_name(config_name: str) -> str:
    """Turn the name of a config into a part of a folder's name: no ``.cfg``, no separators, no leading dot or dash.

    ``my tuned/best.cfg`` → ``my-tuned-best``
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", config_name.strip().removesuffix(".cfg"))
    return name.lstrip(".-")[:_LONGEST_NAME].rstrip(".-") or "config"


class CampaignWriter:
    """Writes the records of a campaign, as the only writer of its folder. Several threads may call it.

    `folder`: the campaign's, with the file `records` and the folder `logs` for the processes' logs.
    """

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self.logs = folder / LOGS
        self.records = folder / RECORDS
        self._descriptor: int | None = descriptor
        self._lock = threading.Lock()

    @classmethod
    def create(cls, results_dir: str | os.PathLike[str], config_name: str) -> Self:
        """Create a campaign's folder and open it for writing.

        The folder is ``<results_dir>/<YYYYMMDDTHHMMSSZ>-<config>-<id>/`` with ``logs/`` and an empty ``records.jsonl``.
        Raises UsageError if the folder cannot be made; the message names it.
        """
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        results = Path(results_dir)
        folder = results / f"{stamp}-{make_safe_folder_name(config_name)}-{secrets.token_hex(3)}"
        try:
            results.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
            (folder / LOGS).mkdir()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(folder / RECORDS, flags, 0o644)
            with contextlib.suppress(OSError):  # some file systems have no locks; `resume` refuses them
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _reserve_disk_space(folder)
            _sync_folder(folder)
            _sync_folder(results)
        except OSError as error:
            full = ", or delete files to make space" * (error.errno in (errno.ENOSPC, errno.EDQUOT))
            raise UsageError(
                f"cannot create the results folder {folder}: {error.strerror}; choose another folder{full}"
            ) from error
        return cls(folder, descriptor)

    @classmethod
    def resume(cls, folder: Path) -> Self:
        """Open the folder of an unfinished campaign to append lines; a half-written last line is removed.

        Raises RunFailed if another process writes it, or that is unknown, or it cannot be written; the message is the
        end of a sentence.
        """
        descriptor = None
        try:
            descriptor = open_without_links(str(folder / RECORDS), os.O_RDWR | os.O_APPEND)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_half_written_line(descriptor)
            (folder / LOGS).mkdir(exist_ok=True)
            if (folder / LOGS).is_symlink():
                raise OSError(errno.ELOOP, f"the folder {LOGS} is a link")
            (folder / _RESERVE).unlink(missing_ok=True)
            _reserve_disk_space(folder)
        except OSError as error:
            if descriptor is not None:
                os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise RunFailed("another process is recording this campaign") from error
            raise RunFailed(f"the records of the campaign cannot be written ({error.strerror})") from error
        return cls(folder, descriptor)

    @property
    def campaign_id(self) -> str:
        """The name of the campaign's folder, which is unique."""
        return self.folder.name

    def write(self, record: Record) -> None:
        """Append `record` as one line and wait until it is on the disk.

        A line that was written only in part is removed, so that the lines after it stay readable.

        Raises NotRecorded if the disk is full or gone; the message names the folder; ValueError if `record` does not
        fit the schema, or the writer is closed.
        """
        line = encode_record(record) + b"\n"
        with self._lock:
            if self._descriptor is None:
                raise ValueError(f"the records in {self.folder} are closed")
            before = None
            try:
                before = os.fstat(self._descriptor).st_size
                _write_whole_line(self._descriptor, line)
                os.fsync(self._descriptor)
            except OSError as error:
                _truncate_file(self._descriptor, before)
                (self.folder / _RESERVE).unlink(missing_ok=True)
                raise NotRecorded(
                    f"cannot write the records in {self.folder}: {error.strerror}; earlier records are kept"
                ) from error
            except BaseException:  # a signal: a whole line stays
                if before is not None and os.fstat(self._descriptor).st_size < before + len(line):
                    _truncate_file(self._descriptor, before)
                raise

    def write_file_beside_records(self, name: str, contents: bytes) -> None:
        """Write a file into the campaign's folder, wholly or not at all, and wait until it is on the disk.

        Raises NotRecorded if the disk is full or gone; the message names the folder.
        """
        try:
            with replace_file(self.folder / name) as stream:
                stream.write(contents)
                stream.flush()
                os.fsync(stream.fileno())
            _sync_folder(self.folder)
        except OSError as error:
            raise NotRecorded(
                f"cannot write {name} in {self.folder}: {error.strerror}; earlier records are kept"
            ) from error

    def close(self) -> None:
        """Close the file of records; may be called again."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
                (self.folder / _RESERVE).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write_whole_line(descriptor: int, line: bytes) -> None:
    """Write all bytes of a line to a file, with as many system calls as that takes."""
    view = memoryview(line)
    while view:
        view = view[os.write(descriptor, view) :]


def _truncate_file(descriptor: int, size: int | None) -> None:
    """Cut an open file to `size` bytes; does nothing if `size` is None or the disk is gone."""
    if size is not None:
        with contextlib.suppress(OSError):  # The disk is gone: the reader copes with a half-written last line.
            os.ftruncate(descriptor, size)


def _remove_half_written_line(descriptor: int) -> None:
    """Remove the last line of an open file if the line has no newline."""
    size = end = os.fstat(descriptor).st_size
    whole = 0
    while end > 0 and not whole:
        start = max(0, end - _BLOCK_BYTES)
        at = os.pread(descriptor, end - start, start).rfind(b"\n")
        whole, end = (start + at + 1 if at >= 0 else 0), start
    if whole != size:
        os.ftruncate(descriptor, whole)


def _reserve_disk_space(folder: Path) -> None:
    """Make a file in the folder whose space later lines can use when the disk is full."""
    descriptor = os.open(folder / _RESERVE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, _RESERVE_BYTES)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Write the folder's directory entries to the disk, if the file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some network file systems refuse this for folders; the lines themselves are still synced.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
