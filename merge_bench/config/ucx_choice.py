"""Chooses the UCX that processes load: that of the package `libucx` (without InfiniBand), the system's, or another.

Another one is a release in the user's cache (`ucx_releases.py`), or an installed UCX in a folder of its own. Processes
load it as they would load the system's: its libraries come first in LD_LIBRARY_PATH.

The package `libucx` silently loads its own UCX if it cannot load the system's (which needs the unversioned
``libucp.so``), so another process tries each choice that matters: this module as a program prints the version of its
environment's UCX, yes or no for InfiniBand and for CUDA, and the path of libucp.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from merge_bench.config.files import loaded_library_path
from merge_bench.config.installation import python_path_variables
from merge_bench.config.parsers import AUTO, SYSTEM, WHEEL, parse_ucx_origin
from merge_bench.config.ucx_info import PREFER, libucx_wheel_folder, prefers_system_ucx
from merge_bench.config.ucx_releases import UcxRelease, find_or_install_release, is_ucx_folder, ucx_library_folder
from merge_bench.errors import UsageError, WarningMessage, print_message

VARIABLE = "MERGE_BENCH_UCX"
LIBRARY_PATH = "LD_LIBRARY_PATH"
CHOOSING_UCX = (VARIABLE, PREFER, LIBRARY_PATH)
"""The variables that choose the UCX of a process."""
CODE = "no-infiniband-module"
REMEDY = (
    "install UCX 1.19 or newer with InfiniBand (HPC-X, MOFED, or the packages libucx-dev / ucx-devel with their"
    " InfiniBand part), add its library folder to LD_LIBRARY_PATH, and use --ucx system"
)
CUDA_REMEDY = "use --ucx wheel, or a UCX that was built with CUDA (HPC-X; --with-cuda)"
INFINIBAND = Path("/sys/class/infiniband")
_SECONDS = 60.0


@dataclass(frozen=True)
class LoadedUcx:
    """The UCX that a process has loaded.

    `infiniband`: whether its InfiniBand module can be loaded; `cuda`: whether it was built with CUDA.
    """

    version: str
    infiniband: bool
    library: Path
    cuda: bool = True

    @property
    def is_from_wheel(self) -> bool:
        """Whether this UCX belongs to the package `libucx`."""
        folder = libucx_wheel_folder()
        return folder is not None and self.is_in_folder(folder)

    def is_in_folder(self, folder: Path) -> bool:
        """Whether this UCX's library is in `folder`."""
        return self.library.resolve().is_relative_to(folder.resolve())


@dataclass(frozen=True)
class UcxChoice:
    """The UCX that processes are to load.

    `origin`: ``wheel``, ``system`` or the folder of a UCX. `notice`: the reason, if the user did not make the choice.
    `release`: the UCX in that folder.
    """

    origin: str
    notice: str | None = None
    warning: WarningMessage | None = None
    release: UcxRelease | None = None

    def set_selection_variables(self, environ: MutableMapping[str, str]) -> None:
        """Set the variables in `environ` with which a process loads this UCX."""
        environ.update(ucx_selection_variables(self.origin, environ))
        if self.origin == WHEEL:
            environ.pop(PREFER, None)
        if not environ.get(LIBRARY_PATH):
            environ.pop(LIBRARY_PATH, None)

    @property
    def display_name(self) -> str:
        """The name of this UCX for messages: ``wheel``, ``system``, a release such as ``1.21.0``, or a folder."""
        return self.origin if self.release is None else self.release.name

    def apply_to_process(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Have this process and its child processes load this UCX; prints the choice's notice on standard error."""
        self.set_selection_variables(environ)
        if self.notice:
            print_message(self.notice)


def ucx_selection_variables(origin: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that make a process load the UCX of this `origin`; they replace those of `environ`.

    `origin`: ``wheel``, ``system`` or the folder of a UCX, whose libraries any program finds first.
    """
    before, chosen = environ.get(LIBRARY_PATH, ""), environ.get(VARIABLE, "")
    folders = [folder for folder in before.split(os.pathsep) if folder]
    if is_ucx_folder(chosen):  # put there by an earlier choice
        folders = [folder for folder in folders if folder != str(ucx_library_folder(Path(chosen)))]
    if is_ucx_folder(origin):
        folders.insert(0, str(ucx_library_folder(Path(origin))))
    variables = {VARIABLE: origin, PREFER: "false" if origin == WHEEL else "true"}
    after = os.pathsep.join(folders) if is_ucx_folder(origin) or is_ucx_folder(chosen) else before
    return variables if after == before else {**variables, LIBRARY_PATH: after}


def choose_ucx(
    requested_origin: str | None,
    environ: Mapping[str, str],
    *,
    sends_gpu_memory: bool = False,
    host: UcxHostFacts | None = None,
) -> UcxChoice:
    """Choose the UCX of processes that start with the environment `environ`.

    `requested_origin`: as `parse_ucx_origin` returns it; None: the choice in `environ`, else ``auto``, which means the
    system's UCX if this machine has InfiniBand and that UCX can use it, or if there is no other; `sends_gpu_memory`:
    the processes send GPU memory, so that ``auto`` means the system's UCX only if that was built with CUDA; `host`:
    where they start; None: this host.

    Raises UsageError if another UCX than ``auto`` is requested and UCXX cannot load it, a release cannot be installed,
    or the only UCX cannot send GPU memory.
    """
    host = host or UcxHostFacts()
    requested_origin = _requested_origin(requested_origin, environ)
    devices = sorted(entry.name for entry in host.infiniband.iterdir()) if host.infiniband.is_dir() else []
    if requested_origin not in (AUTO, WHEEL, SYSTEM):
        return _choose_loadable_release(
            find_or_install_release(requested_origin), environ, devices, host, sends_gpu_memory=sends_gpu_memory
        )
    if host.wheel is None and requested_origin == WHEEL:
        raise UsageError("--ucx wheel: the package libucx is not installed in this environment")
    if requested_origin == SYSTEM:
        loaded = host.probe(SYSTEM, environ)
        if loaded is None or loaded.is_from_wheel:
            raise UsageError(f"--ucx system: there is no system libucp.so that UCXX can use; {REMEDY}")
        if sends_gpu_memory:
            refuse_ucx_without_cuda(loaded)
        return UcxChoice(SYSTEM, None, None if loaded.infiniband else _infiniband_warning(devices, SYSTEM))
    default = SYSTEM if host.wheel is None else WHEEL
    if default == SYSTEM and sends_gpu_memory:
        refuse_ucx_without_cuda(host.probe(SYSTEM, environ))
    if not devices:
        return UcxChoice(default)
    loaded = host.probe(SYSTEM if requested_origin == AUTO else WHEEL, environ)
    if loaded is None or not loaded.infiniband or (requested_origin == AUTO and loaded.is_from_wheel):
        return UcxChoice(default, None, _infiniband_warning(devices, default))
    if requested_origin == WHEEL:
        return UcxChoice(WHEEL)
    if sends_gpu_memory and not loaded.cuda:
        return UcxChoice(default, None, _infiniband_or_cuda_warning(devices, loaded))
    return UcxChoice(SYSTEM, f"this machine has InfiniBand: using the system's UCX {loaded.version}, {loaded.library}")


def choose_release_or_folder(version_or_folder: str) -> UcxChoice:
    """Choose a release or the UCX of a folder, for programs that load UCX without UCXX; raises UsageError."""
    release = find_or_install_release(version_or_folder)
    return UcxChoice(str(release.folder), None, None, release)


def _choose_loadable_release(
    release: UcxRelease, environ: Mapping[str, str], devices: list[str], host: UcxHostFacts, *, sends_gpu_memory: bool
) -> UcxChoice:
    """Choose the UCX in a folder of its own; raises UsageError if UCXX does not load it."""
    origin = str(release.folder)
    loaded = host.probe(origin, environ)
    if loaded is None or not loaded.is_in_folder(release.folder):
        raise UsageError(
            f"--ucx {release.name}: UCXX cannot load the UCX in {release.library_folder}; it needs UCX 1.19 or newer"
            " with libucp.so, libuct.so and libucs.so there"
        )
    if sends_gpu_memory:
        refuse_ucx_without_cuda(loaded)
    warning = None if loaded.infiniband else _infiniband_warning(devices, release.name)
    return UcxChoice(origin, None, warning, release)


def refuse_ucx_without_cuda(loaded: LoadedUcx | None) -> None:
    """Raise UsageError if processes that send GPU memory would load a UCX that was built without CUDA."""
    if loaded is not None and not loaded.cuda:
        raise UsageError(
            f"UCX {loaded.version} ({loaded.library}) cannot send GPU memory: it was built without CUDA; {CUDA_REMEDY}"
        )


def choose_and_use_ucx(
    requested_origin: str | None, environ: MutableMapping[str, str] = os.environ, *, sends_gpu_memory: bool = False
) -> UcxChoice:
    """Choose the UCX of this process and of its child processes; prints the choice's notice on standard error.

    UCXX reads the variable when it is imported, so call this before anything imports UCXX. `sends_gpu_memory`: as for
    `choose_ucx`.
    """
    choice = choose_ucx(requested_origin, environ, sends_gpu_memory=sends_gpu_memory)
    choice.apply_to_process(environ)
    return choice


@contextmanager
def undo_ucx_choice(environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Remove at the end of the block the variables that choose a UCX, for callers whose process goes on."""
    before = {name: environ.get(name) for name in CHOOSING_UCX}
    try:
        yield
    finally:
        for name in before:
            environ.pop(name, None)
        environ.update({name: value for name, value in before.items() if value is not None})


@contextmanager
def select_ucx_temporarily(origin: str, environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Set the variables that make a process load the UCX of this `origin`, until the end of the block."""
    with undo_ucx_choice(environ):
        UcxChoice(origin).set_selection_variables(environ)
        yield


def probe_ucx(origin: str, environ: Mapping[str, str]) -> LoadedUcx | None:
    """Find the UCX that a process loads when it imports UCXX as a worker does; None if the import fails."""
    environment = {**environ, **python_path_variables(environ)}
    UcxChoice(origin).set_selection_variables(environment)
    return _probe_ucx_of_environment(tuple(sorted(environment.items())))


@functools.cache
def _probe_ucx_of_environment(environment: tuple[tuple[str, str], ...]) -> LoadedUcx | None:
    """Find the UCX that a process with this environment loads; None if it loads none."""
    program = [sys.executable, "-P", "-m", "merge_bench.config.ucx_choice"]
    try:
        done = subprocess.run(
            program, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
        )
        version, infiniband, cuda, library = done.stdout.strip().split(" ", 3)
    except (OSError, subprocess.TimeoutExpired, ValueError):  # it printed nothing
        return None
    return LoadedUcx(version, infiniband == "yes", Path(library), cuda == "yes") if done.returncode == 0 else None


@dataclass(frozen=True)
class UcxHostFacts:
    """The facts about a host that the choice of its UCX depends on; by default those of this host.

    `infiniband`: the folder with an entry for each InfiniBand adapter; `wheel`: the folder of the package `libucx`,
    None if it is not installed; `probe`: finds the UCX that a process loads, as `probe_ucx`.
    """

    infiniband: Path = INFINIBAND
    wheel: Path | None = field(default_factory=libucx_wheel_folder)
    probe: Callable[[str, Mapping[str, str]], LoadedUcx | None] = probe_ucx


def _requested_origin(requested_origin: str | None, environ: Mapping[str, str]) -> str:
    """The UCX that is asked for, by `requested_origin` or else by `environ`: as `parse_ucx_origin` returns it."""
    if requested_origin is None:
        try:
            requested_origin = parse_ucx_origin(environ.get(VARIABLE) or AUTO)
        except ValueError as error:
            raise UsageError(f"environment variable {VARIABLE}: {error}") from None
    return SYSTEM if requested_origin == AUTO and prefers_system_ucx(environ) else requested_origin


def _infiniband_warning(devices: list[str], origin: str) -> WarningMessage | None:
    """A warning that the chosen UCX cannot use these InfiniBand devices; None without devices."""
    if not devices:
        return None
    return WarningMessage(
        CODE,
        f"all data goes over TCP: this machine has InfiniBand ({', '.join(devices)}), but the chosen UCX ({origin})"
        " cannot use it",
        REMEDY,
    )


def _infiniband_or_cuda_warning(devices: list[str], system_ucx: LoadedUcx) -> WarningMessage:
    """A warning that no UCX here can use both these InfiniBand devices and GPU memory."""
    return WarningMessage(
        CODE,
        f"all data between hosts goes over TCP: this machine has InfiniBand ({', '.join(devices)}), but the system's"
        f" UCX {system_ucx.version} ({system_ucx.library}) was built without CUDA, and the packages' UCX without"
        " InfiniBand",
        "install UCX 1.19 or newer with InfiniBand and CUDA (HPC-X), add its library folder to LD_LIBRARY_PATH, and use"
        " --ucx system",
    )


def has_infiniband_module(libucp: Path) -> bool:
    """Whether UCX's InfiniBand module beside the library `libucp` exists and can be loaded (it needs libibverbs)."""
    return any(_module_loading_problem(module) is None for module in _find_ucx_module_files(libucp, "libuct_ib"))


def has_cuda_module(libucp: Path) -> bool:
    """Whether UCX's CUDA module is beside the library `libucp`; it can be loaded only where there is a driver."""
    return bool(_find_ucx_module_files(libucp, "libuct_cuda"))


def cuda_module_problem(libucp: Path) -> str | None:
    """Why UCX's CUDA module beside the library `libucp` cannot be loaded here; None if it can, or if there is none."""
    return next(map(_module_loading_problem, _find_ucx_module_files(libucp, "libuct_cuda")), None)


def _find_ucx_module_files(libucp: Path, module_name: str) -> list[Path]:
    """The files of a module of UCX, such as ``libuct_ib``: in `UCX_MODULE_DIR` first, then beside UCX's libraries."""
    folders = filter(None, [os.environ.get("UCX_MODULE_DIR"), str(libucp.parent / "ucx")])
    return [module for folder in folders for module in sorted(Path(folder).glob(f"{module_name}.so*"))]


def _module_loading_problem(module: Path) -> str | None:
    """Why a module of UCX cannot be loaded here; None if it can."""
    try:
        ctypes.CDLL(str(module))
    except OSError as error:
        return str(error)
    return None


def print_loaded_ucx() -> int:
    """Print the version of the UCX that this process loads, yes or no for InfiniBand and CUDA, and its path."""
    try:
        import ucxx  # loads libucp as a worker does, and refuses a version that does not fit
    except (ImportError, OSError) as error:
        print(f"merge_bench: UCXX cannot use the installed UCX: {error}", file=sys.stderr)
        return 1

    libucp = loaded_library_path("libucp")
    if libucp is None:
        return 1
    version = ".".join(map(str, ucxx.get_ucx_version()))
    has = ("yes" if module else "no" for module in (has_infiniband_module(libucp), has_cuda_module(libucp)))
    print(version, *has, libucp)
    return 0


if __name__ == "__main__":
    sys.exit(print_loaded_ucx())
