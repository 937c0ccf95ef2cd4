"""Folders for a run's scratch files, with its certificate.

The next run removes the folders of killed runs: no process holds their locks.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import shutil
import socket
import tempfile
from pathlib import Path

PREFIX = "merge-bench-"
# Hosts must accept the certificate even if their clocks differ.
VALID = datetime.timedelta(days=30)
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


def write_certificate(folder: Path) -> dict[str, str]:
    """Write a self-signed certificate, which only this run's processes trust; gives the paths of its files.

    They are ``ca``, ``cert`` and ``key``, as PEM. Only this user can read them.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "merge-bench-run")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("merge-bench-run")]), critical=False)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID)
        .not_valid_after(now + VALID)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files = {}
    for kind, content in (("ca", certificate), ("cert", certificate), ("key", private)):
        files[kind] = str(folder / f"{kind}.pem")
        with os.fdopen(os.open(files[kind], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    return files
