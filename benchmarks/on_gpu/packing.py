"""A whole result folder in one small file, so that little has to be copied from a machine that is lent."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

MOST_LOG_BYTES = 200_000  # of a log, its end
MOST_FILE_BYTES = 2 << 20  # of a file of records, which would be useless if it were cut
MOST_BYTES = 12_000_000  # of the packed file
SQUEEZED = 2  # text is at most half as large when packed
LOGS = (".out", ".err", ".log", ".txt")
LEFT_OUT = ("timeline", "core")  # beginnings of the names of files that are large and can be made again


def pack(folder: Path, target: Path, most: int = MOST_BYTES) -> list[str]:
    """Replace `target` by a ``tar.gz`` of `folder`, of at most `most` bytes; gives the files that were left out.

    Logs are cut to their last bytes. Records come first: if all files together are too large, the largest logs are
    left out.

    Raises
    ------
    OSError
        If a file cannot be read or written.
    """
    left_out: list[str] = []
    temporary = target.with_name(f"{target.name}.new")
    with temporary.open("wb") as raw, tarfile.open(fileobj=raw, mode="w:gz", compresslevel=6) as archive:
        for path, data in _contents(folder, target):
            name = str(path.relative_to(folder))
            if data is None or raw.tell() + len(data) // SQUEEZED > most:
                left_out.append(name)
                continue
            entry = tarfile.TarInfo(f"{folder.name}/{name}")
            entry.size, entry.mtime = len(data), int(path.stat().st_mtime)
            archive.addfile(entry, io.BytesIO(data))
    if temporary.stat().st_size > most:
        temporary.unlink()
        raise OSError(f"{folder} does not fit into {most:,} bytes")
    os.replace(temporary, target)
    return left_out


def _contents(folder: Path, target: Path) -> Iterator[tuple[Path, bytes | None]]:
    """Every file with its bytes, None if it is left out: records and figures first, then logs from small to large."""
    own = (target.resolve(), target.with_name(f"{target.name}.new").resolve())
    files = [
        path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.resolve() not in own
    ]
    for path in sorted(files, key=lambda path: (path.suffix in LOGS, path.stat().st_size, path)):
        size = path.stat().st_size
        if path.name.startswith(LEFT_OUT) or (path.suffix not in LOGS and size > MOST_FILE_BYTES):
            yield path, None
            continue
        with path.open("rb") as file:
            file.seek(max(0, size - MOST_LOG_BYTES) if path.suffix in LOGS else 0)
            yield path, file.read()
