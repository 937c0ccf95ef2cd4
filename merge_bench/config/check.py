"""What becomes of a config: the state of each setting, conflicts, and where each effective value comes from."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from merge_bench.config.catalogue import Catalogue, build_catalogue
from merge_bench.config.conflicts import Conflict, Situation, find_conflicts
from merge_bench.config.names import UCXX_OVERRIDES, TranslatedConfig, translate_config
from merge_bench.config.options import BY_KEY, OPTIONS, Option
from merge_bench.config.reader import ConfigFile
from merge_bench.config.states import BRINGS_CODE, VariableState, classify, classify_elsewhere
from merge_bench.config.trust import REMEDY, process_environment
from merge_bench.config.ucx_info import locate, read_installed
from merge_bench.errors import UsageError

# Settings whose effective value is always shown, even where it is UCX's default.
_ALWAYS_SHOWN = (
    "UCX_TLS",
    "UCX_NET_DEVICES",
    "UCX_RNDV_SCHEME",
    "UCX_POSIX_ERROR_HANDLING",
    "UCX_SYSV_ERROR_HANDLING",
    "UCX_PROTO_ENABLE",
)
_COLOURS = {
    "unknown": "red",
    "invalid": "red",
    BRINGS_CODE: "red",
    "module-absent": "yellow",
    "no-effect": "yellow",
    "deprecated": "yellow",
}


@dataclass(frozen=True)
class CheckResult:
    """The outcome of `check_config`.

    `ok`: nothing in the config is unknown or brings code, nothing anywhere is invalid; `variables`: those of the config
    in its order, then effective settings from elsewhere; `conflicts`: warnings; `warnings`: sentences of the reader,
    and that UCX could not be asked; `ucx`: ``1.21.0 (wheel)``, or None; `trusted`: what brings code is no error.
    """

    config: ConfigFile
    ok: bool
    variables: tuple[VariableState, ...]
    conflicts: tuple[Conflict, ...]
    warnings: tuple[str, ...]
    ucx: str | None
    trusted: bool = False

    @property
    def errors(self) -> tuple[str, ...]:
        """One sentence for each variable that makes `ok` false, with file and line or the source."""
        return tuple(
            f"{self.config.where(each.line) if each.line else each.source}: {each.name}={each.value}: {each.message}"
            + (f"; {REMEDY}" if each.state == BRINGS_CODE else "")
            for each in self.variables
            if _is_error(each, trusted=self.trusted)
        )

    def to_json(self) -> dict[str, object]:
        """The document of ``check --json``."""
        return {
            "ok": self.ok,
            "config": {"name": self.config.name, "path": str(self.config.path), "sha256": self.config.sha256},
            "ucx": self.ucx,
            "variables": [asdict(each) for each in self.variables],
            "conflicts": [each.to_json() for each in self.conflicts],
            "warnings": list(self.warnings),
        }


def _is_error(each: VariableState, *, trusted: bool) -> bool:
    if each.state == BRINGS_CODE:
        return not trusted
    return each.state == "invalid" or (each.state == "unknown" and each.source == "config")


def check_config(
    config: ConfigFile,
    environ: Mapping[str, str],
    *,
    ucx: str = "auto",
    launcher: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    table: Sequence[Option] = OPTIONS,
    one_host: bool = True,
    trusted: bool = False,
    sysfs: Path = Path("/sys/class"),
) -> CheckResult:
    """Say what becomes of each setting of `config`.

    Parameters
    ----------
    environ
        The environment that the launch starts from; its ``UCX…`` settings that the config leaves alone are in effect.
    ucx
        Whose UCX the workers will load: ``auto``, ``wheel`` or ``system``.
    launcher
        Settings that the launcher adds where neither config nor environment has them.
    options
        Effective options by key (`Resolved.values`), where they are known; else those of config and environment count.
    table
        The options that ``MERGE_BENCH_…`` variables are.
    one_host
        All workers run on one host.
    trusted
        Whether the config may bring code.

    Raises
    ------
    UsageError
        If an old name of the config has a value without counterpart.
    """
    catalogue, warnings = _catalogue(ucx, environ)
    translated = translate_config(config)
    states = classify(config, translated, catalogue, trusted=trusted, table=table)
    handed_on = process_environment(config, trusted=trusted)
    taken = set(handed_on)
    for source, values in _elsewhere(environ, launcher or {}, catalogue):
        added = [(name, value) for name, value in values.items() if name not in taken]
        taken |= {name for name, _ in added}
        states += classify_elsewhere(added, source, catalogue)
    ok = not any(_is_error(each, trusted=trusted) for each in states)
    effective = {each.name: each.value for each in states if each.source != "config"}
    effective |= handed_on
    given = {each.name for each in states if each.source in ("config", "environment")}
    situation = Situation(
        effective=effective,
        given=frozenset(given),
        catalogue=catalogue,
        error_handling=str((options or {}).get("error_handling") or _option("error_handling", translated, environ)),
        protocol=str((options or {}).get("protocol") or _option("protocol", translated, environ)),
        one_host=one_host,
        sysfs=sysfs,
    )
    installed = catalogue.installed
    return CheckResult(
        config=config,
        ok=ok,
        variables=tuple(states),
        conflicts=find_conflicts(situation),
        warnings=(*config.warnings, *warnings),
        ucx=f"{installed.version} ({installed.info.origin})" if installed else None,
        trusted=trusted,
    )


def _option(key: str, translated: TranslatedConfig, environ: Mapping[str, str]) -> str:
    """The value of an option of ``run`` that the config, else the environment, gives; in lower case."""
    option = BY_KEY[key]
    variable = translated.options.get(option.variable)
    given = variable.value if variable else environ.get(option.variable, "")
    return given.strip().lower() or str(option.default)


def _catalogue(ucx: str, environ: Mapping[str, str]) -> tuple[Catalogue, list[str]]:
    try:
        return build_catalogue(read_installed(locate(ucx, environ))), []
    except UsageError as error:
        return build_catalogue(None), [f"{error}; names are compared with the shipped list, values are not checked"]


def _elsewhere(
    environ: Mapping[str, str], launcher: Mapping[str, str], catalogue: Catalogue
) -> list[tuple[str, dict[str, str]]]:
    """Effective settings from outside the config, in the order of their precedence."""
    outside = {name: value for name, value in sorted(environ.items()) if name.startswith(("UCX_", "UCXPY_", "UCXX_"))}
    settings = catalogue.installed.settings if catalogue.installed else {}
    defaults = {name: settings[name].default for name in _ALWAYS_SHOWN if name in settings}
    return [
        ("environment", outside),
        ("launcher", dict(launcher)),
        ("UCXX", UCXX_OVERRIDES),
        ("UCX default", defaults),
    ]


def run_check(
    config: ConfigFile,
    environ: Mapping[str, str] = os.environ,
    *,
    json_output: bool = False,
    ucx: str = "auto",
    launcher: Mapping[str, str] | None = None,
    table: Sequence[Option] = OPTIONS,
    trusted: bool = False,
) -> int:
    """The ``check`` command: print the outcome, as a table or one JSON document; returns the exit status, 0 or 2."""
    result = check_config(config, environ, ucx=ucx, launcher=launcher, table=table, trusted=trusted)
    if json_output:
        json.dump(result.to_json(), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        print_check(result, Console())
    return 0 if result.ok else 2


def print_check(result: CheckResult, console: Console) -> None:
    """The outcome for people."""
    table = Table(title=f"{result.config.path} against UCX {result.ucx or '(none installed)'}", title_justify="left")
    table.add_column("line", justify="right")
    table.add_column("setting", overflow="fold", ratio=1)
    table.add_column("state", no_wrap=True)
    table.add_column("source", no_wrap=True)
    for each in result.variables:
        colour = _COLOURS.get(each.state, "green")
        note = f"\n  [dim]{escape(each.message)}[/dim]" if each.message else ""
        table.add_row(
            str(each.line or ""),
            escape(f"{each.name}={each.value}") + note,
            f"[{colour}]{each.state}[/{colour}]",
            each.source,
        )
    console.print(table)
    for sentence in result.errors:
        console.print(f"[red]error[/red] {escape(sentence)}", soft_wrap=True)
    for conflict in result.conflicts:
        console.print(f"[yellow]{conflict.code}[/yellow] {escape(conflict.message)}", soft_wrap=True)
        console.print(f"    documented: {escape(conflict.documented)}", soft_wrap=True)
    for warning in result.warnings:
        console.print(f"[yellow]warning[/yellow] {escape(warning)}", soft_wrap=True)
