"""The tuning space: a TOML file becomes settings, each with its values, conditions and conflicts.

Values that make no sense with this machine, this UCX and this run are left out, each with a reason.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from merge_bench.campaign import add_allowed_values
from merge_bench.config.files import read_regular_file
from merge_bench.config.options import BY_KEY, BY_VARIABLE
from merge_bench.config.variables import PREFIX, REMEDY, SETTING, classify_variable
from merge_bench.errors import UsageError
from merge_bench.tune.command_tuning import find_unused_transport
from merge_bench.units import format_bytes

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
OPTIONS = frozenset(BY_KEY[key].environment_variable for key in _KEYS)
"""The options that a space may set: those that do not change the problem or its verification."""
_MESSAGE_SIZE = BY_KEY["message_size"].environment_variable
_RELEASE = re.compile(r"(>=|<)(\d+)\.(\d+)")
_Release = Annotated[str, msgspec.Meta(pattern=rf"^{_RELEASE.pattern}\Z")]


@dataclass(frozen=True)
class SettingValue:
    """One value of a setting in a tuning space.

    `variables`: the environment variables that it sets in a config, with their values.
    """

    setting: str
    label: str
    variables: tuple[tuple[str, str], ...]

    @property
    def value_id(self) -> str:
        return f"{self.setting}={self.label}"


@dataclass(frozen=True)
class Setting:
    """A setting of a tuning space, with the values to try.

    `releases`: conditions on the version of UCX, as ``>=1.16``. `requires`: conditions on the run (`CONDITIONS`).
    `conflicts`: settings or values that it cannot be combined with.
    """

    name: str
    values: tuple[SettingValue, ...]
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    risk: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class TuningSpace:
    """The settings that a tuning tries, in the order of their file, and the SHA-256 of that file."""

    settings: tuple[Setting, ...]
    sha256: str

    @property
    def values(self) -> tuple[SettingValue, ...]:
        return tuple(value for setting in self.settings for value in setting.values)

    def conflicting_value_id(self, value: SettingValue, other_values: Sequence[SettingValue]) -> str | None:
        """The id of the first of `other_values` with which `value` cannot be combined; None if there is none.

        Two values of one setting cannot be combined.
        """
        for other in other_values:
            same = dict(value.variables).keys() & dict(other.variables)
            if (
                same
                or other.setting == value.setting
                or self._declares_conflict(value, other)
                or self._declares_conflict(other, value)
            ):
                return other.value_id
        return None

    def restricted_to_names(self, names: Sequence[str]) -> TuningSpace:
        """Return this space with only the given settings, or values (``name=label``).

        Raises UsageError if it has no setting, or no value, of a name.
        """
        ids = {setting.name: [value.value_id for value in setting.values] for setting in self.settings}
        for name in names:
            setting, joined, _ = name.partition("=")
            if setting not in ids:
                raise UsageError(f"the tuning space has no setting {setting}; its settings are {', '.join(ids)}")
            if joined and name not in ids[setting]:
                raise UsageError(f"the tuning space has no {name}; it has {', '.join(ids[setting])}")
        chosen = (
            replace(each, values=tuple(value for value in each.values if {each.name, value.value_id} & set(names)))
            for each in self.settings
        )
        return TuningSpace(tuple(each for each in chosen if each.values), self.sha256)

    def _declares_conflict(self, value: SettingValue, other_value: SettingValue) -> bool:
        """Whether the setting of `value` lists `other_value`, or that value's setting, as a conflict."""
        setting = next(each for each in self.settings if each.name == value.setting)
        return other_value.value_id in setting.conflicts or other_value.setting in setting.conflicts


_Variable = Annotated[str, msgspec.Meta(pattern=r"^[A-Z_][A-Z0-9_]*\Z")]
_Text = Annotated[str, msgspec.Meta(pattern=r"^[^\n]+\Z")]


class _TomlValue(msgspec.Struct, forbid_unknown_fields=True):
    label: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z")]
    set: Annotated[dict[_Variable, _Text], msgspec.Meta(min_length=1)]


class _TomlSetting(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]*\Z")]
    values: Annotated[list[_TomlValue], msgspec.Meta(min_length=1)]
    requires: list[Condition] | Condition = []
    conflicts: list[str] | str = []
    ucx: list[_Release] | _Release = []
    risk: str | None = None
    source: str | None = None


def read_tuning_space(path: Path, *, trusted: bool = False) -> TuningSpace:
    """Read a tuning space from a TOML file.

    Unless it is `trusted`, the file may set only what any config may pass to processes. Raises UsageError, naming the
    file and what is wrong in it.
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
            _check_allowed_variables(value, trusted)
    except OSError as error:
        raise UsageError(f"--space {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--space {path}: {error}") from error
    return TuningSpace(settings, hashlib.sha256(text).hexdigest())


def ucx_version_fulfils(conditions: Sequence[str], version: str) -> bool:
    """Whether a version of UCX fulfils all conditions such as ``>=1.16``."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        return False
    bounds = (match.groups() for match in map(_RELEASE.fullmatch, conditions) if match)
    have = (int(match[1]), int(match[2]))
    return all((have >= (int(major), int(minor))) == (sign == ">=") for sign, major, minor in bounds)


def _parse_setting(entry: Any) -> Setting:
    """Return the setting in a ``[[setting]]`` table of TOML; raises ValueError if the table is wrong."""
    name = entry.get("name") if isinstance(entry, dict) else None
    try:
        read = msgspec.convert(entry, _TomlSetting)
    except msgspec.ValidationError as error:
        raise ValueError(f"setting {name!r}: {error}; docs/tune.md describes the format") from error
    values = tuple(SettingValue(read.name, each.label, tuple(sorted(each.set.items()))) for each in read.values)
    return Setting(
        read.name,
        values,
        _tuple_of_names(read.requires),
        _tuple_of_names(read.conflicts),
        _tuple_of_names(read.ucx),
        read.risk,
        read.source,
    )


def _tuple_of_names(names: Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _check_allowed_variables(value: SettingValue, trusted: bool) -> None:
    for name, text in value.variables:
        if name in OPTIONS:
            try:
                add_allowed_values(BY_VARIABLE[name]).parse(text)
            except ValueError as error:
                raise ValueError(f"{value.value_id}: {name}={text}: {error}") from error
        elif name.startswith(PREFIX):
            raise ValueError(
                f"{value.value_id}: a tuning space cannot set {name}; it can set {', '.join(sorted(OPTIONS))}"
            )
        judged = classify_variable(name, text)
        if judged.kind != SETTING and not trusted:
            raise ValueError(f"{value.value_id}: {name} {judged.effect or 'is not a known setting'}; {REMEDY}")


def _check_unique_names(settings: Sequence[Setting]) -> None:
    names = [setting.name for setting in settings] + [
        value.value_id for setting in settings for value in setting.values
    ]
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"the name {name} occurs twice")
    for setting in settings:
        for other in setting.conflicts:
            if other not in names:
                raise ValueError(f"{setting.name} conflicts with {other}, which is not in the tuning space")


class PrunedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the tuning space that is not tried, and the reason."""

    value: str
    reason: str


@dataclass(frozen=True)
class TuningContext:
    """The machine, UCX and baseline of a tuning, by which values are left out before the first launch.

    - `conditions`: those of `space.CONDITIONS` that hold
    - `ucx`: the version of UCX; None if it is unknown
    - `ucx_names`: the variables of the installed UCX; None if they are unknown
    - `baseline`: the variables of the baseline's config
    - `options`: values of the baseline's options by variable (``MERGE_BENCH_…``)
    - `fixed`: variables of options given on the command line
    - `chunk_bytes`: bytes of a worker's chunk at the first size, which no message can exceed; None if that is not known
    - `of_command`: whether a command is tuned, which no option of merges affects
    - `transports`: those that the command uses; None if they are not known
    """

    conditions: frozenset[str]
    ucx: str | None
    ucx_names: frozenset[str] | None
    baseline: Mapping[str, str]
    options: Mapping[str, object]
    fixed: frozenset[str] = frozenset()
    chunk_bytes: int | None = None
    of_command: bool = False
    transports: frozenset[str] | None = None


def prune_space(space: TuningSpace, context: TuningContext) -> tuple[tuple[SettingValue, ...], tuple[PrunedValue, ...]]:
    """Split the values of a tuning space into those that can be tried and those that cannot, with reasons."""
    values, pruned = list[SettingValue](), list[PrunedValue]()
    for setting in space.settings:
        for value in setting.values:
            if (reason := _reason_to_skip_value(setting, value, context)) is None:
                values.append(value)
            else:
                pruned.append(PrunedValue(value=value.value_id, reason=reason))
    return tuple(values), tuple(pruned)


def _reason_to_skip_value(setting: Setting, value: SettingValue, context: TuningContext) -> str | None:
    """The reason why a value makes no sense in this tuning; None if it can be tried."""
    if context.of_command and (own := next((name for name, _ in value.variables if name.startswith(PREFIX)), None)):
        return f"{own} is an option of merges"
    if context.transports is not None:
        unused = find_unused_transport([name for name, _ in value.variables], context.transports)
        if unused is not None:
            return f"the command does not use {unused}, only {', '.join(sorted(context.transports))}"
    missing = [condition for condition in setting.requires if condition not in context.conditions]
    if missing:
        return f"requires {', '.join(missing)} (not met in this run)"
    if setting.releases and (context.ucx is None or not ucx_version_fulfils(setting.releases, context.ucx)):
        return f"needs UCX {', '.join(setting.releases)}; the installed version is {context.ucx or 'unknown'}"
    for name, _ in value.variables:
        if name in context.fixed:
            return f"the command line sets --{BY_VARIABLE[name].command_line_name}"
        if name.startswith("UCX_") and context.ucx_names is not None and name not in context.ucx_names:
            return f"the installed UCX {context.ucx} has no variable {name}"
    if all(_is_set_by_baseline(name, text, context) for name, text in value.variables):
        return "the baseline already has this value"
    if (chunk := context.chunk_bytes) is not None and all(
        _leaves_messages_unsplit(*each, context, chunk) for each in value.variables
    ):
        return f"no message is that long: a chunk has {format_bytes(chunk)}"
    return None


def _leaves_messages_unsplit(variable: str, value_text: str, context: TuningContext, longest_bytes: int) -> bool:
    """Whether messages of up to `longest_bytes` are split neither by this message size nor by the baseline's.

    `variable`, `value_text`: the variable that a value sets, and its new value; another one than message size is False.
    """
    limits = (
        (BY_VARIABLE[variable].parse(value_text), context.options.get(variable))
        if variable == _MESSAGE_SIZE
        else (None,)
    )
    return all(isinstance(limit, int) and (limit == 0 or limit >= longest_bytes) for limit in limits)


def _is_set_by_baseline(variable: str, value_text: str, context: TuningContext) -> bool:
    """Whether the baseline's config already gives `variable` the value in `value_text`."""
    if variable.startswith(PREFIX):
        return variable in context.options and BY_VARIABLE[variable].parse(value_text) == context.options[variable]
    return context.baseline.get(variable) == value_text
