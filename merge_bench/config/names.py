"""Names of 2022 and of UCX-Py → the names that this stack reads.

Two older vocabularies occur in configs that people still have. The 2022 competition's ``cluster.cfg`` set the problem
under plain names (``CHUNK_SIZE``); UCX-Py read ``UCXPY_…`` variables, of which its successor UCXX reads only some. They
are understood in a config only, never in the environment, where names as plain as ``CHUNK_SIZE`` may mean anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from merge_bench.config.reader import ConfigFile, Variable
from merge_bench.errors import UsageError

PREFIX = "MERGE_BENCH_"
_TRUE = frozenset({"1", "true", "yes", "on", "y"})
_FALSE = frozenset({"0", "false", "no", "off", "n", ""})


@dataclass(frozen=True)
class Translation:
    """An old setting and what it is read as.

    `old`: the variable as the config has it; `name`, `value`: the setting it stands for; `reason`: one clause that says
    where the old name comes from.
    """

    old: Variable
    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class TranslatedConfig:
    """A config in today's names.

    `options`: ``MERGE_BENCH_…`` settings by variable name; `environment`: everything else, which the launched processes
    get; `translations`: what was renamed; `shadowed`: translations not taken because the config also sets the new name.
    """

    options: dict[str, Variable]
    environment: dict[str, Variable]
    translations: tuple[Translation, ...]
    shadowed: tuple[Translation, ...]


def _same(value: str) -> str:
    return value


def _verify(value: str) -> str:
    """The 2022 script verified when the word was exactly ``true``; other ways to write it are taken as meant."""
    if value.lower() in _TRUE:
        return "ends"
    if value.lower() in _FALSE:
        return "off"
    raise ValueError(f"{value!r} is neither true nor false")


_PROBLEM = "name of the 2022 cluster.cfg"
_BENCHMARK = "option of ucxx.benchmarks.cudf_merge"
_TO_OPTION: dict[str, tuple[str, Callable[[str], str], str]] = {
    "CHUNK_SIZE": ("CHUNK", _same, _PROBLEM),
    "NUM_ITERATIONS": ("ITERATIONS", _same, _PROBLEM),
    "LISTEN_INTERFACE": ("INTERFACE", _same, _PROBLEM),
    "VERIFY_RESULTS": ("VERIFY", _verify, _PROBLEM),
    "NGPUS": ("WORKERS", _same, _PROBLEM),
    "N_DEVS_ON_NET": ("WORKERS", _same, _BENCHMARK),
    "ITER": ("ITERATIONS", _same, _BENCHMARK),
    "NUM_WARMUP_ITERATIONS": ("WARMUP", _same, _BENCHMARK),
    "WARMUP_ITERATIONS": ("WARMUP", _same, _BENCHMARK),
    "WARMUP_ITER": ("WARMUP", _same, _BENCHMARK),
    "FRAC_MATCH": ("FRAC_MATCH", _same, _BENCHMARK),
    "RMM_INIT_POOL_SIZE": ("RMM_POOL_SIZE", _same, _BENCHMARK),
    "CHUNKS_PER_DEV": ("WORKERS_PER_GPU", _same, _BENCHMARK),
    # Read by UCXX too, but only by a helper that this stack does not call.
    "UCXPY_IFNAME": ("INTERFACE", _same, "name of UCX-Py"),
}

# UCX-Py looks only at whether UCXPY_NON_BLOCKING_MODE is in the environment, never at its value (ucp/core.py).
_TO_UCXX: dict[str, tuple[str, str, str]] = {
    "UCXPY_NON_BLOCKING_MODE": (
        "UCXPY_PROGRESS_MODE",
        "polling",
        "name of UCX-Py, which polls whenever it is set, to whatever value; UCXX never reads it",
    ),
}

_NO_EFFECT: dict[str, str] = {
    **dict.fromkeys(
        ("JOB_DIR", "TEST_DIR", "WORK_DIR", "APAC_DIR"),
        "a folder of the 2022 scripts; nothing here reads it (records go to --results)",
    ),
    **dict.fromkeys(
        ("WRITE_BASELINE", "BASELINE_DIR"),
        "the 2022 program verified against stored tables; here every worker checks its own rows",
    ),
    "DEVICES": "the 2022 scripts passed it on as --devs; set CUDA_VISIBLE_DEVICES",
    "UCXPY_ASYNCSSH_LOG_LEVEL": "read by the SSH launcher of UCX-Py's and UCXX's own benchmarks only",
    "RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY": "chosen before a config is read; use --ucx wheel|system",
}

# Every old name, for suggestions.
OLD_NAMES = (*_TO_OPTION, *_TO_UCXX, *_NO_EFFECT)

# Variables of the Python side of UCXX 0.52, with the values that it takes (None: any), from its public sources.
UCXX_VARIABLES: dict[str, tuple[str, ...] | None] = {
    "UCXPY_PROGRESS_MODE": ("blocking", "polling", "thread", "thread-polling"),
    "UCXPY_ENABLE_DELAYED_SUBMISSION": None,
    "UCXPY_ENABLE_PYTHON_FUTURE": None,
    "UCXPY_CONNECT_TIMEOUT": None,
    "UCXPY_LOG_LEVEL": ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET"),
    "UCXX_LOG_LEVEL": (
        "FATAL",
        "ERROR",
        "WARN",
        "DIAG",
        "INFO",
        "DEBUG",
        "TRACE",
        "REQ",
        "DATA",
        "ASYNC",
        "FUNC",
        "POLL",
    ),
}

# What `import ucxx` puts into the environment where it is not set (python/ucxx/ucxx/__init__.py, UCXX 0.52).
UCXX_OVERRIDES = {
    "UCX_MEMTYPE_CACHE": "n",
    "UCX_RNDV_THRESH": "8192",
    "UCX_RNDV_FRAG_MEM_TYPE": "cuda",
    "UCX_MAX_RNDV_RAILS": "1",
}


def no_effect(name: str) -> str | None:
    """Why nothing in this stack reads `name`, if that is known."""
    return _NO_EFFECT.get(name)


def translate(variable: Variable) -> Translation | None:
    """What an old setting is read as; None for a name that is not an old one.

    Raises
    ------
    ValueError
        If the value has no counterpart; one sentence.
    """
    if variable.name in _TO_UCXX:
        name, value, reason = _TO_UCXX[variable.name]
        return Translation(variable, name, value, reason)
    if variable.name in _TO_OPTION:
        option, convert, reason = _TO_OPTION[variable.name]
        return Translation(variable, PREFIX + option, convert(variable.value), reason)
    return None


def translate_config(config: ConfigFile) -> TranslatedConfig:
    """Read `config` in today's names; a new name beside an old one wins, and of two old ones the later.

    Raises
    ------
    UsageError
        If an old name has a value without counterpart; names file and line.
    """
    present = {variable.name for variable in config.variables}
    options: dict[str, Variable] = {}
    environment: dict[str, Variable] = {}
    translations: list[Translation] = []
    shadowed: list[Translation] = []
    for variable in config.variables:
        try:
            translation = translate(variable)
        except ValueError as error:
            raise UsageError(f"{config.where(variable.line)}: {variable.name}: {error}") from None
        if translation is None:
            new = variable
        else:
            if translation.name in present:
                shadowed.append(translation)
                continue
            translations.append(translation)
            new = Variable(translation.name, translation.value, variable.line)
        (options if new.name.startswith(PREFIX) else environment)[new.name] = new
    return TranslatedConfig(options, environment, tuple(translations), tuple(shadowed))
