"""Checks a config: finds the state of each setting, conflicts, and the source of each effective value."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from merge_bench.config import allowed_transports
from merge_bench.config.conflicts import Conflict, Situation, find_conflicts, missing_device_message, missing_devices
from merge_bench.config.old_names import (
    NO_EFFECT,
    OLD_NAMES,
    PREFIX,
    UCXX_OVERRIDES,
    UCXX_VARIABLES,
    TranslatedConfig,
    translate,
    translate_config,
)
from merge_bench.config.option import Option
from merge_bench.config.options import BY_VARIABLE, OPTIONS, RunOptions, option_problem
from merge_bench.config.parsers import did_you_mean
from merge_bench.config.reader import ConfigFile, Variable
from merge_bench.config.trust import CODE, HELPER, REMEDY, judge_variable, process_environment
from merge_bench.config.ucx_info import NAME_LISTS, find_ucx_info, invalid_values, read_installed
from merge_bench.config.ucx_setting_names import Catalogue, build_catalogue
from merge_bench.errors import UsageError

# Settings whose effective value is always shown, even if it is UCX's default.
_ALWAYS_SHOWN = (
    "UCX_TLS",
    "UCX_NET_DEVICES",
    "UCX_RNDV_SCHEME",
    "UCX_POSIX_ERROR_HANDLING",
    "UCX_SYSV_ERROR_HANDLING",
    "UCX_PROTO_ENABLE",
)
BRINGS_CODE = "brings-code"
_LIST = re.compile(r"comma-separated list(?: \(.*\))? of: (string|\[)")
STATES = {
    "known": "Read by the installed UCX, by UCXX, by `run`, or by other software (CUDA, Dask, …), whose variables are"
    " passed on and not checked.",
    "inherited": "Sets several settings at once: `UCX_SM_BW` sets the value of each shared-memory transport.",
    "alias": "Another name of a setting.",
    "deprecated": "UCX ignores this setting; the successor is named.",
    "module-absent": "UCX has it, but in a module that is not installed or cannot load here (InfiniBand, CUDA, …): no"
    " effect here.",
    "unknown": "**Error.** No UCX release has this setting; the nearest names are shown.",
    "invalid": "**Error.** UCX refuses the value; the accepted values are shown.",
    "translated": "A name of 2022 or of UCX-Py, read as its present equivalent.",
    "no-effect": "Nothing in this stack reads it: UCX removed it, the installed UCX is older, or no known software"
    " reads it and no line uses it.",
    "helper": "A name of your own that other lines refer to; no process gets it.",
    BRINGS_CODE: "**Error**, unless `--trust-config` is given. A name through which programs find or run code.",
}
"""What each state of a setting means."""


@dataclass(frozen=True)
class VariableState:
    """The state of one setting, and its effect in words (`message`).

    `line`: in the config, from 1; None for other sources. `state`: one of `STATES`. `source`: ``config``,
    ``environment``, ``launcher``, ``UCXX`` or ``UCX default``.
    """

    name: str
    value: str
    line: int | None
    state: str
    message: str
    source: str


def classify(
    config: ConfigFile,
    translated: TranslatedConfig,
    catalogue: Catalogue,
    *,
    trusted: bool = False,
    table: Sequence[Option] = OPTIONS,
) -> list[VariableState]:
    """The state of each variable of `config`, in its order.

    `translated`: the config with old names replaced; `trusted`: whether processes get all its variables; `table`: the
    options that ``MERGE_BENCH_…`` variables set.
    """
    states: list[VariableState] = []
    for variable in config.variables:
        used = variable.name in config.used
        judged = judge_variable(variable.name, variable.value, used=used)
        if variable.name in translated.shadowed:
            state, message = (
                "no-effect",
                f"{translated.shadowed[variable.name]} is also set and overrides this variable",
            )
        elif judged.kind == CODE:
            state, message = BRINGS_CODE, judged.effect
        elif variable.name.startswith(PREFIX):
            state, message = option_problem(variable, table) or ("known", f"--{BY_VARIABLE[variable.name].name}")
        elif judged.kind == HELPER and variable.name not in NO_EFFECT:
            state, message = _state_of_helper(variable.name, catalogue, used=used, trusted=trusted)
        else:
            state, message = _state_of_variable(variable, catalogue)
        states.append(VariableState(variable.name, variable.value, variable.line, state, message, "config"))
    return _mark_invalid_values(states, catalogue)


def classify_other_sources(values: Iterable[tuple[str, str]], source: str, catalogue: Catalogue) -> list[VariableState]:
    """The states of ``UCX…`` settings from a `source` other than the config; the environment's values are checked."""
    states = [
        VariableState(name, value, None, *_state_of_variable(Variable(name, value, 0), catalogue), source)
        for name, value in values
    ]
    return _mark_invalid_values(states, catalogue) if source == "environment" else states


def _state_of_variable(variable: Variable, catalogue: Catalogue) -> tuple[str, str]:
    translation = translate(variable)
    if translation is not None:
        meaning = f"read as {translation.name}"
        if translation.name in BY_VARIABLE:
            problem = option_problem(Variable(translation.name, translation.value, variable.line))
            if problem:
                return "invalid", f"{meaning}: {problem[1]}"
        return "translated", f"{meaning}={translation.value} ({translation.reason})"
    reason = NO_EFFECT.get(variable.name)
    if reason is not None:
        return "no-effect", reason
    if variable.name in UCXX_VARIABLES:
        return _state_of_ucxx_variable(variable)
    if variable.name.startswith("UCX_"):
        meaning_of = catalogue.find_meaning(variable.name)
        return meaning_of.kind, meaning_of.message
    if variable.name.startswith(("UCXPY_", "UCXX_")):
        hint = did_you_mean(variable.name, [*UCXX_VARIABLES, *OLD_NAMES])
        return "unknown", f"UCXX does not read this variable{hint}"
    return "known", "passed to the processes, not checked"


def _state_of_ucxx_variable(variable: Variable) -> tuple[str, str]:
    allowed = UCXX_VARIABLES[variable.name]
    if allowed is not None and variable.value not in allowed:
        return "invalid", f"expected one of {', '.join(allowed)}"
    if variable.name == "UCXPY_CONNECT_TIMEOUT" and not re.fullmatch(r"\d+(\.\d*)?|\.\d+", variable.value):
        return "invalid", "expected a number of seconds"
    where = "" if variable.name == "UCXX_LOG_LEVEL" else "read by UCXX's Python comms (--protocol ucx)"
    return "known", where


def _state_of_helper(name: str, catalogue: Catalogue, *, used: bool, trusted: bool) -> tuple[str, str]:
    """The state and message of a name that is no setting: used by other lines, misspelt, or without effect."""
    if used or trusted:
        return (
            "helper",
            "passed to the processes" if trusted else "used only by other lines of the config; not passed to processes",
        )
    hint = did_you_mean(name, [*OLD_NAMES, *UCXX_VARIABLES], cutoff=0.85)
    if not hint and re.match(r"U[CX]{2}|MERGE", name):
        hint = did_you_mean(name, [*catalogue.names(), *BY_VARIABLE], cutoff=0.85)
    if hint:
        return "unknown", hint.removeprefix("; ")
    return "no-effect", "no known library reads this variable; not passed to processes"


def _mark_invalid_values(states: list[VariableState], catalogue: Catalogue) -> list[VariableState]:
    """The states, with ``invalid`` for each setting whose value UCX refuses."""
    checked = [
        each for each in states if each.name.startswith("UCX_") and each.state in ("known", "inherited", "alias")
    ]
    values = {each.name: each.value for each in checked}
    syntaxes = {name: catalogue.find_meaning(name).syntax for name in values}
    refused = invalid_values(catalogue.installed, values, syntaxes) if catalogue.installed else {}
    for word, hint in allowed_transports.unknown_words(values.get("UCX_TLS", "")).items():
        refused["UCX_TLS"] = f"no UCX release has a transport {word!r}{hint}"
    for name, value in values.items():
        match = _LIST.match(syntaxes[name] or "")
        # A list whose words are fixed may be empty.
        if (match or name in NAME_LISTS) and (value.strip() or not match or match[1] == "string"):
            problem = allowed_transports.list_problem(name, value)
            refused |= {name: problem} if problem else {}
    return [
        replace(each, state="invalid", message=refused[each.name]) if each.name in refused else each for each in states
    ]


@dataclass(frozen=True)
class CheckResult:
    """The result of `check_config`.

    `ok`: the config has no unknown setting and brings no code, no setting from any source is invalid, and there are no
    `refusals`; `variables`: those of the config in its order, then effective settings from other sources; `conflicts`:
    settings that conflict; `warnings`: the reader's, and one if ucx_info cannot be run; `ucx`: the installed UCX, such
    as ``1.21.0 (wheel)``, or None; `trusted`: variables that bring code are no errors; `refusals`: a sentence for each
    reason why `run` refuses the options.
    """

    config: ConfigFile
    ok: bool
    variables: tuple[VariableState, ...]
    conflicts: tuple[Conflict, ...]
    warnings: tuple[str, ...]
    ucx: str | None
    trusted: bool = False
    refusals: tuple[str, ...] = ()

    @property
    def options_are_valid(self) -> bool:
        """Whether each option of `run` that the config sets exists and accepts its value."""
        return not any(
            each.state in ("unknown", "invalid") and (each.name.startswith(PREFIX) or each.name in OLD_NAMES)
            for each in self.variables
            if each.source == "config"
        )

    @property
    def errors(self) -> tuple[str, ...]:
        """A sentence for each variable that is an error, with file and line or its source; then `refusals`."""
        variables = tuple(
            f"{self.config.where(each.line) if each.line else each.source}: {each.name}={each.value}: {each.message}"
            + (f"; {REMEDY}" if each.state == BRINGS_CODE else "")
            for each in self.variables
            if _is_error(each, trusted=self.trusted)
        )
        return variables + self.refusals


def options_for_ucx(config: ConfigFile, environ: Mapping[str, str], table: Sequence[Option] = OPTIONS) -> RunOptions:
    """The options that UCX's settings depend on, from the config or else the environment; wrong values are ignored.

    Raises
    ------
    UsageError
        If the value of an old name in the config cannot be translated.
    """
    settings = translate_config(config).options
    values: dict[str, object] = {}
    for option in table:
        if option.key in ("exchange", "protocol", "error_handling", "interface"):
            setting = settings.get(option.variable)
            text = setting.value if setting else environ.get(option.variable, "")
            with contextlib.suppress(ValueError):
                values |= {option.key: option.parse(text)} if text else {}
    return RunOptions().updated(values, {})


def check_config(
    config: ConfigFile,
    environ: Mapping[str, str],
    *,
    ucx: str = "auto",
    launcher: Mapping[str, str] | None = None,
    options: RunOptions | None = None,
    table: Sequence[Option] = OPTIONS,
    trusted: bool = False,
) -> CheckResult:
    """Check each setting of `config`, and find the effective settings.

    - `environ`: the environment of the launch, whose ``UCX…`` settings apply unless the config sets them
    - `ucx`: the UCX that the workers will load: ``auto``, ``wheel`` or ``system``
    - `launcher`: settings of the launcher, which apply unless config or environment set them
    - `options`: the resolved options, if known; else those of config and environment are used
    - `table`: the options that ``MERGE_BENCH_…`` variables set
    - `trusted`: whether the config may bring code

    Raises UsageError if the value of an old name in the config cannot be translated.
    """
    warnings = [*config.warnings]
    try:
        installed = read_installed(find_ucx_info(ucx, environ))
    except UsageError as error:
        installed = None
        warnings.append(f"{error}; only the names of settings are checked, not their values")
    catalogue = build_catalogue(installed)
    translated = translate_config(config)
    states = classify(config, translated, catalogue, trusted=trusted, table=table)
    effective = process_environment(config, trusted=trusted)
    for source, values in _other_sources(environ, launcher or {}, catalogue):
        added = {name: value for name, value in values.items() if name not in effective}
        effective |= added
        states += classify_other_sources(added.items(), source, catalogue)

    options = options or options_for_ucx(config, environ, table)
    situation = Situation(
        effective=effective,
        given=frozenset(each.name for each in states if each.source in ("config", "environment")),
        catalogue=catalogue,
        error_handling=options.error_handling,
        protocol=options.protocol,
    )
    return CheckResult(
        config=config,
        ok=not any(_is_error(each, trusted=trusted) for each in states),
        variables=tuple(map(_mark_missing_devices, states)),
        conflicts=find_conflicts(situation),
        warnings=tuple(warnings),
        ucx=f"{installed.version} ({installed.info.origin})" if installed else None,
        trusted=trusted,
    )


def _other_sources(
    environ: Mapping[str, str], launcher: Mapping[str, str], catalogue: Catalogue
) -> list[tuple[str, dict[str, str]]]:
    outside = {name: value for name, value in sorted(environ.items()) if name.startswith(("UCX_", "UCXPY_", "UCXX_"))}
    settings = catalogue.installed.settings if catalogue.installed else {}
    defaults = {name: settings[name].default for name in _ALWAYS_SHOWN if name in settings}
    return [("environment", outside), ("launcher", dict(launcher)), ("UCXX", UCXX_OVERRIDES), ("UCX default", defaults)]


def _is_error(state: VariableState, *, trusted: bool) -> bool:
    if state.state == BRINGS_CODE:
        return not trusted
    return state.state == "invalid" or (state.state == "unknown" and state.source == "config")


def _mark_missing_devices(state: VariableState) -> VariableState:
    """`state`, but ``no-effect`` if it is of ``UCX_NET_DEVICES`` and this host has none of the devices it names."""
    missing = missing_devices(state.value) if state.name == "UCX_NET_DEVICES" and state.state == "known" else []
    if not missing or len(missing) < len(list(filter(None, state.value.split(",")))):
        return state
    return replace(state, state="no-effect", message=missing_device_message(missing))
