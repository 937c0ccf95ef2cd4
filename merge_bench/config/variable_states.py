"""Gives each variable of a config one state: its effect in this stack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from merge_bench.config import allowed_transports
from merge_bench.config.catalogue import Catalogue
from merge_bench.config.old_names import (
    OLD_NAMES,
    PREFIX,
    UCXX_VARIABLES,
    TranslatedConfig,
    no_effect,
    translate,
)
from merge_bench.config.option import Option
from merge_bench.config.options import BY_VARIABLE, OPTIONS, option_problem
from merge_bench.config.parsers import did_you_mean
from merge_bench.config.reader import ConfigFile, Variable
from merge_bench.config.trust import CODE, HELPER, judge
from merge_bench.config.ucx_info import NAME_LISTS, invalid_values

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
"""Each state, and what it means."""


@dataclass(frozen=True)
class VariableState:
    """One setting and its effect.

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
    config: ConfigFile, translated: TranslatedConfig, catalogue: Catalogue, *, trusted: bool = False,
    table: Sequence[Option] = OPTIONS,
) -> list[VariableState]:  # fmt: skip
    """The state of each variable of `config`, in its order.

    `translated`: the same config with present names; `trusted`: processes get all variables; `table`: the options that
    ``MERGE_BENCH_…`` variables set.
    """
    found: list[VariableState] = []
    for variable in config.variables:
        used = variable.name in config.used
        judged = judge(variable.name, variable.value, used=used)
        if variable.name in translated.shadowed:
            state, message = (
                "no-effect",
                f"{translated.shadowed[variable.name]} is also set and overrides this variable",
            )
        elif judged.kind == CODE:
            state, message = BRINGS_CODE, judged.effect
        elif variable.name.startswith(PREFIX):
            state, message = option_problem(variable, table) or ("known", f"--{BY_VARIABLE[variable.name].name}")
        elif judged.kind == HELPER and not no_effect(variable.name):
            state, message = _helper(variable.name, catalogue, used=used, trusted=trusted)
        else:
            state, message = _variable(variable, catalogue)
        found.append(VariableState(variable.name, variable.value, variable.line, state, message, "config"))
    return _with_invalid_values(found, catalogue)


def classify_elsewhere(values: Iterable[tuple[str, str]], source: str, catalogue: Catalogue) -> list[VariableState]:
    """The states of ``UCX…`` settings from other sources. Values from the environment are checked, too."""
    found = [
        VariableState(name, value, None, *_variable(Variable(name, value, 0), catalogue), source)
        for name, value in values
    ]
    return _with_invalid_values(found, catalogue) if source == "environment" else found


def _variable(variable: Variable, catalogue: Catalogue) -> tuple[str, str]:
    translation = translate(variable)
    if translation is not None:
        meaning = f"read as {translation.name}"
        if translation.name in BY_VARIABLE:
            problem = option_problem(Variable(translation.name, translation.value, variable.line))
            if problem:
                return "invalid", f"{meaning}: {problem[1]}"
        return "translated", f"{meaning}={translation.value} ({translation.reason})"
    reason = no_effect(variable.name)
    if reason is not None:
        return "no-effect", reason
    if variable.name in UCXX_VARIABLES:
        return _ucxx(variable)
    if variable.name.startswith("UCX_"):
        meaning_of = catalogue.find(variable.name)
        return meaning_of.kind, meaning_of.message
    if variable.name.startswith(("UCXPY_", "UCXX_")):
        hint = did_you_mean(variable.name, [*UCXX_VARIABLES, *OLD_NAMES])
        return "unknown", f"UCXX does not read this variable{hint}"
    return "known", "passed to the processes, not checked"


def _ucxx(variable: Variable) -> tuple[str, str]:
    allowed = UCXX_VARIABLES[variable.name]
    if allowed is not None and variable.value not in allowed:
        return "invalid", f"expected one of {', '.join(allowed)}"
    if variable.name == "UCXPY_CONNECT_TIMEOUT" and not re.fullmatch(r"\d+(\.\d*)?|\.\d+", variable.value):
        return "invalid", "expected a number of seconds"
    where = "" if variable.name == "UCXX_LOG_LEVEL" else "read by UCXX's Python comms (--protocol ucx)"
    return "known", where


def _helper(name: str, catalogue: Catalogue, *, used: bool, trusted: bool) -> tuple[str, str]:
    """A name that is no setting: used by later lines, misspelt, or without effect."""
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


def _with_invalid_values(found: list[VariableState], catalogue: Catalogue) -> list[VariableState]:
    """Replace the state of settings whose value UCX refuses."""
    checked = [each for each in found if each.name.startswith("UCX_") and each.state in ("known", "inherited", "alias")]
    values = {each.name: each.value for each in checked}
    syntaxes = {name: catalogue.find(name).syntax for name in values}
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
        replace(each, state="invalid", message=refused[each.name]) if each.name in refused else each for each in found
    ]
