"""One state for every variable of a config: what the stack will make of it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from merge_bench.config import tls
from merge_bench.config.catalogue import Catalogue
from merge_bench.config.names import (
    OLD_NAMES,
    PREFIX,
    UCXX_VARIABLES,
    TranslatedConfig,
    no_effect,
    translate,
)
from merge_bench.config.options import BY_VARIABLE, OPTIONS, Option
from merge_bench.config.reader import ConfigFile, Variable
from merge_bench.config.resolve import check_option, unknown_options
from merge_bench.config.trust import CODE, HELPER, judge
from merge_bench.config.ucx_info import invalid_values

BRINGS_CODE = "brings-code"
STATES = (
    "known",
    "inherited",
    "alias",
    "deprecated",
    "module-absent",
    "unknown",
    "invalid",
    "translated",
    "no-effect",
    "helper",
    BRINGS_CODE,
)


@dataclass(frozen=True)
class VariableState:
    """One setting and what becomes of it.

    `line`: in the config, from 1; None if it does not come from there. `state`: one of `STATES`. `source`: ``config``,
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

    `translated`: the same config in today's names; `trusted`: all of its variables reach the processes; `table`: the
    options that ``MERGE_BENCH_…`` variables are.
    """
    shadowed = {each.old.name: each for each in translated.shadowed}
    wrong_options = {variable.name: sentence for variable, sentence in unknown_options(config)}
    found: list[VariableState] = []
    for variable in config.variables:
        if variable.name in shadowed:
            state, message = "no-effect", f"{shadowed[variable.name].name} is set too, and counts"
        elif (judged := judge(variable.name, variable.value, used=variable.name in config.used)).kind == CODE:
            state, message = BRINGS_CODE, judged.what
        elif variable.name.startswith(PREFIX):
            state, message = _option(variable, wrong_options, table)
        elif judged.kind == HELPER and not no_effect(variable.name):
            state, message = _helper(variable.name, catalogue, used=variable.name in config.used, trusted=trusted)
        else:
            state, message = _variable(variable, catalogue)
        found.append(VariableState(variable.name, variable.value, variable.line, state, message, "config"))
    return _with_invalid_values(found, catalogue)


def classify_elsewhere(values: Iterable[tuple[str, str]], source: str, catalogue: Catalogue) -> list[VariableState]:
    """The states of ``UCX…`` settings that something other than the config makes; a person's values are tried too."""
    found: list[VariableState] = []
    for name, value in values:
        state, message = _variable(Variable(name, value, 0), catalogue)
        found.append(VariableState(name, value, None, state, message, source))
    return _with_invalid_values(found, catalogue) if source == "environment" else found


def _option(variable: Variable, wrong: dict[str, str], table: Sequence[Option]) -> tuple[str, str]:
    if variable.name in wrong:
        return "unknown" if variable.name not in BY_VARIABLE else "invalid", wrong[variable.name]
    sentence = check_option(variable, table)
    return ("invalid", sentence) if sentence else ("known", f"--{BY_VARIABLE[variable.name].name}")


def _variable(variable: Variable, catalogue: Catalogue) -> tuple[str, str]:
    translation = translate(variable)
    if translation is not None:
        if translation.name in BY_VARIABLE:
            sentence = check_option(Variable(translation.name, translation.value, variable.line))
            if sentence:
                return "invalid", f"read as {translation.name}: {sentence}"
        return "translated", f"read as {translation.name}={translation.value} ({translation.reason})"
    reason = no_effect(variable.name)
    if reason is not None:
        return "no-effect", reason
    if variable.name in UCXX_VARIABLES:
        return _ucxx(variable)
    if variable.name.startswith("UCX_"):
        finding = catalogue.find(variable.name)
        return finding.kind, finding.message
    if variable.name.startswith(("UCXPY_", "UCXX_")):
        return "unknown", _nearest(variable.name, [*UCXX_VARIABLES, *OLD_NAMES], "UCXX reads no such variable")
    return "known", "handed on, not checked"


def _ucxx(variable: Variable) -> tuple[str, str]:
    allowed = UCXX_VARIABLES[variable.name]
    if allowed is not None and variable.value not in allowed:
        return "invalid", f"expected one of {', '.join(allowed)}"
    if variable.name == "UCXPY_CONNECT_TIMEOUT" and not re.fullmatch(r"\d+(\.\d*)?|\.\d+", variable.value):
        return "invalid", "expected seconds"
    where = "" if variable.name == "UCXX_LOG_LEVEL" else "read by UCXX's Python comms (--protocol ucx)"
    return "known", where


def _helper(name: str, catalogue: Catalogue, *, used: bool, trusted: bool) -> tuple[str, str]:
    """A name that no rule makes a setting: for later lines, a mistake, or good for nothing."""
    if used or trusted:
        return "helper", "handed on to the processes" if trusted else "for other lines; no process gets it"
    likely = difflib.get_close_matches(name, [*OLD_NAMES, *UCXX_VARIABLES], n=3, cutoff=0.85)
    if not likely and re.match(r"U[CX]{2}|MERGE", name):
        likely = difflib.get_close_matches(name, [*catalogue.names(), *BY_VARIABLE], n=3, cutoff=0.85)
    if likely:
        return "unknown", f"did you mean {' or '.join(likely)}?"
    return "no-effect", "nothing in this stack is known to read it, and no process gets it"


def _nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    near = difflib.get_close_matches(name, list(known), n=3)
    return f"{otherwise}; did you mean {' or '.join(near)}?" if near else otherwise


def _with_invalid_values(found: list[VariableState], catalogue: Catalogue) -> list[VariableState]:
    """Replace the state of settings whose value UCX refuses."""
    values: dict[str, str] = {}
    syntaxes: dict[str, str] = {}
    for each in found:
        if each.name.startswith("UCX_") and each.state in ("known", "inherited", "alias"):
            values[each.name] = each.value
            syntaxes[each.name] = catalogue.find(each.name).syntax
    refused = invalid_values(catalogue.installed, values, syntaxes) if catalogue.installed else {}
    if "UCX_TLS" in values:
        for word, near in tls.unknown_words(values["UCX_TLS"]).items():
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            refused["UCX_TLS"] = f"no release of UCX has a transport {word!r}{hint}"
    return [
        VariableState(each.name, each.value, each.line, "invalid", refused[each.name], each.source)
        if each.name in refused
        else each
        for each in found
    ]
