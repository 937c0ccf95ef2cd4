"""Finds what UCX's settings mean and accept: from the installed UCX's program ``ucx_info``, and in other releases.

Only the library itself gives reliable answers about values: its parsers differ between releases and accept more than
the printed syntax (``inf``, ``auto``, units, ``^`` lists). Of a config, only the values of typed settings are passed
on, so that running ``ucx_info`` never writes a file, loads a library or starts a debugger. Names that the installed UCX
lacks are looked up in ``ucx_names.json``, the settings of public releases and of their modules.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from merge_bench.config.parsers import suggest_similar_names
from merge_bench.config.ucx_releases import is_ucx_folder, release_of_library, ucx_library_folder
from merge_bench.errors import UsageError

PREFER = "RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY"
"""The variable that makes the package `libucx` load the system's UCX when a process imports UCXX."""
NAME_LISTS = ("UCX_TLS", "UCX_NET_DEVICES", "UCX_SHM_DEVICES", "UCX_ACC_DEVICES", "UCX_SELF_DEVICES")
"""The settings that list the transports and devices that a process opens."""
_SECONDS = 30.0
# Memory allocator hooks take nearly all of ucx_info's time (0.4 s of 0.42) and are not needed here. Either of these
# variables turns them off; the second one is used to get the default of the first.
_NO_HOOKS = {"UCX_MEM_EVENTS": "n"}
_NO_HOOKS_EITHER = {"UCX_MEM_MMAP_HOOK_MODE": "none"}
_SETTING = re.compile(r"(?:# )?(UCX_[A-Z0-9_]+)(?:=(.*)| \((deprecated)\))")  # it may be commented out
_KEYED_NOTE = re.compile(r"(syntax|inherits|alias of): +(.*)")
_SYNTAX_IN_BRACKETS = re.compile(r"(?:comma-separated list of: )?\[([^]]*)\]")
# Typed settings that would affect the ucx_info process; their values are compared with the printed syntax instead.
_NOT_PASSED = re.compile(
    r"UCX_(HANDLE_ERRORS|ERROR_SIGNALS|LOG_.*|MODULE_.*|PLUGIN_.*|DEBUG_SIGNO|MEMTRACK_.*|VFS_.*|PROFILE_.*)"
)
_MODULES = {
    "core": "UCX itself",
    "debug": "a UCX that was built with statistics or debugging",
    "ib": "the InfiniBand module (libuct_ib)",
    "ib_mlx5": "the InfiniBand module for NVIDIA adapters (libuct_ib, since 1.18 libuct_ib_mlx5)",
    "ib_efa": "the module for AWS EFA (libuct_ib_efa)",
    "rdmacm": "the module of the RDMA connection manager (libuct_rdmacm)",
    "cuda": "the CUDA module (libuct_cuda, which needs a CUDA driver)",
    "cuda_gdrcopy": "the GDRCopy module (libuct_cuda_gdrcopy)",
}
# UCX reads it with getenv, so no table contains it (src/ucs/config/parser.c).
_OUTSIDE_TABLES = {"UCX_CONFIG_DIR"}


@dataclass(frozen=True)
class UcxInfoProgram:
    """The ``ucx_info`` of one installed UCX. `origin`: ``wheel`` or ``system``; `library_folder`: the folder of UCX's
    libraries, None if the linker finds them.
    """

    program: Path
    origin: str
    library_folder: Path | None = None


@dataclass(frozen=True)
class UcxSetting:
    """One setting of UCX as ``ucx_info -c -f -a`` prints it.

    `inherits`: the names of settings whose values this one takes if it is unset; `alias_of`: its other name;
    `syntax` and `doc`: as printed; `default`: the value if no ``UCX_`` variable is set (``ucx.conf`` is included).
    """

    name: str
    default: str
    syntax: str
    inherits: tuple[str, ...] = ()
    alias_of: str | None = None
    deprecated: bool = False
    doc: str = ""


@dataclass(frozen=True)
class InstalledUcx:
    """An installed UCX with its settings by name. `transports`: the devices of each transport."""

    info: UcxInfoProgram
    version: str
    settings: dict[str, UcxSetting]
    transports: dict[str, tuple[str, ...]] = field(default_factory=dict)


def find_ucx_info(origin: str = "auto", environ: Mapping[str, str] = os.environ) -> UcxInfoProgram:
    """Find the program ``ucx_info`` of the UCX that the workers will load.

    `origin`: ``wheel`` (the libucx package), ``system`` (on PATH), the folder of a UCX, or ``auto``: like UCXX's own
    loader, the system's if `prefers_system_ucx` or there is no wheel. Raises UsageError if there is no ``ucx_info``.
    """
    if is_ucx_folder(origin):
        program, libraries = Path(origin, "bin", "ucx_info"), ucx_library_folder(Path(origin))
        if not program.is_file():
            raise UsageError(f"ucx_info is missing: there is no {program}")
        return UcxInfoProgram(program, "system" if release_of_library(libraries) is None else "wheel", libraries)
    folder = (
        libucx_wheel_folder() if origin == "wheel" or (origin == "auto" and not prefers_system_ucx(environ)) else None
    )
    if folder is not None and (folder / "bin" / "ucx_info").is_file():
        return UcxInfoProgram(folder / "bin" / "ucx_info", "wheel", folder / "lib")
    path = shutil.which("ucx_info", path=environ.get("PATH")) if origin != "wheel" else None
    if path is not None:
        return UcxInfoProgram(Path(path), "system")
    wheel, system = "the package libucx is not installed", "the system's ucx_info is not on PATH"
    what = {
        "wheel": f"{wheel}; install it, or use --ucx system",
        "system": f"{system}; install it (Debian: ucx-utils), or use --ucx wheel",
    }
    raise UsageError(f"ucx_info is missing: {what.get(origin, f'{wheel}, and {system}; install one of them')}")


def libucx_wheel_folder() -> Path | None:
    """The folder of the package `libucx`; None if that package is not installed."""
    spec = importlib.util.find_spec("libucx")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def prefers_system_ucx(environ: Mapping[str, str]) -> bool:
    """Whether `environ` tells the package `libucx` to load the system's UCX."""
    return environ.get(PREFER, "false").lower() != "false"


@functools.cache
def read_installed_ucx(info: UcxInfoProgram) -> InstalledUcx:
    """Read version, settings and transports of a UCX, ignoring ``UCX_`` variables of the environment; cached.

    Raises UsageError if the program cannot be run or its output cannot be read.
    """
    status, text = _run_ucx_info(info, ("-v", "-d", "-c", "-f", "-a"), {})
    version = re.search(r"^# (?:Library version|Version):? +(\S+)", text, re.MULTILINE)
    settings = parse_ucx_settings(text)
    if status != 0 or version is None or not settings:
        raise UsageError(f"{info.program} did not print its settings (exit status {status})")
    hooks = parse_ucx_settings(_run_ucx_info(info, ("-c", "-f", "-a"), {}, _NO_HOOKS_EITHER)[1])
    settings |= {name: hooks[name] for name in _NO_HOOKS if name in hooks}
    return InstalledUcx(info, version[1], settings, _parse_transports(text))


def find_installed_ucx(origin: str = "auto", environ: Mapping[str, str] = os.environ) -> InstalledUcx | None:
    """Read version, settings and transports of the UCX that workers will load; None if that fails."""
    try:
        return read_installed_ucx(find_ucx_info(origin, environ))
    except UsageError:
        return None


def effective_settings(installed: InstalledUcx, given_settings: Mapping[str, str]) -> dict[str, str]:
    """The value of every setting of `installed` if only `given_settings` are set, as UCX prints it (``8K`` for 8192).

    Those of `given_settings` that would affect the process of ucx_info are left out.
    """
    passed = {name: value for name, value in given_settings.items() if not _NOT_PASSED.fullmatch(name)}
    settings = parse_ucx_settings(_run_ucx_info(installed.info, ("-c", "-f", "-a"), passed)[1])
    return {name: setting.default for name, setting in settings.items()}


def usable_transports(installed: InstalledUcx, given_settings: Mapping[str, str]) -> frozenset[str]:
    """The transports on which a process on this machine can send if only the settings `given_settings` are set.

    UCX itself opens them, with those of `given_settings` that list transports or devices.
    """
    lists = {name: given_settings[name] for name in NAME_LISTS if name in given_settings}
    if not lists:
        return frozenset(installed.transports)
    try:
        text = _run_ucx_info(installed.info, ("-p", "-u", "t"), lists)[1]
    except UsageError:
        text = ""
    transports = frozenset(re.findall(r"^#\s+resource \d+ .* flags -\S* +(\w+)/", text, re.MULTILINE))
    if transports or "no usable transports" in text or "list is empty" in text:
        return transports
    return frozenset(installed.transports)  # a release that prints something else: the workers will say


def parse_ucx_settings(text: str) -> dict[str, UcxSetting]:
    """Parse the output of ``ucx_info -c -f -a`` to settings by name."""
    settings: dict[str, UcxSetting] = {}
    notes: list[str] = []  # comment lines above a setting
    for line in text.splitlines():
        if match := _SETTING.fullmatch(line):
            settings[match[1]] = _make_ucx_setting(match[1], match[2] or "", bool(match[3]), notes)
            notes = []
        elif line.startswith("#"):
            notes.append(line[1:].strip())
        else:
            notes = []
    return settings


def _make_ucx_setting(name: str, default: str, deprecated: bool, notes: Sequence[str]) -> UcxSetting:
    """Make a `UcxSetting` of what ``ucx_info`` prints about it; `notes`: the comment lines above the setting."""
    keyed = {match[1]: match[2] for line in notes if (match := _KEYED_NOTE.match(line))}
    doc = " ".join(line for line in notes if line and not _KEYED_NOTE.match(line))
    inherits = tuple(re.findall(r"[^,\s]+", keyed.get("inherits", "")))
    return UcxSetting(name, default, keyed.get("syntax", ""), inherits, keyed.get("alias of"), deprecated, doc)


def _parse_transports(text: str) -> dict[str, tuple[str, ...]]:
    """Parse the output of ``ucx_info -d`` to the devices of each transport."""
    devices: dict[str, tuple[str, ...]] = {}
    transport = ""
    for kind, name in re.findall(r"^#[ \t]+(Transport|Device): +(\S+)", text, re.MULTILINE):
        if kind == "Transport":
            transport = name
        elif transport:
            devices[transport] = (*devices.get(transport, ()), name)
    return devices


def find_invalid_values(
    installed: InstalledUcx, values: Mapping[str, str], syntaxes: Mapping[str, str]
) -> dict[str, str]:
    """The names of the settings whose values UCX refuses, each with a phrase that tells the accepted values.

    `syntaxes`: the syntax of each name, as UCX printed it. All values are tried in one process; only if that reports an
    error or crashes (some releases do, on a bad value of an alias), each is tried on its own.
    """
    problems: dict[str, str] = {}
    passed: dict[str, str] = {}
    for name, value in values.items():
        syntax = syntaxes[name]
        if _NOT_PASSED.fullmatch(name):
            if sentence := _syntax_problem(value, syntax):
                problems[name] = sentence
        elif syntax not in ("", "N/A") and not syntax.endswith("string"):
            passed[name] = value
    if passed and _problem_reported_by_ucx(installed.info, passed, syntaxes) is not None:
        with ThreadPoolExecutor(4) as pool:
            answers = pool.map(
                lambda name: _problem_reported_by_ucx(installed.info, {name: passed[name]}, syntaxes), passed
            )
            problems |= {name: sentence for name, sentence in zip(passed, answers, strict=True) if sentence is not None}
    return problems


def _syntax_problem(value: str, syntax: str) -> str | None:
    """A phrase about a value that is none of the words which its `syntax` lists; None if there is no problem.

    For settings that are not passed to ucx_info.
    """
    words = _SYNTAX_IN_BRACKETS.fullmatch(syntax)
    if words is None:
        return None
    allowed = words[1].lower().split("|")
    listed = [word for word in value.lower().split(",") if word] if syntax.startswith("comma") else [value.lower()]
    return None if all(word in allowed for word in listed) else f"expected {syntax}"


def _problem_reported_by_ucx(
    info: UcxInfoProgram, values: Mapping[str, str], syntaxes: Mapping[str, str]
) -> str | None:
    """A phrase about the first of the settings' `values` that ``ucx_info`` refuses; None if it accepts all."""
    status, text = _run_ucx_info(info, ("-c",), values)
    refused = re.search(r"Invalid value for [^:]*: '.*?'\. Expected: (.*)", text, re.DOTALL)
    if refused:
        return f"expected {refused[1].splitlines()[0]}"
    if status != 0:
        return f"UCX cannot read this value; expected {syntaxes[next(iter(values))]}"
    return None


def _run_ucx_info(
    info: UcxInfoProgram,
    arguments: tuple[str, ...],
    values: Mapping[str, str],
    hook_settings: Mapping[str, str] = _NO_HOOKS,
) -> tuple[int, str]:
    """Run ucx_info with `values` as its only ``UCX_`` variables; returns the exit status and the output."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    paths = [str(path) for path in (info.library_folder, os.environ.get("LD_LIBRARY_PATH")) if path]
    if paths:
        environment["LD_LIBRARY_PATH"] = ":".join(paths)
    environment |= {"UCX_HANDLE_ERRORS": "none", "UCX_WARN_UNUSED_ENV_VARS": "n", **hook_settings, **values}
    try:
        done = subprocess.run(
            [str(info.program), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, ""
    except OSError as error:
        raise UsageError(f"{info.program} cannot be run: {error.strerror}") from None
    return done.returncode, done.stdout.decode(errors="replace")


@dataclass(frozen=True)
class ReleasedSettingName:
    """A setting's name in UCX's public releases. `since`, `until`: the first and last examined release that has it."""

    name: str
    module: str
    inherits: tuple[str, ...]
    since: str
    until: str


@dataclass(frozen=True)
class SettingMeaning:
    """What the name of a setting means to the installed UCX.

    `kind`: ``known``, ``inherited``, ``alias``, ``deprecated``, ``module-absent``, ``no-effect`` or ``unknown``;
    `message`: the meaning in words; `syntax`: that of the value, if the installed UCX has the setting.
    """

    kind: str
    message: str = ""
    syntax: str = ""


@dataclass(frozen=True)
class SettingCatalogue:
    """All names of UCX settings: of the `installed` UCX (None if ucx_info cannot be run) and of public releases."""

    installed: InstalledUcx | None

    @functools.cached_property
    def inheriting_names_by_parent(self) -> dict[str, list[str]]:
        """The names of the installed UCX's settings that inherit a value, by the name that they inherit from."""
        return _inheriting_names_by_parent(self.installed.settings.values() if self.installed else ())

    @functools.cached_property
    def _released_names_by_parent(self) -> dict[str, list[str]]:
        """The names of the settings of public releases that inherit a value, by the name that they inherit from."""
        return _inheriting_names_by_parent(read_released_setting_names()[1].values())

    @property
    def major_and_minor_numbers(self) -> tuple[int, ...]:
        """The major and minor number of the UCX release."""
        return _major_and_minor_numbers(self.ucx_version)

    @property
    def ucx_version(self) -> str:
        """The release of the installed UCX, or else the newest examined release."""
        return self.installed.version if self.installed else read_released_setting_names()[0][-1]

    def all_setting_names(self) -> set[str]:
        """The name of every setting that some UCX release reads."""
        installed = self.installed.settings if self.installed else ()
        return {
            *installed,
            *self.inheriting_names_by_parent,
            *read_released_setting_names()[1],
            *self._released_names_by_parent,
            *_OUTSIDE_TABLES,
        }

    def find_setting_meaning(self, name: str) -> SettingMeaning:
        """Find what the setting `name` means to the installed UCX."""
        if name in _OUTSIDE_TABLES:
            return SettingMeaning("known", "folder that contains ucx.conf")
        if self.installed is not None:
            if name in self.installed.settings:
                return _meaning_in_installed_ucx(self.installed.settings[name])
            if name in self.inheriting_names_by_parent:
                heirs = [self.installed.settings[heir] for heir in self.inheriting_names_by_parent[name]]
                current = [heir for heir in heirs if not heir.deprecated]
                if not current:
                    return _meaning_in_installed_ucx(heirs[0])
                return SettingMeaning(
                    "inherited", _describe_affected_settings([heir.name for heir in current]), current[0].syntax
                )
        return self._meaning_in_other_releases(name)

    def _meaning_in_other_releases(self, name: str) -> SettingMeaning:
        """Find in the public releases what a name means that the installed UCX does not have."""
        versions, shipped = read_released_setting_names()
        names = [name] if name in shipped else self._released_names_by_parent.get(name, [])
        if not names:
            hint = (
                suggest_similar_names(name, self.all_setting_names(), cutoff=0.8)
                or "; no UCX setting has a similar name"
            )
            return SettingMeaning(
                "unknown", f"no UCX release from {versions[0]} to {versions[-1]} has this setting{hint}"
            )
        entries = [shipped[name] for name in names]
        now = [entry for entry in entries if self._exists_in_this_release(entry, versions[-1])]
        sets = "" if names == [name] else f"{_describe_affected_settings(names)}; "
        if now and self.installed is None:
            return SettingMeaning("known", f"{sets}value not checked, because ucx_info cannot be run")
        if now and now[0].module == "core":
            return SettingMeaning("no-effect", f"UCX {self.ucx_version} was built without this setting")
        if now:
            module = _MODULES.get(now[0].module, f"the module {now[0].module}")
            return SettingMeaning("module-absent", f"{sets}belongs to {module}, which is not loaded on this machine")
        first = min(entries, key=lambda entry: _major_and_minor_numbers(entry.since))
        if _major_and_minor_numbers(first.since) > self.major_and_minor_numbers:
            return SettingMeaning("no-effect", f"needs UCX {first.since} or newer; this UCX is {self.ucx_version}")
        last = max(entries, key=lambda entry: _major_and_minor_numbers(entry.until))
        return SettingMeaning(
            "no-effect", f"UCX removed this setting after {last.until}; UCX {self.ucx_version} does not have it"
        )

    def _exists_in_this_release(self, entry: ReleasedSettingName, newest_release: str) -> bool:
        """Whether the installed UCX's release has the setting `entry`; `newest_release`: the newest examined one."""
        removed = entry.until != newest_release and self.major_and_minor_numbers > _major_and_minor_numbers(entry.until)
        return _major_and_minor_numbers(entry.since) <= self.major_and_minor_numbers and not removed


def _meaning_in_installed_ucx(setting: UcxSetting) -> SettingMeaning:
    """What a setting of the installed UCX means."""
    if setting.deprecated:
        doc = setting.doc.removeprefix("The configuration parameter ")
        return SettingMeaning("deprecated", doc or "UCX ignores this setting")
    if setting.alias_of:
        return SettingMeaning("alias", f"another name of {setting.alias_of}", setting.syntax)
    return SettingMeaning("known", "", setting.syntax)


def _major_and_minor_numbers(version: str) -> tuple[int, ...]:
    """The major and minor number of a release."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _describe_affected_settings(names: Sequence[str]) -> str:
    """A phrase that names the settings which another name sets: ``sets A, B, C and 2 more``."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"sets {', '.join(names[:3])}{more}"


def _inheriting_names_by_parent(settings: Iterable[UcxSetting | ReleasedSettingName]) -> dict[str, list[str]]:
    """The names of the settings that inherit a value, by the name that they inherit from."""
    heirs: dict[str, list[str]] = {}
    for setting in settings:
        for parent in setting.inherits:
            heirs.setdefault(parent, []).append(setting.name)
    return heirs


@functools.cache
def read_released_setting_names() -> tuple[tuple[str, ...], dict[str, ReleasedSettingName]]:
    """The examined UCX releases and their settings' names, from ``ucx_names.json``."""
    data = json.loads(resources.files("merge_bench.config").joinpath("ucx_names.json").read_text(encoding="utf-8"))
    versions = tuple(data["versions"])
    names: dict[str, ReleasedSettingName] = {}
    for module, entries in data["modules"].items():
        for name, entry in entries.items():
            inherits = tuple(f"UCX_{parent}" for parent in entry.get("inherits", ()))
            since, until = entry.get("since", versions[0]), entry.get("until", versions[-1])
            names[f"UCX_{name}"] = ReleasedSettingName(f"UCX_{name}", module, inherits, since, until)
    return versions, names
