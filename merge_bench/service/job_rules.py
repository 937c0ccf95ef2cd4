"""What a job may contain: options and settings that hold no path, command or code, and tables of allowed folders.

An option of the table is allowed if its parser accepts only numbers, sizes or fixed words. Options that take free text
are refused unless they are listed here, so a new one is refused until somebody decides.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from merge_bench.campaign import add_allowed_values
from merge_bench.command.command_campaign import make_command_plan
from merge_bench.command.metrics import COMMAND
from merge_bench.command.options import ExecOptions, NamedCommandOptions, options_of_run_for_exec
from merge_bench.command.placeholders import WORK_FOLDER
from merge_bench.config import parsers
from merge_bench.config.option import Option, format_option_value, options_by_key, parse_option_text
from merge_bench.config.options import BY_VARIABLE, OPTIONS, PROBE_OPTIONS, TUNE_OPTIONS
from merge_bench.config.parsers import suggest_similar_names
from merge_bench.config.reader import read_config
from merge_bench.config.shipped import FOLDER, SUFFIX, find_shipped_file, shipped_config_names
from merge_bench.config.ucx_info import read_released_setting_names
from merge_bench.config.ucx_releases import cached_releases
from merge_bench.config.variables import SETTING, judge_variable, refuse_code_in_config, translate_config
from merge_bench.errors import UsageError
from merge_bench.probe import probes
from merge_bench.records.results_folder import is_result_folder
from merge_bench.regressions.gates import HISTORY
from merge_bench.service.documents import JobRequest
from merge_bench.service.named_commands import EXEC, NAMED_OPTION, find_named_command
from merge_bench.service.store import NAME, NAME_RULE
from merge_bench.tune.options import TuneOptions

TEXT = frozenset(("on", "left_on", "right_on", "columns", "question", "require_transport", "only")) | frozenset(
    ("sizes", "counts", "placement", "tests", "algorithms", "backend")
)
"""Options with free text that the command only compares with names that it knows, or with names of columns."""
EXEC_TEXT = frozenset(("named", "metric", "metric_file", "unit", "better", "pick", "check"))
"""Options of `exec` with free text, which `JobRules` checks as the command does; some are narrower in a job."""
TABLES = frozenset(("left", "right"))
RESULT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_CLUSTER = "the service decides on which cluster its jobs run"
_OUTPUT = "the service decides where results go and how they are kept"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("hosts", "ssh_config", "launcher", "interface", "scheduler_address", "scheduler_file"), _CLUSTER),
    **dict.fromkeys(("protocol", "insecure", "dask_dashboard"), "it can expose the cluster to the network"),
    **dict.fromkeys(
        ("results", "output", "csv", "plot", "json", "dry_run", "fresh", "extend", "write_result"), _OUTPUT
    ),
    **dict.fromkeys(("trust_config", "allow_unknown"), "a job contains only known, safe settings"),
    **dict.fromkeys(("config", "configs", "baseline"), 'name shipped configs in "configs"'),
    "service": "it runs here, and cannot queue another one elsewhere",
    "space": "it names a file",
    "mpirun": "it names a program",
}
_LARGEST_VALUES = {"workers": 256, **dict.fromkeys(("launches", "most_blocks", "confirm", "max_launches"), 10_000)}
_METRIC_FILE = re.compile(re.escape(WORK_FOLDER) + r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+")
_SETTING_VALUE = re.compile(r"[A-Za-z0-9_.,:;=+*^?@%~()\[\] -]*")
"""Values of settings contain no slash, so no path, and nothing that a shell expands."""


@dataclass(frozen=True)
class JobRules:
    """Rules for the contents of jobs.

    They may name results in `results`, tables in the folders `tables`, and the operator's `commands`, by which each has
    its words.
    """

    results: Path
    tables: Sequence[Path] = ()
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def command_words(self, request: JobRequest) -> list[str]:
        """Return the arguments of `python -m merge_bench` for a job, without ``--results``, in the folder of the job.

        Each value is one word with its option, so that none can become another option. A job of `exec` has the name of
        its command among them. Raises UsageError.
        """
        options = _options_of_command(request.command)
        words: list[str] = []
        for key, value in request.options.items():
            option = _allowed_option(request.command, options, key.replace("-", "_"), key)
            if option.flag:
                if not isinstance(value, bool | None):
                    raise UsageError(f"{key} must be true or false")
                words += [f"--{option.name}"] * bool(value)
            elif value is not None:
                texts = _texts_of_value(option, key, value)
                words += [f"--{option.name}={self._command_argument(option, text)}" for text in texts]
        if request.command == EXEC:
            named = self._check_named_command(request)
            return [EXEC, named, *self._config_arguments(request), *(word for word in words if word != named)]
        return [*request.command.split(), *self._config_arguments(request), *words]

    def _command_argument(self, option: Option, text: str) -> str:
        """The value of an option as the command gets it: of a table or a result its path."""
        if option.key in TABLES:
            return str(self._find_table(option.key, text))
        if option.key != "against":
            return _check_option_value(option, text, option.key)
        if text == HISTORY:
            return text
        if RESULT_NAME.fullmatch(text) and is_result_folder(self.results / text):
            return str(self.results / text)
        raise UsageError(f"against must be {HISTORY}, or the name of a result as /api/results lists them")

    def _check_named_command(self, request: JobRequest) -> str:
        """Return the word that names the command of a job; raises UsageError if it, a metric or a check is wrong."""
        table = {option.key: option for option in (*ExecOptions.table(), *NamedCommandOptions.table())}
        values: dict[str, Any] = {}
        for key, value in request.options.items():
            option = table.get(key.replace("-", "_"))
            if option is not None and not option.flag and value is not None:
                texts = _texts_of_value(option, key, value)
                values[option.key] = texts if _takes_texts(option) else option.parse(texts[0])
        name = values.pop("named", None)
        make_command_plan(find_named_command(name, self.commands), ExecOptions.from_command_line(values))
        return f"{NAMED_OPTION}{name}"

    def _find_table(self, key: str, text: str) -> Path:
        """Find the real path of the table `text`, a file or folder in a folder of `tables`; raises UsageError."""
        for folder in self.tables:
            with contextlib.suppress(OSError, RuntimeError):
                table = (folder / text).resolve()
                if table.is_relative_to(folder.resolve()) and table.exists():
                    return table
        allowed = f" ({', '.join(map(str, self.tables))})" if self.tables else "; this service has none"
        raise UsageError(f"{key} must be in one of the service's folders of tables{allowed}")

    def _config_arguments(self, request: JobRequest) -> list[str]:
        own = bool(request.settings) or request.name is not None
        if request.configs and own:
            raise UsageError("a job takes either configs or settings, not both")
        shipped = [find_shipped_file(name, extra_names=()) for name in request.configs]
        for path in shipped:  # one of this site may bring code
            refuse_code_in_config(read_config(path, os.environ))
        paths = list(map(str, shipped))
        if own:
            check_job_settings(request.settings)
            paths = [settings_file_name(request.settings, request.name)]
        if request.command == "tune" and len(paths) > 1:
            raise UsageError("tune begins with one config; name only one")
        if request.command in ("run", EXEC) and len(paths) > 1:
            return [f"--configs={','.join(paths)}"]
        return [path if request.command == "tune" else f"--config={path}" for path in paths]


def typed_command(words: Sequence[str]) -> str:
    """The command line of a job as a person would type it: shipped configs by their names."""
    return shlex.join(["merge-bench", *words]).replace(f"{FOLDER}/", "")


def check_job_settings(settings: Mapping[str, str]) -> None:
    """Raise UsageError for the first setting that is not allowed, or whose value could be more than a value."""
    for name, value in settings.items():
        option = BY_VARIABLE.get(name)
        if option is not None and option.in_config and option.key not in TABLES:
            _check_option_value(_allowed_option("run", _options_of_command("run"), option.key, name), value, name)
        # Judged with a path: some names are harmless with other values, and a job needs none of them.
        elif (
            name not in read_released_setting_names()[1]
            or judge_variable(name, "/").kind != SETTING
            or name == "UCX_POSIX_DIR"
        ):
            raise UsageError(
                f"a job cannot set {name!r}, but only UCX_… and MERGE_BENCH_… settings that name no path or command"
            )
        if not _SETTING_VALUE.fullmatch(value):
            raise UsageError(f"the value of {name!r} can contain only letters, digits, spaces and _.,:;=+*^?@%~()[]-")


def settings_file_name(settings: Mapping[str, str], name: str | None = None) -> str:
    """The name of the config file, in the folder of the job, that gets these settings.

    Results of one name are one history, so a config keeps its `name` when its settings change. Without one, the same
    settings have the same name.

    Raises
    ------
    UsageError
        If no file can have this name, or it is that of a shipped config, which has other settings.
    """
    if name is None:
        return f"job-{hashlib.blake2b(settings_file_text(settings).encode(), digest_size=4).hexdigest()}{SUFFIX}"
    if not re.fullmatch(NAME, name):
        raise UsageError(
            f"a config that is sent to a service is named by {NAME_RULE}, which {name!r} is not; rename it"
        )
    shipped = next((each for each in shipped_config_names() if each.casefold() == f"{name}{SUFFIX}".casefold()), None)
    if shipped is not None and (shipped != name + SUFFIX or read_config_settings(FOLDER / shipped) != settings):
        raise UsageError(f"{shipped} is a shipped config with other settings; give yours another name")
    return name + SUFFIX


def read_config_settings(config: Path) -> dict[str, str]:
    """Read the settings of a config file, by name; raises UsageError if it cannot be read."""
    read = translate_config(read_config(config, os.environ))
    return {each.name: each.value for each in {**read.options, **read.environment}.values()}


def find_settings_file(words: Sequence[str]) -> str | None:
    """Return the name of the file with a job's own settings, found in the job's arguments; None if there is none."""
    matches = (re.fullmatch(rf"(?:--config=)?({NAME}{re.escape(SUFFIX)})", word) for word in words)
    return next((match[1] for match in matches if match), None)


def settings_file_text(settings: Mapping[str, str]) -> str:
    """The text of a config file with these settings, which `check_job_settings` allowed."""
    return "".join(f"{name}='{value}'\n" for name, value in sorted(settings.items()))


def job_commands() -> Mapping[str, Mapping[str, Option]]:
    """The commands that a job can run, each with its options by key."""
    tables = {"run": OPTIONS, "tune": (*TUNE_OPTIONS, *TuneOptions.table())}
    tables |= {f"probe {name}": (*PROBE_OPTIONS, *kind.options.table()) for name, kind in probes().items()}
    tables[EXEC] = (*options_of_run_for_exec(), *ExecOptions.table(), *NamedCommandOptions.table())
    return {command: options_by_key(options) for command, options in tables.items()}


def _options_of_command(command: str) -> Mapping[str, Option]:
    by_command = job_commands()
    if command not in by_command:
        raise UsageError(f"the command of a job is one of {', '.join(by_command)}")
    return by_command[command]


def _allowed_option(command: str, options: Mapping[str, Option], key: str, typed_name: str) -> Option:
    """Return the option with this key; raises UsageError if no job may have it; `typed_name`: how the job named it."""
    option = options.get(key)
    free = option is not None and option.parse in _FREE_TEXT
    if key in REFUSED or (free and key not in (TEXT | TABLES | EXEC_TEXT | {"against"})):
        raise UsageError(f"a job cannot have the option {typed_name}: {REFUSED.get(key, 'it takes any text')}")
    if option is None:
        raise UsageError(f"{command} has no option {typed_name!r}{suggest_similar_names(key, options)}")
    return add_allowed_values(option)


_FREE_TEXT = (parsers.parse_text, parsers.parse_names, parsers.parse_columns, parsers.parse_texts)


def _takes_texts(option: Option) -> bool:
    return option.parse is parsers.parse_texts


def _texts_of_value(option: Option, key: str, value: object) -> list[str]:
    """The texts of a value, of which each is a word of its own: several where the option is repeated for each."""
    several = value if isinstance(value, list) and _takes_texts(option) else [value]
    return [_printable_text(key, each) for each in several]


def _printable_text(key: str, value: object) -> str:
    if any(isinstance(each, bool | None) for each in (value if isinstance(value, list) else [value])):
        raise UsageError(f"{key} needs a number or text")
    text = format_option_value(value)
    if not text.isprintable() or len(text) > 1000:
        raise UsageError(f"{key} can contain only printable characters, at most 1000")
    return text


def _check_ucx(values: Sequence[object], typed_name: str) -> None:
    """Raise UsageError for a UCX that the service does not have: a job names no folder, and installs nothing."""
    names = [parsers.AUTO, parsers.WHEEL, parsers.SYSTEM, *(release.name for release in cached_releases())]
    if refused := [str(value) for value in values if value not in names]:
        raise UsageError(f"{typed_name} of a job is one of {', '.join(names)}, not {refused[0]}")


def _check_option_value(option: Option, text: str, typed_name: str) -> str:
    if option.key == "on" and "://" in text:
        raise UsageError("on names key columns in a job, which cannot queue another one elsewhere")
    if option.key == "check" and text.startswith(COMMAND):
        raise UsageError("check can only be re:REGEX in a job, which brings no command of its own")
    if option.key == "metric_file" and not _METRIC_FILE.fullmatch(text):
        raise UsageError("metric_file must be a file in the folder of the launch, such as {workdir}/result.json")
    value = parse_option_text(option.parse, text, typed_name)
    if option.key == "ucx":
        _check_ucx(value if isinstance(value, tuple) else (value,), typed_name)
    most = _LARGEST_VALUES.get(option.key)
    numbers = value if isinstance(value, tuple) else (value,)
    if most is not None and any(isinstance(each, int) and each > most for each in numbers):
        raise UsageError(f"{typed_name} is at most {most:,} in a job")
    return text
