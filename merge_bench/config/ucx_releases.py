"""Releases of UCX in the user's cache: the package `libucx` of a version, which pip installs there once.

A release lies in ``merge_bench/ucx/VERSION/PACKAGE`` of the user's cache: the folder `libucx` of the wheel, with UCX's
``bin`` and ``lib``, and ``release.json`` with the name of the wheel and its SHA-256. Where packages come from is pip's
own configuration. What is in the cache is used without asking pip.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from merge_bench.config.files import TOKENS, make_user_cache_folder, open_without_links, user_cache_folder
from merge_bench.config.parsers import UCX_VERSION
from merge_bench.errors import UsageError, print_message

RELEASE_FILE = "release.json"
STACKS = ("cu13", "cu12")
PERFTEST_OVERSTATES = (
    "ucx_perftest before UCX 1.19 stops its clock while messages are still on their way, so its bandwidth is too high"
    " (openucx/ucx#10184); use UCX 1.19 or newer"
)
_KNOWN_VERSIONS = re.compile(r"\(from versions: ([^)]*)\)")
_INDEX_VERSIONS = re.compile(r"Available versions: (.*)")
_PIP_SECONDS = 600.0
_INSTALL = ("--no-deps", "--no-index", "--no-compile", "--no-user")


@dataclass(frozen=True)
class UcxRelease:
    """A UCX in a folder of its own, which has UCX's ``bin`` and ``lib``.

    `name`: as people write it, ``1.21.0`` or ``/opt/ucx-1.23``; `package`, `wheel`, `sha256`: of a release in the
    user's cache, the package, the file name of its wheel and that file's SHA-256.
    """

    name: str
    folder: Path
    package: str | None = None
    wheel: str | None = None
    sha256: str | None = None

    @property
    def library_folder(self) -> Path:
        """The folder of UCX's libraries."""
        return ucx_library_folder(self.folder)


class _ReleaseFile(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of ``release.json``."""

    package: str
    version: str
    wheel: str
    sha256: str


def is_ucx_folder(origin: str) -> bool:
    """Whether `origin`, a value that `parse_ucx_origin` returned, is the folder of a UCX."""
    return origin.startswith("/")


def version_numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, by which versions are ordered."""
    return tuple(map(int, re.findall(r"\d+", version)))


def perftest_overstates_bandwidth(version: str) -> bool:
    """Whether the bandwidth that ``ucx_perftest`` of this release of UCX prints is too high."""
    return version_numbers(version)[:2] < (1, 19)


def ucx_library_folder(folder: Path) -> Path:
    """The folder of the libraries of the UCX in `folder`: ``lib``, or ``lib64`` if only that has libucp."""
    lib64 = folder / "lib64"
    return lib64 if _has_libucp(lib64) and not _has_libucp(folder / "lib") else folder / "lib"


def _has_libucp(library_folder: Path) -> bool:
    return any(library_folder.glob("libucp.so*"))


def releases_folder() -> Path:
    """The folder of the cached releases, which need not exist."""
    return user_cache_folder() / "ucx"


def cached_releases() -> list[UcxRelease]:
    """The releases in the user's cache that fit the installed stack, the oldest first."""
    try:
        versions = [entry.name for entry in releases_folder().iterdir() if UCX_VERSION.fullmatch(entry.name)]
    except (OSError, RuntimeError):  # there is none yet, or the user has no home
        return []
    releases = (_read_release(version) for version in sorted(versions, key=version_numbers))
    return [release for release in releases if release is not None]


def find_or_install_release(version_or_folder: str) -> UcxRelease:
    """Find the UCX of a release or in a folder; a release that is not in the user's cache is installed there.

    `version_or_folder`: as `parse_ucx_origin` returns it. Raises UsageError if there is no UCX in the folder, or if the
    release cannot be installed.
    """
    if is_ucx_folder(version_or_folder):
        folder = Path(version_or_folder)
        if not _has_libucp(ucx_library_folder(folder)):
            raise UsageError(
                f"--ucx {version_or_folder}: there is no libucp.so in {folder / 'lib'}; name the folder above UCX's lib"
            )
        return release_of_library(ucx_library_folder(folder)) or UcxRelease(version_or_folder, folder)
    try:
        return _read_release(version_or_folder) or _install_release(version_or_folder)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise UsageError(
            f"--ucx {version_or_folder} cannot be installed into the user's cache: {reason or error}"
        ) from None


def release_of_library(library: Path) -> UcxRelease | None:
    """The release of a cache that the library at this path belongs to; None if it is from elsewhere."""
    return next((_read_release_folder(folder) for folder in library.parents if (folder / RELEASE_FILE).is_file()), None)


def released_versions() -> list[str]:
    """Every release of UCX that pip finds or the cache has, the oldest first.

    Raises UsageError if pip finds none and the cache is empty.
    """
    cached = [release.name for release in cached_releases()]
    done = _run_pip("index", "versions", matching_wheel_package())
    match = _INDEX_VERSIONS.search(done.stdout)
    listed = [word.strip() for word in match[1].split(",")] if match else []
    if not listed and not cached:
        raise UsageError(
            f"there is no release of UCX in {releases_folder()}, and pip cannot list those of"
            f" {matching_wheel_package()}: {_last_pip_error(done)}"
        )
    return sorted({*filter(UCX_VERSION.fullmatch, listed), *cached}, key=version_numbers)


def releases_between(first: str, last: str) -> list[str]:
    """The releases of UCX from `first` to `last`, both included, the oldest first.

    Raises UsageError as `released_versions` does.
    """
    low, high = version_numbers(first), version_numbers(last)
    return [version for version in released_versions() if low <= version_numbers(version) <= high]


@functools.cache
def matching_wheel_package() -> str:
    """The package of UCX's wheels that fits the installed stack: for CUDA 12 ``libucx-cu12``, else ``libucx-cu13``."""
    from importlib import metadata

    for name, stack in itertools.product(("libucx", "ucxx"), STACKS):
        with contextlib.suppress(metadata.PackageNotFoundError):
            metadata.version(f"{name}-{stack}")
            return f"libucx-{stack}"
    return f"libucx-{STACKS[0]}"


def _release_cache_folder(version: str) -> Path:
    return releases_folder() / version / matching_wheel_package()


def _read_release(version: str) -> UcxRelease | None:
    """The release in the user's cache that fits the installed stack; None if it is not there."""
    return _read_release_folder(_release_cache_folder(version))


def _read_release_folder(folder: Path) -> UcxRelease | None:
    """The release in a folder of a cache; None if it is not complete."""
    try:
        read = msgspec.json.decode((folder / RELEASE_FILE).read_bytes(), type=_ReleaseFile)
    except (OSError, msgspec.MsgspecError):
        return None
    return UcxRelease(read.version, folder / "libucx", read.package, read.wheel, read.sha256)


def _install_release(version: str) -> UcxRelease:
    """Install the wheel of a release into the user's cache with pip; of several processes at once, one does.

    Raises UsageError, which says why pip failed; OSError, RuntimeError if the cache cannot be written.
    """
    package, target, folder = matching_wheel_package(), _release_cache_folder(version), releases_folder()
    make_user_cache_folder()
    folder.mkdir(exist_ok=True)
    name = f".{version}-{package}"
    with open(folder / ".lock", "w", opener=open_without_links) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the process ends, however it ends
        if (release := _read_release(version)) is not None:
            return release
        for stale in (target, *folder.glob(f"{name}.tmp-*")):
            shutil.rmtree(stale, ignore_errors=True)
        print_message(f"installing UCX {version} (package {package}) into {target}")
        draft = folder / f"{name}.tmp-{os.getpid()}"
        try:
            described = _download_release(draft, package, version)
            target.parent.mkdir(exist_ok=True)
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return UcxRelease(version, target / "libucx", package, described.wheel, described.sha256)


def _download_release(target_folder: Path, package: str, version: str) -> _ReleaseFile:
    """Download the wheel of a release, and install it into the new folder `target_folder`; raises UsageError."""
    downloads = target_folder / "download"
    downloads.mkdir(parents=True)
    plain = ("--no-deps", "--only-binary", ":all:")
    done = _run_pip("download", *plain, "--dest", str(downloads), f"{package}=={version}")
    wheels = list(downloads.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise UsageError(_download_failure_message(package, version, done))
    wheel = wheels[0]
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    done = _run_pip("install", *_INSTALL, "--target", str(target_folder), str(wheel))
    if done.returncode != 0 or not _has_libucp(target_folder / "libucx" / "lib"):
        complaint = _last_pip_error(done) if done.returncode else "the wheel contains no libucx/lib/libucp.so"
        raise UsageError(f"--ucx {version}: {wheel.name} cannot be installed: {complaint}")
    shutil.rmtree(downloads)
    described = _ReleaseFile(package=package, version=version, wheel=wheel.name, sha256=digest)
    (target_folder / RELEASE_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(described)) + b"\n")
    return described


def _download_failure_message(package: str, version: str, pip_result: subprocess.CompletedProcess[str]) -> str:
    """Why pip could not download the wheel of a release, with the releases that there are."""
    cached = ", ".join(release.name for release in cached_releases()) or "none"
    match = _KNOWN_VERSIONS.search(pip_result.stdout)
    listed = [word.strip() for word in match[1].split(",")] if match else []
    if match and listed != ["none"]:
        return f"--ucx {version}: there is no such release of {package} for this machine, but {', '.join(listed)}"
    why = "pip finds no package index, or none that has it" if listed == ["none"] else _last_pip_error(pip_result)
    return f"--ucx {version}: {package} {version} is not in the cache and cannot be downloaded: {why}; cached: {cached}"


def _run_pip(*words: str) -> subprocess.CompletedProcess[str]:
    """Run this Python's pip with its own configuration; the result has standard output and error together."""
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
    options = ("--retries", "1") if words[0] != "install" else ()
    try:
        return subprocess.run(
            [*command, *options],
            env={name: value for name, value in os.environ.items() if name not in TOKENS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PIP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, f"ERROR: pip took more than {_PIP_SECONDS:.0f} s", "")


def _last_pip_error(pip_result: subprocess.CompletedProcess[str]) -> str:
    """The last error that pip printed, on one line."""
    lines: Sequence[str] = [line.strip() for line in pip_result.stdout.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or [f"pip ended with status {pip_result.returncode}"])[-1].rstrip(".")
