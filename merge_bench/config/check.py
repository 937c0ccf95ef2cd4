"""Checks a config: the state of each setting, conflicts, and the source of each effective value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from merge_bench.config.catalogue import Catalogue, build_catalogue
from merge_bench.config.conflicts import Conflict, Situation, find_conflicts, missing_devices, no_device
from merge_bench.config.old_names import OLD_NAMES, PREFIX, UCXX_OVERRIDES, translate_config
from merge_bench.config.option import Option
from merge_bench.config.options import BY_KEY, OPTIONS, RunOptions
from merge_bench.config.reader import ConfigFile
from merge_bench.config.trust import REMEDY, process_environment
from merge_bench.config.ucx_info import locate, read_installed
from merge_bench.config.variable_states import BRINGS_CODE, VariableState, classify, classify_elsewhere
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


@dataclass(frozen=True)
class CheckResult:
    """The result of `check_config`.

    `ok`: the config has no unknown setting and brings no code, no setting from any source is invalid, and there are no
    `refusals`; `variables`: those of the config in its order, then effective settings from other sources; `conflicts`:
    warnings; `warnings`: of the reader, and one if ucx_info cannot be run; `ucx`: ``1.21.0 (wheel)``, or None;
    `trusted`: code is no error; `refusals`: why `run` refuses the options, a sentence each.
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
        """Why `ok` is false: a sentence for each variable, with file and line, or the source; then `refusals`."""
        variables = tuple(
            f"{self.config.where(each.line) if each.line else each.source}: {each.name}={each.value}: {each.message}"
            + (f"; {REMEDY}" if each.state == BRINGS_CODE else "")
            for each in self.variables
            if _is_error(each, trusted=self.trusted)
        )
        return variables + self.refusals


def _is_error(each: VariableState, *, trusted: bool) -> bool:
    if each.state == BRINGS_CODE:
        return not trusted
    return each.state == "invalid" or (each.state == "unknown" and each.source == "config")


def _without_devices(each: VariableState) -> VariableState:
    """The state of ``UCX_NET_DEVICES`` that names only devices which this host has not."""
    missing = missing_devices(each.value) if each.name == "UCX_NET_DEVICES" and each.state == "known" else []
    if not missing or len(missing) < len(list(filter(None, each.value.split(",")))):
        return each
    return replace(each, state="no-effect", message=no_device(missing))


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

    Parameters
    ----------
    environ
        The environment of the launch; its ``UCX…`` settings apply unless the config sets them.
    ucx
        The UCX that the workers will load: ``auto``, ``wheel`` or ``system``.
    launcher
        Settings of the launcher, which apply unless config or environment set them.
    options
        Effective options, if known; else those of config and environment are used.
    table
        The options that ``MERGE_BENCH_…`` variables set.
    trusted
        Whether the config may bring code.

    Raises
    ------
    UsageError
        If the value of an old name in the config cannot be translated.
    """
    warnings = [*config.warnings]
    try:
        installed = read_installed(locate(ucx, environ))
    except UsageError as error:
        installed = None
        warnings.append(f"{error}; only the names of settings are checked, not their values")
    catalogue = build_catalogue(installed)
    translated = translate_config(config)
    states = classify(config, translated, catalogue, trusted=trusted, table=table)
    effective = process_environment(config, trusted=trusted)
    for source, values in _elsewhere(environ, launcher or {}, catalogue):
        added = {name: value for name, value in values.items() if name not in effective}
        effective |= added
        states += classify_elsewhere(added.items(), source, catalogue)

    def option(key: str) -> str:
        """The value in the config, or else in the environment, or the default."""
        variable = BY_KEY[key].variable
        setting = translated.options.get(variable)
        text = setting.value if setting else environ.get(variable, "")
        return text.strip().lower() or str(BY_KEY[key].default)

    situation = Situation(
        effective=effective,
        given=frozenset(each.name for each in states if each.source in ("config", "environment")),
        catalogue=catalogue,
        error_handling=options.error_handling if options else option("error_handling"),
        protocol=options.protocol if options else option("protocol"),
    )
    return CheckResult(
        config=config,
        ok=not any(_is_error(each, trusted=trusted) for each in states),
        variables=tuple(map(_without_devices, states)),
        conflicts=find_conflicts(situation),
        warnings=tuple(warnings),
        ucx=f"{installed.version} ({installed.info.origin})" if installed else None,
        trusted=trusted,
    )


def _elsewhere(
    environ: Mapping[str, str], launcher: Mapping[str, str], catalogue: Catalogue
) -> list[tuple[str, dict[str, str]]]:
    """Settings from other sources than the config, in the order of precedence."""
    outside = {name: value for name, value in sorted(environ.items()) if name.startswith(("UCX_", "UCXPY_", "UCXX_"))}
    settings = catalogue.installed.settings if catalogue.installed else {}
    defaults = {name: settings[name].default for name in _ALWAYS_SHOWN if name in settings}
    return [
        ("environment", outside),
        ("launcher", dict(launcher)),
        ("UCXX", UCXX_OVERRIDES),
        ("UCX default", defaults),
    ]
