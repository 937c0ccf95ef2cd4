"""Small wheels of `libucx` that pip installs as the real ones, with a ``ucx_info`` that is a shell script."""

from __future__ import annotations

import base64
import hashlib
import shutil
import zipfile
from pathlib import Path

from merge_bench.config.ucx_releases import RELEASE_FILE, matching_wheel_package

SETTINGS = """\
# Library version: {version}
#
# Transports
#
# syntax:    comma-separated list (use "all" for including all items or \'^\' for negation) of: string
#
UCX_TLS=all
"""


def make_wheel(folder: Path, version: str, *, library: bool = True, more_settings: str = "") -> Path:
    """Write a wheel of the fitting package into `folder`; `library`: with a file that is called libucp.so."""
    package = matching_wheel_package()
    name = f"{package.replace('-', '_')}-{version}"
    text = SETTINGS.format(version=version) + more_settings
    files = {
        "libucx/__init__.py": b"",
        "libucx/bin/ucx_info": f"#!/bin/sh\ncat <<'END'\n{text}END\n".encode(),
        f"{name}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode(),
        f"{name}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if library:
        files["libucx/lib/libucp.so"] = b"no library"
    record = f"{name}.dist-info/RECORD"
    sums = {
        each: base64.urlsafe_b64encode(hashlib.sha256(files[each]).digest()).rstrip(b"=").decode() for each in files
    }
    lines = [f"{each},sha256={sums[each]},{len(files[each])}" for each in files]
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for each, content in {**files, record: "\n".join([*lines, f"{record},,"]).encode()}.items():
            entry = zipfile.ZipInfo(each)
            entry.external_attr = (0o100755 if "/bin/" in each else 0o100644) << 16
            archive.writestr(entry, content)
    return wheel


def put_into_cache(cache: Path, version: str, *, more_settings: str = "") -> Path:
    """Make a release of this version below `cache`, a value of XDG_CACHE_HOME, as pip would; returns its folder."""
    target = cache / "merge_bench" / "ucx" / version / matching_wheel_package()
    wheel = make_wheel(cache / "wheels", version, more_settings=more_settings)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    (target / "libucx/bin/ucx_info").chmod(0o755)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    package = matching_wheel_package()
    about = f'{{"package": "{package}", "version": "{version}", "wheel": "{wheel.name}", "sha256": "{digest}"}}'
    (target / RELEASE_FILE).write_text(about)
    shutil.rmtree(wheel.parent)
    return target / "libucx"
