"""Decides what the variables of a config mean: old names become present ones, and processes get settings only.

Old configs use three kinds of names: the 2022 competition's ``cluster.cfg`` described the problem with plain names
(``CHUNK_SIZE``), UCX-Py read ``UCXPY_…`` variables, of which its successor UCXX reads only some, and Dask chose UCX's
transports by ``DASK_UCX__…``. Only names in configs are translated; in the environment a name like ``CHUNK_SIZE`` can
mean anything.

The processes of a launch get a variable only if it is a setting by the rules below. Names through which programs find
or run code are refused unless the user trusts the file. Every other name is a helper: later lines of the config can
refer to it, and no process gets it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from merge_bench.config.parsers import parse_yes_or_no
from merge_bench.config.reader import ConfigFile, ConfigVariable
from merge_bench.errors import UsageError
from merge_bench.units import count_with_noun

PREFIX = "MERGE_BENCH_"


@dataclass(frozen=True)
class TranslatedSetting:
    """An old setting in its present form: its new `name` and `value`, and the origin of the old name (`reason`)."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class TranslatedConfig:
    """A config whose old names are replaced by present ones.

    `options`: ``MERGE_BENCH_…`` settings by name; `environment`: all other variables by name; `shadowed`: by old name,
    the new name for which the old one is ignored, because the config sets both.
    """

    options: dict[str, ConfigVariable]
    environment: dict[str, ConfigVariable]
    shadowed: dict[str, str]


_POLLS = "UCX-Py polls if this variable has any value; UCXX does not read it"
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
    "UCXPY_NON_BLOCKING_MODE": ("UCXPY_PROGRESS_MODE", _POLLS),
}

# The translations of values; other values stay as they are.
_VALUES: dict[str, Callable[[str], str]] = {
    "VERIFY_RESULTS": lambda value: "ends" if value and parse_yes_or_no(value) else "off",
    "UCXPY_NON_BLOCKING_MODE": lambda value: "polling",
}
# Dask 2026.7 moves the first prefix to the second, which neither distributed nor distributed-ucxx 0.52 reads.
_RETIRED = ("DASK_UCX__", "DASK_DISTRIBUTED__UCX__")
# distributed-ucxx still reads the other names with this prefix.
_HALF_RETIRED = "DASK_DISTRIBUTED__COMM__UCX__"
_ENDPOINTS = [prefix + "REUSE_ENDPOINTS" for prefix in (*_RETIRED, _HALF_RETIRED)]
_DEVICES = [prefix + "NET_DEVICES" for prefix in (*_RETIRED, _HALF_RETIRED)]
NO_EFFECT: dict[str, str] = {
    **{
        prefix + name: f"retired, nothing reads it; write DASK_DISTRIBUTED_UCXX__{name}, which --protocol ucx reads"
        for prefix in _RETIRED
        for name in ("CUDA_COPY", "TCP", "NVLINK", "INFINIBAND", "RDMACM")
    },
    **dict.fromkeys(_DEVICES, "retired, nothing reads it; set UCX_NET_DEVICES"),
    **dict.fromkeys(_ENDPOINTS, "retired, nothing reads it; delete the line"),
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

_LOG_LEVELS = ("FATAL", "ERROR", "WARN", "DIAG", "INFO", "DEBUG", "TRACE", "REQ", "DATA", "ASYNC", "FUNC", "POLL")
# Variables that the Python part of UCXX 0.52 reads, with their accepted values (None: any), from its public sources.
UCXX_VARIABLES: dict[str, tuple[str, ...] | None] = {
    "UCXPY_PROGRESS_MODE": ("blocking", "polling", "thread", "thread-polling"),
    "UCXPY_ENABLE_DELAYED_SUBMISSION": None,
    "UCXPY_ENABLE_PYTHON_FUTURE": None,
    "UCXPY_CONNECT_TIMEOUT": None,
    "UCXPY_LOG_LEVEL": ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET"),
    "UCXX_LOG_LEVEL": _LOG_LEVELS,
}

# `import ucxx` sets these variables if they are unset (python/ucxx/ucxx/__init__.py, UCXX 0.52).
UCXX_OVERRIDES = {
    "UCX_MEMTYPE_CACHE": "n",
    "UCX_RNDV_THRESH": "8192",
    "UCX_RNDV_FRAG_MEM_TYPE": "cuda",
    "UCX_MAX_RNDV_RAILS": "1",
}


def translate_old_setting(variable: ConfigVariable) -> TranslatedSetting | None:
    """Translate a setting with an old name; None if the name is not old.

    Raises ValueError if the value cannot be translated.
    """
    if variable.name not in TRANSLATED:
        return None
    name, reason = TRANSLATED[variable.name]
    return TranslatedSetting(name, _VALUES.get(variable.name, str)(variable.value), reason)


def translate_config(config: ConfigFile) -> TranslatedConfig:
    """Translate the old names of `config`. A new name overrides an old one, and a later line overrides an earlier one.

    Raises UsageError, with file and line, if the value of an old name cannot be translated.
    """
    present = {variable.name for variable in config.variables}
    options: dict[str, ConfigVariable] = {}
    environment: dict[str, ConfigVariable] = {}
    shadowed: dict[str, str] = {}
    for variable in config.variables:
        try:
            translation = translate_old_setting(variable)
        except ValueError as error:
            raise UsageError(f"{config.format_position(variable.line)}: {variable.name}: {error}") from None
        if translation is not None and translation.name in present:
            shadowed[variable.name] = translation.name
            continue
        new = ConfigVariable(translation.name, translation.value, variable.line) if translation else variable
        (options if new.name.startswith(PREFIX) else environment)[new.name] = new
    return TranslatedConfig(options, environment, shadowed)


SETTING, CODE, HELPER = "setting", "code", "helper"
REMEDY = "add --trust-config if you trust this file"
HELPER_REMEDY = "if your program reads it, add --trust-config, which passes all variables of the config"
"""What to do about a variable that no process gets because it is a helper that no line uses."""


@dataclass(frozen=True)
class VariableClassification:
    """The kind of a config's variable: ``setting``, ``code`` or ``helper``.

    `effect`: the effect of a variable that brings code, as a phrase.
    """

    kind: str
    effect: str = ""


# Patterns are compiled when they are first used: to compile all takes every process 10 ms of CPU (AMD EPYC).

# Words at the end of a name whose value is a location or a program, and such words anywhere in a name.
_ENDS = (
    r"(PATH|DIR|DIRS|DIRECTORY|FOLDER|FILE|FILES|FILENAME|DEST|COMMAND|CMD|EXEC|EXECUTABLE|PROGRAM|BINARY|SCRIPT|SHELL"
    r"|AGENT|LAUNCHER|PRELOAD|LIB|LIBS|LIBRARY|LIBRARIES|PLUGIN|PLUGINS|MODULE|ARGS|ARGV|CONF|ENVIRONMENT|DEBUGGER"
    r"|OUTPUT)"
)
_ANYWHERE = r"(COMMAND|CMD|PRELOAD|PLUGIN|PLUGINS|INJECTION|EXEC|SCRIPT|MAIL|LIBRARY|LIBRARIES|ARGV)"
_PLACE = rf"(\w*_)?{_ENDS}|(\w*_)?{_ANYWHERE}(_\w*)?"

# Software with many settings: all names that begin so are settings, unless they contain the words above.
_OPEN = (
    r"(UCX|UCXX|UCXPY|UCC|NCCL|RMM|MPIR_CVAR|SHARP_COLL)_\w+"
    r"|OMPI_MCA_(pml|btl|mtl|bml|osc|coll|smsc|rcache|mpool|op|topo|part|accelerator|opal_common_ucx)(_\w+)?"
)
# UCX creates new files with its own names there, which containers with a small /dev/shm need.
_NO_PLACE = frozenset({"UCX_POSIX_DIR"})

# Software whose names are settings only if they are listed here; its other names can find or run code.
_LISTED: dict[str, tuple[str, str]] = {
    "Python": (r"PYTHON\w*", r"PYTHON(HASHSEED|UNBUFFERED|FAULTHANDLER|MALLOC|MALLOCSTATS|UTF8|_CPU_COUNT|_GIL|_JIT)"),
    "Dask": (
        r"DASK_\w*|DISTRIBUTED_\w*",
        r"DASK_DISTRIBUTED__("
        r"WORKER__(MEMORY|PROFILE|CONNECTIONS|TRANSFER|LIFETIME)__\w+|WORKER__(VALIDATE|USE_FILE_LOCKING)"
        r"|SCHEDULER__(ALLOWED_FAILURES|BANDWIDTH|DEFAULT_DATA_SIZE|EVENTS_CLEANUP_DELAY|IDLE_TIMEOUT"
        r"|NO_WORKERS_TIMEOUT|WORK_STEALING|WORK_STEALING_INTERVAL|WORKER_SATURATION|WORKER_TTL|VALIDATE"
        r"|UNKNOWN_TASK_DURATION|ACTIVE_MEMORY_MANAGER__(START|INTERVAL|MEASURE))"
        r"|WORKER__RESOURCES__\w+|SCHEDULER__EVENTS_LOG_LENGTH|COMM__REQUIRE_ENCRYPTION|COMM__TLS__MIN_VERSION"
        r"|COMM__(RETRY|TIMEOUTS|ZSTD)__\w+|COMM__(COMPRESSION|SHARD|OFFLOAD|SOCKET_BACKLOG)"
        r"|COMM__UCX__(CUDA_COPY|TCP|NVLINK|INFINIBAND|RDMACM|CREATE_CUDA_CONTEXT|MULTI_BUFFER)"
        r"|ADMIN__(TICK|SYSTEM_MONITOR)__\w+|ADMIN__(LOG_LENGTH|LOW_LEVEL_LOG_LENGTH|MAX_ERROR_LENGTH)"
        r"|CLIENT__(HEARTBEAT|SCHEDULER_INFO_INTERVAL)|P2P__(COMM|STORAGE)__\w+|P2P__THREADS|RMM__POOL_SIZE"
        r"|DIAGNOSTICS__(NVML|CUDF))"
        r"|DASK_DISTRIBUTED_UCXX__(CUDA_COPY|TCP|NVLINK|INFINIBAND|RDMACM|CREATE_CUDA_CONTEXT|MULTI_BUFFER"
        r"|RMM__POOL_SIZE)"
        r"|DASK_DATAFRAME__(CONVERT_STRING|SHUFFLE__(METHOD|COMPRESSION))|DASK_OPTIMIZATION__\w+",
    ),
    "numba": (
        r"NUMBA_\w*",
        r"NUMBA_(NUM_THREADS|THREADING_LAYER|OPT|LOOP_VECTORIZE|SLP_VECTORIZE|ENABLE_AVX|CPU_NAME|CPU_FEATURES"
        r"|DISABLE_INTEL_SVML|BOUNDSCHECK|DISABLE_JIT|DISABLE_CUDA|CUDA_PER_THREAD_DEFAULT_STREAM)",
    ),
    "CUDA": (
        r"(CUDA|NVIDIA|CUFILE|HIP|ROCR|NVTX|NSYS|CUPTI)_\w*",
        r"CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|LAUNCH_BLOCKING|DEVICE_MAX_CONNECTIONS|MODULE_LOADING"
        r"|MODULE_DATA_LOADING|CACHE_DISABLE|CACHE_MAXSIZE|DISABLE_PTX_JIT|FORCE_PTX_JIT|MANAGED_FORCE_DEVICE_ALLOC"
        r"|SCALE_LAUNCH_QUEUES|MPS_ACTIVE_THREAD_PERCENTAGE|MPS_PINNED_DEVICE_MEM_LIMIT)"
        r"|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|TF32_OVERRIDE)|(HIP|ROCR)_VISIBLE_DEVICES",
    ),
    "RAPIDS": (
        r"(RAPIDS|CUDF|LIBCUDF|KVIKIO)_\w*",
        r"RAPIDS_NO_INITIALIZE|CUDF_(SPILL|SPILL_ON_DEMAND|SPILL_DEVICE_LIMIT|SPILL_STATS|COPY_ON_WRITE)"
        r"|LIBCUDF_(CUFILE_POLICY|CUFILE_THREAD_COUNT|CUFILE_SLICE_SIZE|NVCOMP_POLICY|NUM_HOST_WORKERS"
        r"|HOST_COMPRESSION|HOST_DECOMPRESSION|HW_DECOMPRESSION)"
        r"|KVIKIO_(COMPAT_MODE|NTHREADS|NUM_THREADS|TASK_SIZE|GDS_THRESHOLD|BOUNCE_BUFFER_SIZE)",
    ),
    "the thread libraries": (
        r"(OMP|GOMP|KMP|OPENBLAS|BLIS|MKL|NUMEXPR|RAYON|TBB)_\w*",
        r"(OMP|OPENBLAS|BLIS|MKL|NUMEXPR|RAYON)_NUM_THREADS|NUMEXPR_MAX_THREADS|MKL_(DYNAMIC|CBWR|THREADING_LAYER)"
        r"|OMP_(THREAD_LIMIT|PROC_BIND|PLACES|DYNAMIC|SCHEDULE|STACKSIZE|WAIT_POLICY|MAX_ACTIVE_LEVELS|NESTED|DISPLAY_ENV)"
        r"|GOMP_(CPU_AFFINITY|STACKSIZE|SPINCOUNT)|KMP_(AFFINITY|BLOCKTIME|HW_SUBSET|SETTINGS)|OPENBLAS_(CORETYPE|VERBOSE)",
    ),
    "Polars and Arrow": (
        r"(POLARS|ARROW)_\w*",
        r"POLARS_(MAX_THREADS|IDEAL_MORSEL_SIZE|ENGINE_AFFINITY|VERBOSE|NUMA_AWARE)"
        r"|ARROW_(DEFAULT_MEMORY_POOL|IO_THREADS|USER_SIMD_LEVEL)",
    ),
    "the C library": (
        r"(MALLOC|GLIBC|LIBC)_\w*",
        r"MALLOC_(ARENA_MAX|ARENA_TEST|MMAP_MAX_|MMAP_THRESHOLD_|TRIM_THRESHOLD_|TOP_PAD_|PERTURB_)",
    ),
    "MPI": (
        r"(OMPI|OPAL|ORTE|PRTE|PMIX|MPI|MPICH|MPIR|MPIEXEC|HYDRA|I_MPI|MV2|HCOLL|SHARP)_\w*",
        r"I_MPI_(FABRICS|PIN|PIN_DOMAIN|PIN_ORDER|ADJUST_\w+|DEBUG)|MPICH_ASYNC_PROGRESS"
        r"|OMPI_MCA_(oob_tcp_(if_include|if_exclude)|hwloc_base_binding_policy|(mpi|opal)_cuda_support)"
        r"|PMIX_MCA_(gds|psec)|HCOLL_(MAIN_IB|ENABLE_SHARP)",
    ),
    "the RDMA libraries": (
        r"(IBV|RDMAV|MLX4|MLX5|FI|PSM2|PSM3)_\w*|ENABLE_SHARP_COLL",
        r"(IBV|RDMAV)_FORK_SAFE|RDMAV_HUGEPAGES_SAFE|MLX[45]_(SINGLE_THREADED|SCATTER_TO_CQE|SHUT_UP_BF)"
        r"|FI_PROVIDER|PSM[23]_MULTI_EP|ENABLE_SHARP_COLL",
    ),
}

# The effects of certain names, which say more than "is not among …"; the first match is used.
_KNOWN: tuple[tuple[str, str], ...] = (
    (r"LD_(PRELOAD|AUDIT)", "loads a library into every process"),
    (r"LD_\w+|LIBRARY_PATH|DYLD_\w+", "decides which libraries every process loads"),
    (r"GCONV_PATH|LOCPATH|NLSPATH|GETCONF_DIR|HOSTALIASES|TZDIR", "decides what the C library loads"),
    (r"PYTHON(PATH|HOME|USERBASE|STARTUP|PYCACHEPREFIX|PLATLIBDIR)", "makes Python run code from other folders"),
    (r"PATH", "decides which programs are run"),
    (r"BASH_\w+|ENV|PS[0-4]|PROMPT_COMMAND|CDPATH|SHELL|ZDOTDIR|INPUTRC|FPATH", "can make shells run commands"),
    (
        r"(PERL|RUBY|GEM|LUA|TCL|JAVA|JDK|MAVEN)\d*_\w+|NODE_(OPTIONS|PATH|EXTRA_CA_CERTS)"
        r"|R_(HOME|LIBS\w*|PROFILE\w*|ENVIRON\w*)|PERL\d*(LIB|OPT|DB)|RUBY(LIB|OPT)|CLASSPATH|_JAVA\w*",
        "can make interpreters run other code",
    ),
    (
        r"(EDITOR|VISUAL|PAGER|MANPAGER|BROWSER|LESS(OPEN|CLOSE)|(GIT|SSH|RSYNC|SUDO|GDB)_\w+)",
        "can make programs run other programs",
    ),
    (r"(OPENSSL|SSL|CURL|KRB5|GSS|SASL|NSS|PKCS11)_\w+", "decides what the encryption libraries load or trust"),
    (r"(HOME|XDG_\w+)", "decides where programs look for their own settings and modules"),
    (r"(TMPDIR|TEMP|TMP|PWD|OLDPWD)", "decides where processes keep files that they run or trust"),
    (
        r"VIRTUAL_ENV\w*|(CONDA|MAMBA|PIP|UV|POETRY|PYENV|PYTEST|COVERAGE|JUPYTER|IPYTHON|BOKEH|PANEL|DUCKDB)(_\w+)?|MPL\w*"
        r"|IPYTHONDIR",
        "decides which packages or plug-ins Python loads",
    ),
    (r"DASK_(\w+__)?PRELOAD(_ARGV)?", "makes Dask run a module"),
    (r"DASK_(CONFIG|ROOT_CONFIG|INTERNAL_INHERIT_CONFIG)", "adds settings of Dask, which can run modules"),
    (r"NUMBA_CACHE_DIR", "makes numba run compiled code from another folder"),
    (r"UCX_(MODULE_DIR|CONFIG_DIR|PLUGIN_PATH)", "makes UCX load libraries or settings from another folder"),
    (r"UCX_GDB_COMMAND", "makes UCX run a program"),
    (r"UCX_ERROR_MAIL_\w+", "makes UCX run sendmail"),
    (r"UCX_\w*(FILE|DEST|INFO_DIR)", "makes UCX overwrite a file"),
    (r"OMPI_\w*|OPAL_\w*|PRTE_\w*|PMIX_\w*|ORTE_\w*", "can make MPI run other programs or load other libraries"),
)
# Names that bring code with some values only: the harmless values, and the effect of the others.
_BY_VALUE = {
    "UCX_HANDLE_ERRORS": (r"(bt|none)?(,(bt|none))*", "makes UCX start a debugger or wait for one"),
    f"{PREFIX}PROTOCOL": (
        r"\s*(auto|tcp|tls)\s*",
        "exposes the cluster: Dask over UCX is not encrypted and listens on all interfaces",
    ),
    "NCCL_NET_PLUGIN": (r"|none", "makes NCCL load a library"),
    "NCCL_TUNER_PLUGIN": (r"|none", "makes NCCL load a library"),
    "UCX_STATS_DEST": (r"|stdout|stderr", "makes UCX overwrite a file or send data to a host"),
    "UCX_MEMTRACK_DEST": (r"|stdout|stderr", "makes UCX overwrite a file"),
    "_RJEM_MALLOC_CONF": (r"((?!prof|log)[a-z_]+:[a-z0-9_.-]+,?)*", "makes Polars' allocator write files"),
    "GLIBC_TUNABLES": (
        r"(glibc\.malloc\.[a-z_]+=\d+(:|$))*",
        "changes more of the C library than its memory allocator",
    ),
    f"{PREFIX}INSECURE": (
        r"\s*(0|n|no|false|off)\s*",
        "exposes the cluster: anyone who can connect to its ports can run code",
    ),
}
_OPTIONS = {
    f"{PREFIX}SSH_CONFIG": "names an ssh configuration file, which can run any command",
    f"{PREFIX}SCHEDULER_ADDRESS": "connects to a scheduler, whose pickled data can run code on this machine",
    f"{PREFIX}SCHEDULER_FILE": "connects to a scheduler, whose pickled data can run code on this machine",
}
_LOOKS = rf"{_PLACE}|(\w*_)?(HOME|ROOT|PREFIX|MODULES|HOOKS?|STARTUP|RC|OPTS|OPTIONS|CONFIG)"


def classify_variable(name: str, value: str, *, is_referenced: bool = False) -> VariableClassification:
    """Decide whether a variable of a config is a setting, brings code, or is a helper of other lines.

    `is_referenced`: whether a later line refers to the variable; then an unknown name is a helper even if it looks like
    a path.
    """
    if name in _BY_VALUE:
        harmless, what = _BY_VALUE[name]
        return (
            VariableClassification(SETTING)
            if re.fullmatch(harmless, value, re.IGNORECASE)
            else VariableClassification(CODE, what)
        )
    if name.startswith(PREFIX):
        return VariableClassification(CODE, _OPTIONS[name]) if name in _OPTIONS else VariableClassification(SETTING)
    if name in OLD_NAMES:
        return VariableClassification(HELPER if name in NO_EFFECT else SETTING)
    listed = next(((who, its[1]) for who, its in _LISTED.items() if re.fullmatch(its[0], name)), None)
    is_open = re.fullmatch(_OPEN, name)
    is_place = re.fullmatch(_PLACE, name, re.IGNORECASE) and name not in _NO_PLACE
    if (is_open and not is_place) or (listed is not None and re.fullmatch(listed[1], name)):
        return VariableClassification(SETTING)
    effect = next((what for names, what in _KNOWN if re.fullmatch(names, name)), None)
    if effect is not None:
        return VariableClassification(CODE, effect)
    if listed is not None:
        return VariableClassification(
            CODE, f"may load or run code, because it is not a known safe setting of {listed[0]}"
        )
    if is_open:
        return VariableClassification(CODE, "seems to name code, a program or an output file")
    if re.fullmatch(_LOOKS, name) and not is_referenced:
        return VariableClassification(CODE, "seems to name a location of code, and no later line uses it")
    return VariableClassification(HELPER)


def variables_that_run_code(config: ConfigFile) -> list[tuple[ConfigVariable, str]]:
    """The variables of `config` through which programs would find or run code, each with its effect."""
    judged = [
        (each, classify_variable(each.name, each.value, is_referenced=each.name in config.used))
        for each in config.variables
    ]
    return [(variable, judgement.effect) for variable, judgement in judged if judgement.kind == CODE]


def refuse_code_in_config(config: ConfigFile) -> None:
    """Raise UsageError, with file, line and effect of the first variable through which programs would run code."""
    code = variables_that_run_code(config)
    if code:
        variable, what = code[0]
        count = len(code) - 1
        more = f" ({count_with_noun(count, 'more variable')} can also load or run code)" if count else ""
        raise UsageError(f"{config.format_position(variable.line)}: {variable.name} {what}{more}; {REMEDY}")


def process_environment_variables(config: ConfigFile, *, trusted: bool) -> dict[str, str]:
    """The variables that the processes of a launch get: the settings of `config`, or all its variables if `trusted`."""
    return {
        name: variable.value
        for name, variable in translate_config(config).environment.items()
        if trusted or classify_variable(name, variable.value, is_referenced=name in config.used).kind == SETTING
    }


def refuse_configs_that_differ_in_nothing(
    configs: Iterable[ConfigFile | None], *, trusted: bool, option_variables: Collection[str] | None = None
) -> None:
    """Raise UsageError for two configs that differ only in variables without effect.

    Copies of one config are accepted: compared with each other, they show the noise. `option_variables`: the
    ``MERGE_BENCH_…`` variables that have an effect; None: all.
    """

    def find_effective_values(config: ConfigFile) -> tuple[dict[str, str], dict[str, str]]:
        options = translate_config(config).options.items()
        chosen = {name: each.value for name, each in options if option_variables is None or name in option_variables}
        return process_environment_variables(config, trusted=trusted), chosen

    for first, second in itertools.combinations(dict.fromkeys(filter(None, configs)), 2):
        values, others = first.variable_values, second.variable_values
        if values == others or find_effective_values(first) != find_effective_values(second):
            continue
        names = [name for name in dict.fromkeys([*values, *others]) if values.get(name) != others.get(name)]
        are_helpers = any(classify_variable(name, "").kind == HELPER for name in names)
        raise UsageError(
            f"{first.path} and {second.path} make the same launches: they differ only in {', '.join(names)}, which has"
            f" no effect here{f'; {HELPER_REMEDY}' * are_helpers}"
        )
