"""Checks a config: finds the state of each setting, conflicts, and the source of each effective value."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from merge_bench.config import allowed_transports
from merge_bench.config.option import Option
from merge_bench.config.options import BY_VARIABLE, OPTIONS, RunOptions, config_option_problem
from merge_bench.config.parsers import suggest_similar_names
from merge_bench.config.reader import ConfigFile, ConfigVariable
from merge_bench.config.ucx_info import (
    NAME_LISTS,
    SettingCatalogue,
    find_invalid_values,
    find_ucx_info,
    read_installed_ucx,
)
from merge_bench.config.variables import (
    CODE,
    HELPER,
    NO_EFFECT,
    OLD_NAMES,
    PREFIX,
    REMEDY,
    UCXX_OVERRIDES,
    UCXX_VARIABLES,
    TranslatedConfig,
    classify_variable,
    process_environment_variables,
    translate_config,
    translate_old_setting,
)
from merge_bench.errors import UsageError

SYSFS = Path("/sys/class")
NO_DEVICE = "no-such-device"
_LONGEST_SEGMENT = 0xFFFF
_FAQ = "UCX FAQ, https://openucx.readthedocs.io/en/master/faq.html"
_NTHU = "Team NTHU-1, 2022 APAC HPC-AI competition, Dataframe Merging, 24 October 2022"
_ERROR_HANDLING = ("UCX_POSIX_ERROR_HANDLING", "UCX_SYSV_ERROR_HANDLING")
# Settings whose effective value is always shown, even if it is UCX's default.
_ALWAYS_SHOWN = ("UCX_TLS", "UCX_NET_DEVICES", "UCX_RNDV_SCHEME", *_ERROR_HANDLING, "UCX_PROTO_ENABLE")
BRINGS_CODE = "brings-code"
NOT_PASSED = "no known library reads this variable; passed to processes only with --trust-config"
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
class SettingsConflict:
    """A warning about UCX settings that do not belong together.

    `code`: an identifier in kebab case; `settings`: their names; `message`: what happens, and why; `documented`: a
    reference, or ``measured`` with the result.
    """

    code: str
    settings: tuple[str, ...]
    message: str
    documented: str


@dataclass(frozen=True)
class EffectiveSettings:
    """The settings and options in effect, which are searched for conflicts.

    `effective`: the UCX and UCXX settings in effect, by name; `given`: the names that the config or the environment
    sets; `error_handling`: the mode of the data plane's endpoints (``none``, ``peer``); `protocol`: that of Dask's
    messages.
    """

    effective: Mapping[str, str]
    given: frozenset[str]
    catalogue: SettingCatalogue
    error_handling: str = "none"
    protocol: str = "auto"

    def is_setting_on(self, name: str, default: str = "n") -> bool:
        """Whether a setting in effect has a value such as ``y``."""
        return self.effective.get(name, default).lower() in allowed_transports.YES

    @property
    def ucx_tls(self) -> str:
        """The value of ``UCX_TLS`` in effect; ``all`` if nothing sets it."""
        return self.effective.get("UCX_TLS", "all")


@dataclass(frozen=True)
class VariableState:
    """The state of one variable of a config or environment, and its effect in words (`message`).

    `line`: in the config, from 1; None for other sources. `state`: one of `STATES`. `source`: ``config``,
    ``environment``, ``launcher``, ``UCXX`` or ``UCX default``.
    """

    name: str
    value: str
    line: int | None
    state: str
    message: str
    source: str


def classify_config_variables(
    config: ConfigFile,
    translated: TranslatedConfig,
    catalogue: SettingCatalogue,
    *,
    trusted: bool = False,
    known_options: Sequence[Option] = OPTIONS,
) -> list[VariableState]:
    """Decide the state of each variable of `config`, in its order.

    `translated`: the config with old names replaced; `trusted`: whether processes get all its variables;
    `known_options`: the options that ``MERGE_BENCH_…`` variables set.
    """
    states: list[VariableState] = []
    for variable in config.variables:
        used = variable.name in config.used
        judged = classify_variable(variable.name, variable.value, is_referenced=used)
        if new_name := translated.shadowed.get(variable.name):
            state, message = "no-effect", f"{new_name} is also set and overrides this variable"
        elif judged.kind == CODE:
            state, message = BRINGS_CODE, judged.effect
        elif variable.name.startswith(PREFIX):
            state, message = config_option_problem(variable, known_options) or (
                "known",
                f"--{BY_VARIABLE[variable.name].command_line_name}",
            )
        elif judged.kind == HELPER and variable.name not in NO_EFFECT:
            state, message = _state_of_unknown_name(variable.name, catalogue, is_referenced=used, trusted=trusted)
        else:
            state, message = _state_of_variable(variable, catalogue)
        states.append(VariableState(variable.name, variable.value, variable.line, state, message, "config"))
    return _mark_invalid_values(states, catalogue)


def classify_ucx_settings(
    values: Iterable[tuple[str, str]], source: str, catalogue: SettingCatalogue
) -> list[VariableState]:
    """Decide the states of ``UCX…`` settings from a `source` other than the config; checks the environment's values."""
    states = [
        VariableState(name, value, None, *_state_of_variable(ConfigVariable(name, value, 0), catalogue), source)
        for name, value in values
    ]
    return _mark_invalid_values(states, catalogue) if source == "environment" else states


def _state_of_variable(variable: ConfigVariable, catalogue: SettingCatalogue) -> tuple[str, str]:
    """The state of a setting, and its effect in words."""
    translation = translate_old_setting(variable)
    if translation is not None:
        present = ConfigVariable(translation.name, translation.value, variable.line)
        if present.name in BY_VARIABLE and (problem := config_option_problem(present)):
            return "invalid", f"read as {present.name}: {problem[1]}"
        return "translated", f"read as {present.name}={present.value} ({translation.reason})"
    if variable.name in NO_EFFECT:
        return "no-effect", NO_EFFECT[variable.name]
    if variable.name in UCXX_VARIABLES:
        return _state_of_ucxx_variable(variable)
    if variable.name.startswith("UCX_"):
        meaning = catalogue.find_setting_meaning(variable.name)
        return meaning.kind, meaning.message
    if variable.name.startswith(("UCXPY_", "UCXX_")):
        hint = suggest_similar_names(variable.name, [*UCXX_VARIABLES, *OLD_NAMES])
        return "unknown", f"UCXX does not read this variable{hint}"
    return "known", "passed to the processes, not checked"


def _state_of_ucxx_variable(variable: ConfigVariable) -> tuple[str, str]:
    """The state of a variable that UCXX reads, and its effect in words."""
    allowed = UCXX_VARIABLES[variable.name]
    if allowed is not None and variable.value not in allowed:
        return "invalid", f"expected one of {', '.join(allowed)}"
    if variable.name == "UCXPY_CONNECT_TIMEOUT" and not re.fullmatch(r"\d+(\.\d*)?|\.\d+", variable.value):
        return "invalid", "expected a number of seconds"
    where = "" if variable.name == "UCXX_LOG_LEVEL" else "read by UCXX's Python comms (--protocol ucx)"
    return "known", where


def _state_of_unknown_name(
    name: str, catalogue: SettingCatalogue, *, is_referenced: bool, trusted: bool
) -> tuple[str, str]:
    """The state and message of a name that is no setting: used by other lines, misspelt, or without effect."""
    if trusted:
        return "helper", "passed to the processes"
    if is_referenced:
        return "helper", "used only by other lines of the config; not passed to processes"
    hint = suggest_similar_names(name, [*OLD_NAMES, *UCXX_VARIABLES], cutoff=0.85)
    if not hint and re.match(r"U[CX]{2}|MERGE", name):
        hint = suggest_similar_names(name, [*catalogue.all_setting_names(), *BY_VARIABLE], cutoff=0.85)
    if hint:
        return "unknown", hint.removeprefix("; ")
    return "no-effect", NOT_PASSED


def _mark_invalid_values(states: list[VariableState], catalogue: SettingCatalogue) -> list[VariableState]:
    """Return the variable states, with the state ``invalid`` for each setting whose value UCX refuses."""
    kinds = ("known", "inherited", "alias")
    values = {each.name: each.value for each in states if each.name.startswith("UCX_") and each.state in kinds}
    syntaxes = {name: catalogue.find_setting_meaning(name).syntax for name in values}
    refused = find_invalid_values(catalogue.installed, values, syntaxes) if catalogue.installed else {}
    for word, hint in allowed_transports.find_unknown_transports(values.get("UCX_TLS", "")).items():
        refused["UCX_TLS"] = f"no UCX release has a transport {word!r}{hint}"
    for name, value in values.items():
        match = _LIST.match(syntaxes[name] or "")
        # A list whose words are fixed may be empty.
        is_list = (match or name in NAME_LISTS) and (value.strip() or not match or match[1] == "string")
        if is_list and (problem := allowed_transports.ucx_list_problem(name, value)):
            refused[name] = problem
    return [
        replace(setting, state="invalid", message=refused[setting.name]) if setting.name in refused else setting
        for setting in states
    ]


@dataclass(frozen=True)
class ConfigCheckResult:
    """The states of a config's variables, and the conflicts between settings in effect.

    `ok`: the config has no unknown setting and brings no code, no setting from any source is invalid, and there are no
    `refusals`; `variables`: those of the config in its order, then effective settings from other sources; `conflicts`:
    settings that conflict; `warnings`: the reader's, and one if ucx_info cannot be run; `ucx`: the installed UCX, such
    as ``1.21.0 (wheel)``, or None; `trusted`: variables that bring code are no errors; `refusals`: a sentence for each
    reason why `run` refuses the options.
    """

    config: ConfigFile
    ok: bool
    variables: tuple[VariableState, ...]
    conflicts: tuple[SettingsConflict, ...]
    warnings: tuple[str, ...]
    ucx: str | None
    trusted: bool = False
    refusals: tuple[str, ...] = ()

    @property
    def run_options_are_valid(self) -> bool:
        """Whether each option of `run` that the config sets exists and accepts its value."""
        return not any(
            each.state in ("unknown", "invalid") and (each.name.startswith(PREFIX) or each.name in OLD_NAMES)
            for each in self.variables
            if each.source == "config"
        )

    @property
    def error_messages(self) -> tuple[str, ...]:
        """A sentence for each variable that is an error, with file and line or its source; then `refusals`."""
        variables = tuple(
            f"{self.config.format_position(each.line) if each.line else each.source}:"
            f" {each.name}={each.value}: {each.message}" + (f"; {REMEDY}" if each.state == BRINGS_CODE else "")
            for each in self.variables
            if _variable_prevents_launch(each, trusted=self.trusted)
        )
        return variables + self.refusals


def read_options_for_ucx(
    config: ConfigFile, environ: Mapping[str, str], known_options: Sequence[Option] = OPTIONS
) -> RunOptions:
    """Read the options that UCX's settings depend on, from the config or else the environment; ignores wrong values.

    Raises UsageError if the value of an old name in the config cannot be translated.
    """
    settings = translate_config(config).options
    values: dict[str, object] = {}
    for option in known_options:
        if option.key in ("exchange", "protocol", "error_handling", "interface"):
            setting = settings.get(option.environment_variable)
            text = setting.value if setting else environ.get(option.environment_variable, "")
            with contextlib.suppress(ValueError):
                values |= {option.key: option.parse(text)} if text else {}
    return RunOptions().with_sourced_values(values, {})


def check_config(
    config: ConfigFile,
    environ: Mapping[str, str],
    *,
    ucx_origin: str = "auto",
    launcher_settings: Mapping[str, str] | None = None,
    options: RunOptions | None = None,
    known_options: Sequence[Option] = OPTIONS,
    trusted: bool = False,
) -> ConfigCheckResult:
    """Check each setting of `config`, and find the effective settings.

    - `environ`: the environment of the launch, whose ``UCX…`` settings apply unless the config sets them
    - `ucx_origin`: the UCX that the workers will load: ``auto``, ``wheel`` or ``system``
    - `launcher_settings`: settings of the launcher, which apply unless config or environment set them
    - `options`: the resolved options, if known; else those of config and environment are used
    - `known_options`: the options that ``MERGE_BENCH_…`` variables set
    - `trusted`: whether the config may bring code

    Raises UsageError if the value of an old name in the config cannot be translated.
    """
    warnings = [*config.warnings]
    try:
        installed = read_installed_ucx(find_ucx_info(ucx_origin, environ))
    except UsageError as error:
        installed = None
        warnings.append(f"{error}; only the names of settings are checked, not their values")
    catalogue = SettingCatalogue(installed)
    translated = translate_config(config)
    states = classify_config_variables(config, translated, catalogue, trusted=trusted, known_options=known_options)
    effective = process_environment_variables(config, trusted=trusted)
    for source, values in _settings_of_other_sources(environ, launcher_settings or {}, catalogue):
        added = {name: value for name, value in values.items() if name not in effective}
        effective |= added
        states += classify_ucx_settings(added.items(), source, catalogue)

    options = options or read_options_for_ucx(config, environ, known_options)
    situation = EffectiveSettings(
        effective=effective,
        given=frozenset(each.name for each in states if each.source in ("config", "environment")),
        catalogue=catalogue,
        error_handling=options.error_handling,
        protocol=options.protocol,
    )
    return ConfigCheckResult(
        config=config,
        ok=not any(_variable_prevents_launch(each, trusted=trusted) for each in states),
        variables=tuple(map(_mark_missing_network_devices, states)),
        conflicts=find_conflicts(situation),
        warnings=tuple(warnings),
        ucx=f"{installed.version} ({installed.info.origin})" if installed else None,
        trusted=trusted,
    )


def _settings_of_other_sources(
    environ: Mapping[str, str], launcher_settings: Mapping[str, str], catalogue: SettingCatalogue
) -> list[tuple[str, dict[str, str]]]:
    """The UCX settings of environment, launcher, UCXX and UCX's defaults, with the name of each source."""
    outside = {name: value for name, value in sorted(environ.items()) if name.startswith(("UCX_", "UCXPY_", "UCXX_"))}
    settings = catalogue.installed.settings if catalogue.installed else {}
    defaults = {name: settings[name].default for name in _ALWAYS_SHOWN if name in settings}
    return [
        ("environment", outside),
        ("launcher", dict(launcher_settings)),
        ("UCXX", UCXX_OVERRIDES),
        ("UCX default", defaults),
    ]


def _variable_prevents_launch(state: VariableState, *, trusted: bool) -> bool:
    """Whether a variable in this state is an error, so that nothing is launched under the config."""
    if state.state == BRINGS_CODE:
        return not trusted
    return state.state == "invalid" or (state.state == "unknown" and state.source == "config")


def _mark_missing_network_devices(state: VariableState) -> VariableState:
    """Return `state`, changed to ``no-effect`` if it is of ``UCX_NET_DEVICES`` and this host has no such device."""
    missing = find_missing_devices(state.value) if state.name == "UCX_NET_DEVICES" and state.state == "known" else []
    if not missing or len(missing) < len(list(filter(None, state.value.split(",")))):
        return state
    return replace(state, state="no-effect", message=missing_device_message(missing))


def find_conflicts(settings: EffectiveSettings) -> tuple[SettingsConflict, ...]:
    """The warnings about settings in effect that do not belong together."""
    rules = (
        _check_ucx_version,
        _check_rendezvous_settings,
        _check_shared_memory_settings,
        _check_transports,
        _check_overridden_aliases,
        _check_network_devices,
        _check_loopback,
        _check_delayed_submission,
    )
    return tuple(conflict for rule in rules for conflict in rule(settings))


def _check_ucx_version(settings: EffectiveSettings) -> Iterator[SettingsConflict]:
    installed = settings.catalogue.installed
    if installed is not None and settings.catalogue.major_and_minor_numbers < (1, 19):
        yield SettingsConflict(
            "ucx-too-old",
            (),
            f"UCXX 0.52 does not work with UCX {installed.version}; it needs UCX 1.19 or newer.",
            "UCXX sources, python/ucxx/ucxx/__init__.py",
        )


def _check_rendezvous_settings(settings: EffectiveSettings) -> Iterator[SettingsConflict]:
    scheme = settings.effective.get("UCX_RNDV_SCHEME")
    if settings.is_setting_on("UCX_UNIFIED_MODE") and scheme == "am":
        yield SettingsConflict(
            "unified-mode-with-am",
            ("UCX_UNIFIED_MODE", "UCX_RNDV_SCHEME"),
            "UCX_UNIFIED_MODE removes the gain of UCX_RNDV_SCHEME=am: set only one of them.",
            f"{_NTHU}, section 2.5.2",
        )
    if scheme == "am" and settings.is_setting_on("UCX_PROTO_ENABLE", default="y"):
        yield SettingsConflict(
            "am-scheme-with-protocol-v2",
            ("UCX_RNDV_SCHEME", "UCX_PROTO_ENABLE"),
            "Since release 1.16, UCX chooses protocols by estimated cost, and UCX_RNDV_SCHEME=am changes this choice:"
            " measure whether am is still faster.",
            "UCXX docs, configuration, UCX_PROTO_ENABLE; measured with UCX 1.21 on shared memory: am raised the"
            " rendezvous threshold from 5 kB to 580 kB",
        )
    thresholds = settings.effective.get("UCX_RNDV_THRESH", "").split(",")
    if "UCX_RNDV_SCHEME" in settings.given and all(each.rpartition(":")[2] == "inf" for each in thresholds):
        yield SettingsConflict(
            "rendezvous-off",
            ("UCX_RNDV_THRESH", "UCX_RNDV_SCHEME"),
            "UCX_RNDV_THRESH=inf turns rendezvous off, so UCX_RNDV_SCHEME has no effect.",
            "ucx_info -c -f, UCX_RNDV_THRESH",
        )


def _check_shared_memory_settings(settings: EffectiveSettings) -> Iterator[SettingsConflict]:
    shared = allowed_transports.find_allowed_transports(settings.ucx_tls) & allowed_transports.SHARED_MEMORY
    if not shared:
        yield SettingsConflict(
            "no-shared-memory",
            ("UCX_TLS",),
            "UCX_TLS excludes shared memory, so processes on the same host use a network, at best tcp over lo; add sm"
            " to UCX_TLS.",
            f"{_FAQ}, 'Which transports does UCX use?'; measured with UCX 1.21 by 2 processes on 2 cores of one host:"
            " 1.5 GB/s instead of 18 GB/s, sum of both directions (tcp.cfg)",
        )
    names = [f"UCX_{kind}SEG_SIZE" for kind in ("MM_", "POSIX_", "SYSV_", "XPMEM_")]
    if long := [name for name in names if _parse_ucx_size_bytes(settings.effective.get(name, "")) > _LONGEST_SEGMENT]:
        yield SettingsConflict(
            "segments-too-long",
            tuple(long),
            "Receives over shared memory fail ('Message truncated') with segments of 64 KiB or more, because UCX stores"
            f" the length of a message in 16 bits; set {', '.join(long)} to 32k.",
            "UCX sources, uct/sm/mm/base/mm_iface.h; seen with UCX 1.21: two of three runs with 64k failed",
        )
    if not shared or allowed_transports.shared_memory_handles_errors(settings.effective):
        return
    measured = "measured with UCX 1.21: 1.5 GB/s (tcp/lo) with peer error handling, 10 to 12 GB/s with the two settings"
    remedy = "set UCX_POSIX_ERROR_HANDLING=y and UCX_SYSV_ERROR_HANDLING=y"
    if settings.error_handling == "peer":
        yield SettingsConflict(
            "error-handling-drops-shared-memory",
            ("MERGE_BENCH_ERROR_HANDLING", *_ERROR_HANDLING),
            f"With --error-handling peer, UCX uses shared memory only if it has error handling, too: {remedy}.",
            f"ucx_info -c -f, UCX_POSIX_ERROR_HANDLING; {measured}",
        )
    if settings.protocol == "ucx":
        yield SettingsConflict(
            "dask-comm-without-shared-memory",
            ("MERGE_BENCH_PROTOCOL", *_ERROR_HANDLING),
            f"Dask's UCX comms always use error handling, so UCX does not use shared memory for them: {remedy}.",
            f"UCXX sources, listener; {measured}",
        )


def _parse_ucx_size_bytes(text: str) -> int:
    """Bytes of a size in UCX's notation, with powers of 1024; 0 if the text is no size."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    return int(match[1]) << 10 * " kmgt".index(match[2] or " ") if match else 0


def _check_transports(settings: EffectiveSettings) -> Iterator[SettingsConflict]:
    allowed = allowed_transports.find_allowed_transports(settings.ucx_tls)
    if allowed & allowed_transports.CUDA and "cuda_copy" not in allowed:
        yield SettingsConflict(
            "cuda-without-cuda-copy",
            ("UCX_TLS",),
            "Without cuda_copy, UCX cannot transfer GPU memory where cuda_ipc and gdr_copy do not work; write cuda"
            " in UCX_TLS, which includes all three.",
            f"{_FAQ}, 'How to run UCX with GPU support?'",
        )
    installed = settings.catalogue.installed
    available = installed.transports if installed else {}
    if (
        installed
        and available
        and (missing := allowed_transports.find_unavailable_transports(settings.ucx_tls, available))
    ):
        remaining = ", ".join(sorted(allowed.intersection(available))) or "none"
        yield SettingsConflict(
            "transport-unavailable",
            ("UCX_TLS",),
            f"UCX {installed.version} has no {', '.join(missing)} on this machine and prints only a warning;"
            f" remaining transports: {remaining}.",
            f"{_FAQ}, 'Which transports does UCX use?'; available: {', '.join(sorted(available))}",
        )


def _check_overridden_aliases(settings: EffectiveSettings) -> Iterator[SettingsConflict]:
    installed = settings.catalogue.installed.settings if settings.catalogue.installed else {}
    for name in sorted(settings.given):
        target = installed[name].alias_of if name in installed else None
        values = {settings.effective.get(name), settings.effective.get(target or "")}
        if target and None not in values and len(values) > 1:
            who = "which UCXX sets" if target not in settings.given else "which is also set"
            yield SettingsConflict(
                "alias-loses",
                (name, target),
                f"{name} and {target} are two names of one setting; UCX uses"
                f" {target}={settings.effective[target]}, {who}: set only {target}.",
                "ucx_info -c -f -a, 'alias of'; verified by setting both",
            )


def _check_network_devices(settings: EffectiveSettings) -> Iterator[SettingsConflict]:
    given = "UCX_NET_DEVICES" in settings.given  # else the launcher chooses devices that exist
    value = settings.effective.get("UCX_NET_DEVICES", "all") if given else "all"
    network, rdma = (_list_host_devices(kind) for kind in ("net", "infiniband"))
    named = [] if value.startswith("^") else [word for word in value.split(",") if word and word != "all"]
    if missing := find_missing_devices(value):
        yield SettingsConflict(
            NO_DEVICE,
            ("UCX_NET_DEVICES",),
            f"{missing_device_message(missing)}. This host has {', '.join(sorted(network | rdma)) or 'none'}.",
            f"{_FAQ}, 'Which network devices does UCX use?'",
        )
    if rdma and named and not any(word.split(":")[0] in rdma for word in named):
        yield SettingsConflict(
            "rdma-excluded",
            ("UCX_NET_DEVICES",),
            f"UCX_NET_DEVICES lists only network interfaces, so UCX does not use RDMA; add an adapter and its port"
            f" ({', '.join(sorted(rdma))}).",
            f"{_FAQ}, 'Which network devices does UCX use?'",
        )
    rails = settings.effective.get("UCX_MAX_RNDV_RAILS", "1")
    several = "UCX_MAX_RNDV_RAILS" in settings.given and rails.isdecimal() and int(rails) > 1
    if several and not given and not rdma:
        yield SettingsConflict(
            "rails-without-adapter",
            ("UCX_MAX_RNDV_RAILS",),
            f"UCX_MAX_RNDV_RAILS={rails} is for hosts with InfiniBand or RoCE adapters, and this host has none: here"
            " the config runs without them, so what it is for can only be measured on other hosts.",
            f"{_FAQ}, 'Does UCX support multi-rail?'",
        )


def _check_loopback(settings: EffectiveSettings) -> Iterator[SettingsConflict]:
    allowed = allowed_transports.find_allowed_transports(settings.ucx_tls)
    only_loopback = settings.effective.get("UCX_NET_DEVICES") == "lo" and "tcp" in allowed
    without_shared_memory = not allowed_transports.includes_peer_shared_memory(allowed)
    if settings.catalogue.major_and_minor_numbers == (1, 20) and only_loopback and without_shared_memory:
        yield SettingsConflict(
            "loopback-unreachable",
            ("UCX_NET_DEVICES", "UCX_TLS"),
            "UCX 1.20 cannot connect two processes over lo (UCX 1.19 and 1.21 can): name another interface of this"
            " host, such as --interface eth0; what a host sends to itself does not leave it.",
            "openucx/ucx#11202; seen with 1.20.1",
        )


def _list_host_devices(device_kind: str) -> set[str]:
    """The names of this host's devices of a kind: ``net`` or ``infiniband``."""
    folder = SYSFS / device_kind
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


def find_missing_devices(net_devices: str) -> list[str]:
    """The devices that a value of ``UCX_NET_DEVICES`` names but this host does not have."""
    present = {"all", *_list_host_devices("net"), *_list_host_devices("infiniband")}
    named = [] if net_devices.startswith("^") else filter(None, net_devices.split(","))
    return [word for word in named if word.split(":")[0] not in present]


def missing_device_message(missing_devices: Iterable[str]) -> str:
    """The message about devices that this host does not have."""
    return f"no such device here: {', '.join(missing_devices)}; not used"


def _check_delayed_submission(settings: EffectiveSettings) -> Iterator[SettingsConflict]:
    mode = settings.effective.get("UCXPY_PROGRESS_MODE", "thread")
    delayed = settings.effective.get("UCXPY_ENABLE_DELAYED_SUBMISSION", "0")
    if not mode.startswith("thread") and delayed != "0":
        yield SettingsConflict(
            "delayed-submission-without-thread",
            ("UCXPY_PROGRESS_MODE", "UCXPY_ENABLE_DELAYED_SUBMISSION"),
            f"Delayed submission needs a progress thread; with UCXPY_PROGRESS_MODE={mode}, UCXX does not start.",
            "UCXX sources, application_context.py",
        )
