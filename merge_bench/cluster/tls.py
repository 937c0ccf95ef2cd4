"""Certificates made for one run and gone after it."""

from __future__ import annotations

import datetime
import os

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from merge_bench.cluster import scratch

# Hosts whose clocks differ must not refuse each other.
VALID = datetime.timedelta(days=30)


class RunCertificate:
    """A self-signed certificate that only this run's processes trust, in a folder only this user can read."""

    def __init__(self) -> None:
        certificate, key = _make()
        self.texts = {"ca.pem": certificate, "cert.pem": certificate, "key.pem": key}
        self.folder = scratch.make("tls")
        self.files = {}
        for name, text in self.texts.items():
            path = self.folder / name
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
            self.files[path.stem] = str(path)

    def remove(self) -> None:
        """Delete the files."""
        scratch.remove(self.folder)


def options(folder: str) -> tuple[str, ...]:
    """Options of `dask scheduler` and `dask worker`: names of files, never their contents."""
    return ("--tls-ca-file", f"{folder}/ca.pem", "--tls-cert", f"{folder}/cert.pem", "--tls-key", f"{folder}/key.pem")


def _make() -> tuple[str, str]:
    """A certificate for itself and its private key, as PEM."""
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
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()
