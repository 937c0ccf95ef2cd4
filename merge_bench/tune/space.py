"""The tuning space: a TOML file → settings with their values, what each needs and what it cannot go with."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merge_bench.campaign.choices import complete
from merge_bench.config.names import PREFIX
from merge_bench.config.options import BY_KEY, BY_VARIABLE
from merge_bench.config.trust import REMEDY, SETTING, judge
from merge_bench.errors import UsageError

CONDITIONS = frozenset(
    {"one-host", "several-hosts", "gpu", "no-gpu", "infiniband", "several-devices", "tcp", "data-plane",
     "dask-over-ucx", "peer-error-handling"}
)  # fmt: skip
OPTIONS = frozenset(
    BY_KEY[key].variable
    for key in ("engine", "error_handling", "exchange", "interface", "message_size", "protocol", "rmm_pool_size",
                "shuffle")
)  # fmt: skip
"""What a space may set beside variables of the libraries: options that leave the problem and its proof as they are."""
_SETTING = {"name", "values", "requires", "conflicts", "ucx", "risk", "source"}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_RELEASES = re.compile(r"(>=|<)(\d+)\.(\d+)")


@dataclass(frozen=True)
class Value:
    """One value of a setting: `id` is ``setting=label``; `variables` are what it sets in a config."""

    setting: str
    label: str
    variables: tuple[tuple[str, str], ...]

    @property
    def id(self) -> str:
        """How the value is named everywhere."""
        return f"{self.setting}={self.label}"


@dataclass(frozen=True)
class Setting:
    """One thing that may be set. `releases`: conditions on UCX's version, as ``>=1.16``."""

    name: str
    values: tuple[Value, ...]
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    risk: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Space:
    """The settings, in the order of the file, and the file's SHA-256."""

    settings: tuple[Setting, ...]
    sha256: str

    @property
    def values(self) -> tuple[Value, ...]:
        """All values of all settings."""
        return tuple(value for setting in self.settings for value in setting.values)

    def conflict(self, value: Value, others: Sequence[Value]) -> str | None:
        """The id of one of `others` that `value` cannot be combined with; another value of its setting is one."""
        for other in others:
            if other.setting == value.setting or self._declared(value, other) or self._declared(other, value):
                return other.id
            if {name for name, _ in value.variables} & {name for name, _ in other.variables}:
                return other.id
        return None

    def only(self, names: Sequence[str]) -> Space:
        """The same with these settings alone.

        Raises
        ------
        UsageError
            If there is none of a name.
        """
        known = [setting.name for setting in self.settings]
        for name in names:
            if name not in known:
                raise UsageError(f"the tuning space has no setting {name}; it has {', '.join(known)}")
        return Space(tuple(setting for setting in self.settings if setting.name in names), self.sha256)

    def _declared(self, value: Value, other: Value) -> bool:
        setting = next(each for each in self.settings if each.name == value.setting)
        return other.id in setting.conflicts or other.setting in setting.conflicts


def read_space(path: Path, *, trusted: bool = False) -> Space:
    """Read a tuning space; unless it is `trusted` it may set what processes get of any config, and nothing else.

    Raises
    ------
    UsageError
        Naming the file and what is wrong in it.
    """
    try:
        text = path.read_bytes()
        document = tomllib.loads(text.decode())
    except OSError as error:
        raise UsageError(f"--space {path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"--space {path}: {error}") from error
    entries = document.pop("setting", None)
    if document or not isinstance(entries, list) or not entries:
        raise UsageError(f"--space {path}: it holds [[setting]] tables, and nothing else")
    settings = tuple(_setting(entry, path) for entry in entries)
    for value in (value for setting in settings if not trusted for value in setting.values):
        _refuse_code(value, path)
    names = [setting.name for setting in settings]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"--space {path}: the setting {twice} is there twice")
    ids = {*names, *(value.id for setting in settings for value in setting.values)}
    for setting in settings:
        for other in setting.conflicts:
            if other not in ids:
                raise UsageError(f"--space {path}: {setting.name} conflicts with {other}, which is not there")
    return Space(settings, hashlib.sha256(text).hexdigest())


def allows(releases: Sequence[str], version: str) -> bool:
    """Whether UCX `version`, as ``1.21.0``, meets all conditions, as ``>=1.16``."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return False
    have = (int(numbers[1]), int(numbers[2]))
    for condition in releases:
        match = _RELEASES.fullmatch(condition)
        assert match is not None
        bound = (int(match[2]), int(match[3]))
        if (have < bound) if match[1] == ">=" else (have >= bound):
            return False
    return True


def _setting(entry: Any, path: Path) -> Setting:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not _NAME.fullmatch(entry["name"]):
        raise UsageError(f"--space {path}: a setting has no name of small letters, digits and dashes")
    name = entry["name"]
    where = f"--space {path}: {name}"
    unknown = sorted(set(entry) - _SETTING)
    if unknown:
        raise UsageError(f"{where} has {unknown[0]}, which is none of {', '.join(sorted(_SETTING))}")
    requires, conflicts, releases = (_texts(entry, key, where) for key in ("requires", "conflicts", "ucx"))
    for condition in requires:
        if condition not in CONDITIONS:
            raise UsageError(f"{where} requires {condition}, which is none of {', '.join(sorted(CONDITIONS))}")
    for condition in releases:
        if not _RELEASES.fullmatch(condition):
            raise UsageError(f"{where}: ucx {condition!r} is not like >=1.16 or <1.20")
    values = entry.get("values")
    if not isinstance(values, list) or not values:
        raise UsageError(f"{where} has no values")
    made = tuple(_value(name, each, where) for each in values)
    labels = [value.label for value in made]
    if len(set(labels)) != len(labels):
        raise UsageError(f"{where} has a label twice")
    notes = {key: entry.get(key) for key in ("risk", "source")}
    if not all(note is None or isinstance(note, str) for note in notes.values()):
        raise UsageError(f"{where}: risk and source are texts")
    return Setting(name, made, requires, conflicts, releases, notes["risk"], notes["source"])


def _value(setting: str, entry: Any, where: str) -> Value:
    if not isinstance(entry, dict) or set(entry) != {"label", "set"} or not isinstance(entry["set"], Mapping):
        raise UsageError(f"{where}: a value is {{ label = …, set = {{ NAME = … }} }}")
    label, variables = entry["label"], entry["set"]
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise UsageError(f"{where}: {label!r} is no label")
    for name, value in variables.items():
        if name.startswith(PREFIX) and name not in OPTIONS:
            raise UsageError(f"{where}={label}: {name} is none of the options of a space: {', '.join(sorted(OPTIONS))}")
        if not _VARIABLE.fullmatch(name) or not isinstance(value, str) or not value or "\n" in value:
            raise UsageError(f"{where}={label}: {name} = {value!r} is no variable with a text for it")
    if not variables:
        raise UsageError(f"{where}={label} sets nothing")
    for name in OPTIONS & set(variables):
        try:
            complete(BY_VARIABLE[name]).parse(variables[name])
        except ValueError as error:
            raise UsageError(f"{where}={label}: {name}={variables[name]}: {error}") from error
    return Value(setting, label, tuple(sorted(variables.items())))


def _refuse_code(value: Value, path: Path) -> None:
    for name, text in value.variables:
        judged = judge(name, text)
        if judged.kind != SETTING:
            what = judged.what or "is no setting that processes get"
            raise UsageError(f"--space {path}: {value.id}: {name} {what}; {REMEDY}")


def _texts(entry: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    found = entry.get(key, [])
    found = [found] if isinstance(found, str) else found
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise UsageError(f"{where}: {key} is a list of texts")
    return tuple(found)
