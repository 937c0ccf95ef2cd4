"""Names of a config, sorted by what they can do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from numba.core import config as numba_config

from merge_bench.cluster.dask_commands import DASK_VARIABLES, THREAD_COUNTS
from merge_bench.config.options import OPTIONS, RunOptions, resolve_options
from merge_bench.config.reader import ConfigFile, read_config
from merge_bench.config.ucx_info import InstalledUcx, read_released_setting_names
from merge_bench.config.variables import classify_variable, process_environment_variables, variables_that_run_code
from merge_bench.errors import UsageError
from tests.config.test_check import CONFIGS

TRUSTED = RunOptions().with_command_line_values(trust_config=True)


def kind(line: str) -> str:
    name, _, value = line.partition("=")
    return classify_variable(name, value or "/somewhere").kind


CODE_LINES = """
    PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTHONSTARTUP PYTHONINSPECT PYTHONPYCACHEPREFIX PYTHONWARNINGS PYTHONBREAKPOINT
    PYTHON_PRESITE VIRTUAL_ENV LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH LD_DEBUG_OUTPUT GCONV_PATH LOCPATH NLSPATH
    GLIBC_TUNABLES PATH HOME TMPDIR XDG_CONFIG_HOME BASH_ENV ENV PS4 PROMPT_COMMAND SHELL PERL5LIB PERL5OPT PERLLIB
    RUBYOPT NODE_OPTIONS JAVA_TOOL_OPTIONS _JAVA_OPTIONS EDITOR PAGER GIT_SSH GIT_EXTERNAL_DIFF SSH_ASKPASS OPENSSL_CONF
    OPENSSL_MODULES CONDA_PREFIX MPLCONFIGDIR MPLBACKEND JUPYTER_PATH IPYTHONDIR POLARS_TEMP_DIR ARROW_LIBHDFS_DIR
    UCX_MODULE_DIR UCX_CONFIG_DIR UCX_GDB_COMMAND UCX_ERROR_MAIL_TO UCX_LOG_FILE UCX_PROFILE_FILE UCX_PROTO_INFO_DIR
    UCX_HANDLE_ERRORS=bt,debug UCX_HANDLE_ERRORS=freeze UCX_STATS_DEST=file:x UCX_STATS_DEST=udp:there:37873
    UCX_MEMTRACK_DEST=file:x UCX_SOME_PLUGIN_NAME UCC_COMPONENT_PATH UCC_CONFIG_FILE NCCL_NET_PLUGIN NCCL_CONF_FILE
    RMM_DEBUG_LOG_FILE DASK_CONFIG DASK_ROOT_CONFIG DASK_INTERNAL_INHERIT_CONFIG DASK_DISTRIBUTED
    DASK_DISTRIBUTED__WORKER DASK_DISTRIBUTED__WORKER__PRELOAD DASK_DISTRIBUTED__SCHEDULER__PRELOAD_ARGV
    DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES DASK_DISTRIBUTED__LOGGING DASK_LOGGING
    DASK_DISTRIBUTED__CLIENT__SECURITY_LOADER DASK_DISTRIBUTED__NANNY__ENVIRON
    DASK_DISTRIBUTED__SCHEDULER__ACTIVE_MEMORY_MANAGER__POLICIES DASK_DISTRIBUTED_UCXX__ENVIRONMENT
    DASK_DISTRIBUTED__COMM__UCX__ENVIRONMENT DASK_DISTRIBUTED__COMM__TLS__CA_FILE DASK_TEMPORARY_DIRECTORY
    NUMBA_CACHE_DIR NUMBA_CACHE_LOCATOR_CLASSES NUMBA_GDB_BINARY NUMBA_CUDA_DRIVER NUMBA_CUDA_MEMORY_MANAGER
    CUDA_INJECTION64_PATH CUDA_CACHE_PATH CUDA_MPS_PIPE_DIRECTORY NVTX_INJECTION64_PATH CUFILE_ENV_PATH_JSON
    LIBCUDF_KERNEL_CACHE_PATH OMP_TOOL_LIBRARIES OMPI_MCA_mca_base_component_path OMPI_MCA_plm_rsh_agent
    OMPI_MCA_orte_launch_agent OPAL_PREFIX PRTE_MCA_plm_ssh_agent PMIX_MCA_mca_base_component_path
    OMPI_MCA_coll_tuned_dynamic_rules_filename I_MPI_HYDRA_BOOTSTRAP_EXEC HYDRA_LAUNCHER_EXEC
    MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE MY_PLUGIN_PATH SITE_PRELOAD SITE_LAUNCH_COMMAND
    _RJEM_MALLOC_CONF=prof:true,prof_prefix:/x MERGE_BENCH_SSH_CONFIG MERGE_BENCH_SCHEDULER_ADDRESS
    MERGE_BENCH_SCHEDULER_FILE MERGE_BENCH_INSECURE=y
"""


@pytest.mark.parametrize("line", CODE_LINES.split())
def test_what_leads_to_code(line: str) -> None:
    assert kind(line) == "code"


SETTING_LINES = """
    UCX_TLS UCX_NET_DEVICES UCX_MODULES UCX_POSIX_DIR UCX_HANDLE_ERRORS=bt UCX_HANDLE_ERRORS=none UCX_STATS_DEST=stdout
    UCX_IB_SUBNET_PREFIX UCX_RC_MLX5_PATH_MTU UCX_MEM_DLOPEN_PROCESS_RPATH UCX_A_NAME_OF_TOMORROW UCXPY_PROGRESS_MODE
    UCXPY_NON_BLOCKING_MODE UCXX_LOG_LEVEL UCC_TLS UCC_TL_UCP_TUNE NCCL_IB_HCA NCCL_DEBUG SHARP_COLL_LOG_LEVEL
    CUDA_VISIBLE_DEVICES CUDA_MODULE_LOADING OMP_NUM_THREADS OMP_PROC_BIND MKL_NUM_THREADS NUMBA_NUM_THREADS
    PYTHONHASHSEED MALLOC_ARENA_MAX MALLOC_TRIM_THRESHOLD_ GLIBC_TUNABLES=glibc.malloc.hugetlb=1
    _RJEM_MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:0 OMPI_MCA_pml=ucx OMPI_MCA_btl_tcp_if_include
    DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT DASK_DISTRIBUTED__RMM__POOL_SIZE
    DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT CHUNK_SIZE ITER MERGE_BENCH_CHUNK MERGE_BENCH_RESULTS
    MERGE_BENCH_INSECURE=no
"""


@pytest.mark.parametrize("line", SETTING_LINES.split())
def test_what_is_a_setting(line: str) -> None:
    assert kind(line) == "setting"


@pytest.mark.parametrize("name", ["RAILS", "NIC", "HOST", "NODE", "SITE_NAME", "JOB_DIR", "ld_preload", "LANG", "TZ"])
def test_everything_else_helps_later_lines_alone(name: str) -> None:
    assert kind(name) == "helper"


def test_a_name_that_a_later_line_uses_is_a_helper_however_it_reads() -> None:
    assert classify_variable("DATA_DIR", "/x").kind == "code"
    assert classify_variable("DATA_DIR", "/x", is_referenced=True).kind == "helper"
    assert classify_variable("LD_LIBRARY_PATH", "/x", is_referenced=True).kind == "code"


def test_what_the_launcher_sets_itself_is_a_setting() -> None:
    """But for what Dask's servers and its folder are: those a config may not change."""
    fixed = {name for name in DASK_VARIABLES if name.endswith("HTTP__ROUTES")}
    assert {name for name in (*DASK_VARIABLES, *THREAD_COUNTS) if kind(name) != "setting"} == fixed


@pytest.mark.usefixtures("wheel")
def test_of_ucx_just_these_settings_are_no_settings(wheel: InstalledUcx) -> None:
    """All names of eleven releases and of the installed one were looked at; a new one that ends alike is caught."""
    _, shipped = read_released_setting_names()
    others = """
        UCX_ERROR_MAIL_FOOTER UCX_ERROR_MAIL_TO UCX_GDB_COMMAND UCX_HANDLE_ERRORS UCX_LOG_FILE UCX_MEMTRACK_DEST
        UCX_MODULE_DIR UCX_PLUGIN_PATH UCX_PROFILE_FILE UCX_PROTO_INFO_DIR UCX_STATS_DEST UCX_VFS_SOCK_PATH
    """
    assert {name for name in (*shipped, *wheel.settings) if kind(name) != "setting"} == set(others.split())


def test_of_numba_no_place_class_or_program_is_a_setting() -> None:
    """The names are those that the installed numba reads."""
    names = set(re.findall(r'"(NUMBA_\w+)"', Path(numba_config.__file__).read_text()))
    assert len(names) > 60
    dangerous = re.compile(r"DIR|PATH|CLASS|BINARY|DRIVER$|MANAGER|PROFIL|COVERAGE|DUMP|TRACE|MONITOR|SIM$")
    assert not {name for name in names if dangerous.search(name) and kind(name) == "setting"}


def test_options_that_reach_out_are_no_settings_of_a_config() -> None:
    """Each option was judged: what reads data, writes new folders or chooses among what is here is a setting."""
    refused = {
        each.command_line_name
        for each in OPTIONS
        if each.in_config and kind(f"{each.environment_variable}=y") == "code"
    }
    assert refused == {"ssh-config", "scheduler-address", "scheduler-file", "insecure", "protocol"}


# --- generated configs ------------------------------------------------------------------------------------------------

_WORD = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _word(chance: Random) -> str:
    return "".join(chance.choices(_WORD, k=chance.randint(2, 7)))


def _named(names: str) -> Callable[[Random], str]:
    return lambda chance: chance.choice(names.split())


def _ending(start: str, *ends: str, lower: bool = False) -> Callable[[Random], str]:
    """Names that begin and end so, with any words between."""

    def make(chance: Random) -> str:
        between = "".join(f"{_word(chance)}_" for _ in range(chance.randint(0, 2)))
        text = f"{between}{chance.choice(ends)}"
        return start + (text.lower() if lower else text)

    return make


_DASK_LEAVES = (
    "PRELOAD PRELOAD_ARGV HTTP__ROUTES LOGGING LOGGING_FILE_CONFIG ENVIRON SECURITY_LOADER PRE_SPAWN_ENVIRON "
    "POLICIES PLUGINS ENVIRONMENT "
)


def _dask(chance: Random) -> str:
    tree = chance.choice(("", "SCHEDULER__", "WORKER__", "NANNY__", "CLIENT__", "ADMIN__", "COMM__", "P2P__"))
    leaf = chance.choice(["", *_DASK_LEAVES.split()])
    return f"DASK_DISTRIBUTED__{tree}{leaf}".rstrip("_")


KINDS: dict[str, tuple[Callable[[Random], str], ...]] = {
    "Python": (
        _named(
            "PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTHONSTARTUP PYTHONPYCACHEPREFIX PYTHONINSPECT PYTHONWARNINGS "
            "PYTHONBREAKPOINT PYTHONPLATLIBDIR PYTHONEXECUTABLE PYTHON_PRESITE"
        ),
        _ending("PYTHON", "PATH", "HOME", "STARTUP", "PREFIX", "HOOK"),
    ),
    "the loader": (
        _named("LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH LD_ORIGIN_PATH LD_DEBUG_OUTPUT LD_PROFILE_OUTPUT"),
        _ending("LD_", "PATH", "PRELOAD", "AUDIT", "OUTPUT"),
    ),
    "UCX": (
        _named("UCX_MODULE_DIR UCX_CONFIG_DIR UCX_GDB_COMMAND UCX_LOG_FILE UCX_ERROR_MAIL_TO"),
        _ending("UCX_", "MODULE_DIR", "COMMAND", "PLUGIN_PATH", "PRELOAD", "LOG_FILE", "LIBRARY"),
        _ending("UCC_", "COMPONENT_PATH", "CONFIG_FILE", "PLUGIN"),
    ),
    "numba": (
        _named(
            "NUMBA_CACHE_DIR NUMBA_CACHE_LOCATOR_CLASSES NUMBA_GDB_BINARY NUMBA_CUDA_DRIVER NUMBA_CUDA_INCLUDE_PATH "
            "NUMBA_CUDA_MEMORY_MANAGER"
        ),
        _ending("NUMBA_", "DIR", "PATH", "CLASSES", "DRIVER", "BINARY", "MANAGER"),
    ),
    "Dask": (_dask, _named("DASK_CONFIG DASK_ROOT_CONFIG DASK_INTERNAL_INHERIT_CONFIG DASK_LOGGING")),
    "MPI": (
        _named(
            "OMPI_MCA_mca_base_component_path OMPI_MCA_plm_rsh_agent OMPI_MCA_orte_launch_agent OPAL_PREFIX "
            "PRTE_MCA_plm_ssh_agent PMIX_MCA_mca_base_component_path HYDRA_LAUNCHER_EXEC"
        ),
        _ending("OMPI_MCA_", "component_path", "agent", "prefix", "filename", "command", lower=True),
        _ending("OMPI_MCA_coll_", "library_path", "filename", "agent", "plugin", lower=True),
        _ending("I_MPI_HYDRA_", "EXEC", "PATH", "PREFIX"),
    ),
    "the shell": (_named("BASH_ENV ENV PS4 PROMPT_COMMAND SHELL PATH CDPATH"),),
    "iconv": (_named("GCONV_PATH LOCPATH NLSPATH"),),
    "perl": (_named("PERL5LIB PERL5OPT PERLLIB PERL5DB"), _ending("PERL_", "LIB", "OPT", "PATH")),
    "CUDA": (_ending("CUDA_", "INJECTION64_PATH", "CACHE_PATH", "DIRECTORY"), _ending("NVTX_", "INJECTION64_PATH")),
    "encryption": (_ending("OPENSSL_", "CONF", "MODULES", "ENGINES"), _ending("SSL_CERT_", "FILE", "DIR")),
    "nobody knows": (_ending("SITE_", "PATH", "PRELOAD", "COMMAND", "PLUGIN_DIR", "LIBRARY", "ARGS"),),
}
_DASK_SETTINGS = tuple(name for name in DASK_VARIABLES if not name.endswith("ROUTES"))
_PLAIN_SETTINGS = """
    UCX_TLS UCX_RNDV_THRESH UCX_NET_DEVICES UCX_SYSV_ERROR_HANDLING UCX_NEW_ONE UCXX_LOG_LEVEL UCXPY_PROGRESS_MODE
    OMP_NUM_THREADS CUDA_VISIBLE_DEVICES NCCL_DEBUG OMPI_MCA_pml MALLOC_ARENA_MAX NUMBA_OPT
"""
SETTINGS = (*_PLAIN_SETTINGS.split(), *_DASK_SETTINGS)
HELPERS = ("NIC", "RAILS", "MINE", "lower_case", "SITE", "LANG", "WORK_DIR")


def _value(chance: Random, earlier: list[str]) -> str:
    """A word of a config; often made of earlier lines."""
    plain = chance.choice(("/some/folder", "a,b", "1", "file:x", "x.y", "-n 2", ""))
    forms = [f"'{plain}'", f'"{plain}"', plain.replace(" ", "_"), f"${{NOWHERE:-{plain.replace(' ', '_')}}}"]
    if earlier:
        forms += [f"${{{chance.choice(earlier)}}}", f'"${chance.choice(earlier)}:{plain}"']
    return chance.choice(forms)


def _text(chance: Random, names: list[str]) -> str:
    """A config that sets these names in this order."""
    lines: list[str] = []
    earlier: list[str] = []
    for name in names:
        export = chance.choice(("", "export ", "  export\t"))
        line = f"{export}{name}={_value(chance, earlier)}"
        joined = lines and not lines[-1].lstrip().startswith("#") and chance.random() < 0.1 and not export
        if joined and not lines[-1].lstrip().startswith("export"):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
        earlier.append(name)
        if chance.random() < 0.2:
            lines.append(chance.choice(("", f"# {name} is harmless", f"export {name}")))
    return chance.choice(("\n", "\r\n")).join(lines)


def _generated(count: int, folder: Path, names: Callable[[Random], list[str]]) -> Iterator[ConfigFile]:
    chance = Random(20261122)
    path = folder / "generated.cfg"
    for _ in range(count):
        path.write_text(_text(chance, names(chance)), newline="")
        yield read_config(path, {})


@pytest.mark.parametrize("count", [150, pytest.param(850, marks=pytest.mark.soak)])
@pytest.mark.parametrize("software", KINDS)
def test_no_generated_config_brings_code(software: str, count: int, tmp_path: Path) -> None:
    """Refused with the line of the name, and nothing of it handed on; if it is trusted, all of it is."""
    makers = KINDS[software]
    made: list[str] = []

    def names(chance: Random) -> list[str]:
        made.append(chance.choice(makers)(chance))
        around = chance.sample((*SETTINGS, *HELPERS), k=chance.randint(0, 5))
        around.insert(chance.randint(0, len(around)), made[-1])
        return around

    for config in _generated(count, tmp_path, names):
        name = made[-1]
        (variable,) = (each for each in config.variables if each.name == name)
        if software == "nobody knows" and name in config.used:
            continue
        with pytest.raises(UsageError) as caught:
            resolve_options(RunOptions(), config, {"MERGE_BENCH_TRUST_CONFIG": "1"})
        assert str(caught.value).startswith(f"{config.format_position(variable.line)}: {name} ")
        assert "\n" not in str(caught.value)
        assert name not in process_environment_variables(config, trusted=False)
        resolve_options(TRUSTED, config, {})
        assert process_environment_variables(config, trusted=True)[name] == variable.value
    assert len(set(made)) > (2 if software == "iconv" else 3)


@pytest.mark.parametrize("count", [300, pytest.param(1500, marks=pytest.mark.soak)])
def test_of_allowed_configs_just_the_settings_reach_processes(count: int, tmp_path: Path) -> None:
    given: list[list[str]] = []

    def names(chance: Random) -> list[str]:
        given.append(chance.sample((*SETTINGS, *HELPERS), k=chance.randint(1, 9)))
        return given[-1]

    for config in _generated(count, tmp_path, names):
        resolve_options(RunOptions(), config, {})
        assert variables_that_run_code(config) == []
        expected = {name: config.variable_values[name] for name in given[-1] if name in SETTINGS}
        assert process_environment_variables(config, trusted=False) == expected
        assert process_environment_variables(config, trusted=True) == config.variable_values


def test_old_names_reach_processes_by_their_new_ones_alone(tmp_path: Path) -> None:
    path = tmp_path / "cluster.cfg"
    path.write_text(
        "CHUNK_SIZE=1e6\nUCXPY_NON_BLOCKING_MODE=1\nJOB_DIR=/scratch\nRAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY=1\n"
    )
    config = read_config(path, {})
    assert resolve_options(RunOptions(), config, {}).chunk == 1_000_000
    assert process_environment_variables(config, trusted=False) == {"UCXPY_PROGRESS_MODE": "polling"}


def test_all_that_brings_code_is_counted_and_the_first_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.cfg"
    path.write_text("UCX_TLS=tcp\nLD_PRELOAD=./x.so\nPYTHONPATH=/x BASH_ENV=/x\n")
    with pytest.raises(UsageError) as caught:
        resolve_options(RunOptions(), read_config(path, {}), {})
    assert str(caught.value) == (
        f"{path}:2: LD_PRELOAD loads a library into every process (2 more variables can also load or run code);"
        " add --trust-config if you trust this file"
    )


def test_the_shipped_configs_bring_no_code() -> None:
    paths = sorted(CONFIGS.glob("*.cfg"))
    assert len(paths) >= 8
    for path in paths:
        config = read_config(path, {})
        assert variables_that_run_code(config) == []
        resolve_options(RunOptions(), config, {})
