"""A certificate that is made for one run and removed after it."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Hosts must accept the certificate even if their clocks differ.
VALID = datetime.timedelta(days=30)


def write_files(folder: Path) -> dict[str, str]:
    """Write a self-signed certificate, which only this run's processes trust; gives the paths of its files.

    They are ``ca``, ``cert`` and ``key``, as PEM. Only this user can read them.
    """
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
