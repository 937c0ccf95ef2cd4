"""Certificates made for one run and gone after it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from distributed.security import Security


class RunCertificate:
    """A self-signed certificate that only this run's processes trust, in a folder only this user can read."""

    def __init__(self) -> None:
        credentials = Security.temporary()
        self.folder = Path(tempfile.mkdtemp(prefix="merge-bench-tls-"))
        self.files = {}
        for name, text in (
            ("ca", credentials.tls_ca_file),
            ("cert", credentials.tls_scheduler_cert),
            ("key", credentials.tls_scheduler_key),
        ):
            path = self.folder / f"{name}.pem"
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(str(text))
            self.files[name] = str(path)

    def options(self) -> list[str]:
        """Options of `dask scheduler` and `dask worker`: names of files, never their contents."""
        return ["--tls-ca-file", self.files["ca"], "--tls-cert", self.files["cert"], "--tls-key", self.files["key"]]

    def remove(self) -> None:
        """Delete the files."""
        shutil.rmtree(self.folder, ignore_errors=True)
