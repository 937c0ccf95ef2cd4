"""The tuning space: a TOML file becomes settings, each with its values, conditions and conflicts."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from merge_bench.campaign import add_allowed_values
from merge_bench.config.files import read_regular_file
from merge_bench.config.options import BY_KEY, BY_VARIABLE
from merge_bench.config.variables import PREFIX, REMEDY, SETTING, judge_variable
from merge_bench.errors import UsageError

Condition = Literal[
    "one-host",
    "several-hosts",
    "gpu",
    "no-gpu",
    "infiniband",
    "several-devices",
    "tcp",
    "data-plane",
    "dask-over-ucx",
    "peer-error-handling",
]
CONDITIONS = frozenset(get_args(Condition))
_KEYS = ["engine", "error_handling", "exchange", "interface", "message_size", "protocol", "rmm_pool_size", "shuffle"]
OPTIONS = frozenset(BY_KEY[key].variable for key in _KEYS)
"""The options that a space may set: those that do not change the problem or its verification."""
_RELEASE = re.compile(r"(>=|<)(\d+)\.(\d+)")
_Release = Annotated[str, msgspec.Meta(pattern=rf"^{_RELEASE.pattern}\Z")]


@dataclass(frozen=True)
class SettingValue:
    """One value of a setting; `variables` are what it sets in a config."""

    setting: str
    label: str
    variables: tuple[tuple[str, str], ...]

    @property
    def id(self) -> str:
        return f"{self.setting}={self.label}"


@dataclass(frozen=True)
class Setting:
    """A setting to try. `releases`: conditions on the version of UCX, as ``>=1.16``."""

    name: str
    values: tuple[SettingValue, ...]
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    risk: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class TuningSpace:
    """A tuning space: its settings in the order of the file, and the SHA-256 of the file."""

    settings: tuple[Setting, ...]
    sha256: str

    @property
    def values(self) -> tuple[SettingValue, ...]:
        return tuple(value for setting in self.settings for value in setting.values)

    def conflicting_id(self, value: SettingValue, others: Sequence[SettingValue]) -> str | None:
        """The id of the first of `others` with which `value` cannot be combined; None if there is none.

        Two values of one setting cannot be combined.
        """
        for other in others:
            same = dict(value.variables).keys() & dict(other.variables)
            if (
                same
                or other.setting == value.setting
                or self._names_conflict(value, other)
                or self._names_conflict(other, value)
            ):
                return other.id
        return None

    def restricted_to(self, names: Sequence[str]) -> TuningSpace:
        """This space with only the settings, or values (``name=label``), of `names`.

        Raises UsageError if it has no setting, or no value, of a name.
        """
        ids = {setting.name: [value.id for value in setting.values] for setting in self.settings}
        for name in names:
            setting, joined, _ = name.partition("=")
            if setting not in ids:
                raise UsageError(f"the tuning space has no setting {setting}; its settings are {', '.join(ids)}")
            if joined and name not in ids[setting]:
                raise UsageError(f"the tuning space has no {name}; it has {', '.join(ids[setting])}")
        chosen = (
            replace(each, values=tuple(value for value in each.values if {each.name, value.id} & set(names)))
            for each in self.settings
        )
        return TuningSpace(tuple(each for each in chosen if each.values), self.sha256)

    def _names_conflict(self, value: SettingValue, other: SettingValue) -> bool:
        """Whether the setting of `value` names `other`, or its setting, as a conflict."""
        setting = next(each for each in self.settings if each.name == value.setting)
        return other.id in setting.conflicts or other.setting in setting.conflicts


_Variable = Annotated[str, msgspec.Meta(pattern=r"^[A-Z_][A-Z0-9_]*\Z")]
_Text = Annotated[str, msgspec.Meta(pattern=r"^[^\n]+\Z")]


class _ValueEntry(msgspec.Struct, forbid_unknown_fields=True):
    label: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z")]
    set: Annotated[dict[_Variable, _Text], msgspec.Meta(min_length=1)]


class _SettingEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]*\Z")]
    values: Annotated[list[_ValueEntry], msgspec.Meta(min_length=1)]
    requires: list[Condition] | Condition = []
    conflicts: list[str] | str = []
    ucx: list[_Release] | _Release = []
    risk: str | None = None
    source: str | None = None


def read_space(path: Path, *, trusted: bool = False) -> TuningSpace:
    """Read a tuning space; unless it is `trusted`, it may set only what any config may pass to processes.

    Raises UsageError, naming the file and what is wrong in it.
    """
    try:
        text = read_regular_file(path)
        document = tomllib.loads(text.decode())
        entries = document.pop("setting", None)
        if document or not isinstance(entries, list) or not entries:
            raise ValueError("the file must contain [[setting]] tables and nothing else")
        settings = tuple(map(_parse_setting, entries))
        _check_unique_names(settings)
        for value in (value for setting in settings for value in setting.values):
            _check_variables(value, trusted)
    except OSError as error:
        raise UsageError(f"--space {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--space {path}: {error}") from error
    return TuningSpace(settings, hashlib.sha256(text).hexdigest())


def ucx_version_fulfils(releases: Sequence[str], version: str) -> bool:
    """Whether this version of UCX fulfils all conditions such as ``>=1.16``."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        return False
    bounds = (match.groups() for match in map(_RELEASE.fullmatch, releases) if match)
    have = (int(match[1]), int(match[2]))
    return all((have >= (int(major), int(minor))) == (sign == ">=") for sign, major, minor in bounds)


def _parse_setting(entry: Any) -> Setting:
    """The setting of a ``[[setting]]`` table; raises ValueError if the table is wrong."""
    name = entry.get("name") if isinstance(entry, dict) else None
    try:
        read = msgspec.convert(entry, _SettingEntry)
    except msgspec.ValidationError as error:
        raise ValueError(f"setting {name!r}: {error}; docs/tune.md describes the format") from error
    values = tuple(SettingValue(read.name, each.label, tuple(sorted(each.set.items()))) for each in read.values)
    return Setting(
        read.name,
        values,
        _as_tuple(read.requires),
        _as_tuple(read.conflicts),
        _as_tuple(read.ucx),
        read.risk,
        read.source,
    )


def _as_tuple(names: Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _check_variables(value: SettingValue, trusted: bool) -> None:
    for name, text in value.variables:
        if name in OPTIONS:
            try:
                add_allowed_values(BY_VARIABLE[name]).parse(text)
            except ValueError as error:
                raise ValueError(f"{value.id}: {name}={text}: {error}") from error
        elif name.startswith(PREFIX):
            raise ValueError(f"{value.id}: a tuning space cannot set {name}; it can set {', '.join(sorted(OPTIONS))}")
        judged = judge_variable(name, text)
        if judged.kind != SETTING and not trusted:
            raise ValueError(f"{value.id}: {name} {judged.effect or 'is not a known setting'}; {REMEDY}")


def _check_unique_names(settings: Sequence[Setting]) -> None:
    names = [setting.name for setting in settings] + [value.id for setting in settings for value in setting.values]
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"the name {name} occurs twice")
    for setting in settings:
        for other in setting.conflicts:
            if other not in names:
                raise ValueError(f"{setting.name} conflicts with {other}, which is not in the tuning space")
