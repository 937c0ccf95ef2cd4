"""Translates settings' names of 2022 and of UCX-Py into present names, and lists the names that are retired.

Old configs use three kinds of names: the 2022 competition's ``cluster.cfg`` described the problem with plain names
(``CHUNK_SIZE``), UCX-Py read ``UCXPY_…`` variables, of which its successor UCXX reads only some, and Dask chose UCX's
transports by ``DASK_UCX__…``. Only names in configs are translated; in the environment a name like ``CHUNK_SIZE`` can
mean anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from merge_bench.config.parsers import switch
from merge_bench.config.reader import ConfigFile, Variable
from merge_bench.errors import UsageError

PREFIX = "MERGE_BENCH_"


@dataclass(frozen=True)
class Translation:
    """An old setting in present terms: the present `name` and `value`, and the origin of the old name (`reason`)."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class TranslatedConfig:
    """A config whose old names are replaced by present ones.

    `options`: ``MERGE_BENCH_…`` settings by name; `environment`: all other variables by name; `shadowed`: by old name,
    the new name for which the old one is ignored, because the config sets both.
    """

    options: dict[str, Variable]
    environment: dict[str, Variable]
    shadowed: dict[str, str]


_PROBLEM = "name in the 2022 cluster.cfg"
_BENCHMARK = "option of ucxx.benchmarks.cudf_merge"
TRANSLATED: dict[str, tuple[str, str]] = {
    "CHUNK_SIZE": (PREFIX + "CHUNK", _PROBLEM),
    "NUM_ITERATIONS": (PREFIX + "ITERATIONS", _PROBLEM),
    "LISTEN_INTERFACE": (PREFIX + "INTERFACE", _PROBLEM),
    "VERIFY_RESULTS": (PREFIX + "VERIFY", _PROBLEM),
    "NGPUS": (PREFIX + "WORKERS", _PROBLEM),
    "N_DEVS_ON_NET": (PREFIX + "WORKERS", _BENCHMARK),
    "ITER": (PREFIX + "ITERATIONS", _BENCHMARK),
    "NUM_WARMUP_ITERATIONS": (PREFIX + "WARMUP", _BENCHMARK),
    "WARMUP_ITERATIONS": (PREFIX + "WARMUP", _BENCHMARK),
    "WARMUP_ITER": (PREFIX + "WARMUP", _BENCHMARK),
    "FRAC_MATCH": (PREFIX + "FRAC_MATCH", _BENCHMARK),
    "RMM_INIT_POOL_SIZE": (PREFIX + "RMM_POOL_SIZE", _BENCHMARK),
    "CHUNKS_PER_DEV": (PREFIX + "WORKERS_PER_GPU", _BENCHMARK),
    # UCXX reads it too, but only in a helper that this stack does not call.
    "UCXPY_IFNAME": (PREFIX + "INTERFACE", "name in UCX-Py"),
    # UCX-Py only checks whether the variable is in the environment, and ignores its value (ucp/core.py).
    "UCXPY_NON_BLOCKING_MODE": (
        "UCXPY_PROGRESS_MODE",
        "UCX-Py polls if this variable has any value; UCXX does not read it",
    ),
}

# The translations of values; other values stay as they are.
_VALUES: dict[str, Callable[[str], str]] = {
    "VERIFY_RESULTS": lambda value: "ends" if value and switch(value) else "off",
    "UCXPY_NON_BLOCKING_MODE": lambda value: "polling",
}
# Dask 2026.7 moves the first prefix to the second, which neither distributed nor distributed-ucxx 0.52 reads.
_RETIRED = ("DASK_UCX__", "DASK_DISTRIBUTED__UCX__")
# distributed-ucxx still reads the other names with this prefix.
_HALF_RETIRED = "DASK_DISTRIBUTED__COMM__UCX__"
NO_EFFECT: dict[str, str] = {
    **{
        prefix + name: f"retired, nothing reads it; write DASK_DISTRIBUTED_UCXX__{name}, which --protocol ucx reads"
        for prefix in _RETIRED
        for name in ("CUDA_COPY", "TCP", "NVLINK", "INFINIBAND", "RDMACM")
    },
    **{
        prefix + "NET_DEVICES": "retired, nothing reads it; set UCX_NET_DEVICES"
        for prefix in (*_RETIRED, _HALF_RETIRED)
    },
    **{
        prefix + "REUSE_ENDPOINTS": "retired, nothing reads it; delete the line"
        for prefix in (*_RETIRED, _HALF_RETIRED)
    },
    **dict.fromkeys(
        ("JOB_DIR", "TEST_DIR", "WORK_DIR", "APAC_DIR"),
        "only the 2022 scripts used this folder; results are written to --results",
    ),
    **dict.fromkeys(
        ("WRITE_BASELINE", "BASELINE_DIR"),
        "the 2022 program compared results with stored tables; each worker now checks its own rows",
    ),
    "DEVICES": "the 2022 scripts passed it to --devs; set CUDA_VISIBLE_DEVICES instead",
    "UCXPY_ASYNCSSH_LOG_LEVEL": "only the SSH launcher of the UCX-Py and UCXX benchmarks reads it",
    "RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY": "UCX is chosen before the config is read; use --ucx wheel or --ucx system",
}

# Every old name, for suggestions.
OLD_NAMES = (*TRANSLATED, *NO_EFFECT)

# Variables that the Python part of UCXX 0.52 reads, with their accepted values (None: any), from its public sources.
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

# `import ucxx` sets these variables if they are unset (python/ucxx/ucxx/__init__.py, UCXX 0.52).
UCXX_OVERRIDES = {
    "UCX_MEMTYPE_CACHE": "n",
    "UCX_RNDV_THRESH": "8192",
    "UCX_RNDV_FRAG_MEM_TYPE": "cuda",
    "UCX_MAX_RNDV_RAILS": "1",
}


def translate(variable: Variable) -> Translation | None:
    """Translate a setting with an old name; None if the name is not old.

    Raises ValueError if the value cannot be translated.
    """
    if variable.name not in TRANSLATED:
        return None
    name, reason = TRANSLATED[variable.name]
    return Translation(name, _VALUES.get(variable.name, str)(variable.value), reason)


def translate_config(config: ConfigFile) -> TranslatedConfig:
    """Translate the old names of `config`. A new name overrides an old one, and a later line overrides an earlier one.

    Raises UsageError, with file and line, if the value of an old name cannot be translated.
    """
    present = {variable.name for variable in config.variables}
    options: dict[str, Variable] = {}
    environment: dict[str, Variable] = {}
    shadowed: dict[str, str] = {}
    for variable in config.variables:
        try:
            translation = translate(variable)
        except ValueError as error:
            raise UsageError(f"{config.where(variable.line)}: {variable.name}: {error}") from None
        if translation is not None and translation.name in present:
            shadowed[variable.name] = translation.name
            continue
        new = Variable(translation.name, translation.value, variable.line) if translation else variable
        (options if new.name.startswith(PREFIX) else environment)[new.name] = new
    return TranslatedConfig(options, environment, shadowed)
