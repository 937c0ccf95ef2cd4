"""Reads the variables of a ``.cfg`` file, without executing anything.

A config consists of ``NAME=VALUE`` and ``export NAME=VALUE`` lines that bash's ``source`` would also accept. Both kinds
set variables; `variables` decides which of them processes get. Unlike bash, the reader also accepts CRLF line ends and
a UTF-8 byte order mark. `shell_syntax` has the grammar.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from merge_bench.config.files import read_regular_file
from merge_bench.config.shell_syntax import (
    MAX_ERRORS,
    ConfigStatement,
    LiteralText,
    Part,
    ShellSyntaxError,
    VariableReference,
    parse_config_text,
)
from merge_bench.errors import UsageError

MAX_FILE_BYTES = 1024 * 1024
MAX_VALUE_BYTES = 128 * 1024 - 1  # Linux accepts no longer string in an environment (MAX_ARG_STRLEN)
MAX_TOTAL_BYTES = 1024 * 1024
_CONTROL = re.compile(r"[\x01-\x08\x0b-\x1f\x7f]")

# Variables that bash computes or protects: `source` would not set them to the value in the file.
_BASH_OWN = frozenset(
    """
    _ BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_COMPAT BASH_LINENO
    BASH_REMATCH BASH_SOURCE BASH_SUBSHELL BASH_VERSINFO BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS DIRSTACK
    EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD IFS LINENO OPTARG OPTIND PIPESTATUS POSIXLY_CORRECT PPID
    RANDOM SECONDS SHELLOPTS SRANDOM UID
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class ConfigVariable:
    """A variable of a config with the last value that it is set to; `line`: the number of the line that sets it."""

    name: str
    value: str
    line: int


@dataclass(frozen=True)
class ConfigFile:
    """The contents of a config.

    `name`: the file's name without ``.cfg``; `sha256`: hex digest of the file's bytes; `variables`: each name once, in
    the order of their last assignments; `warnings`: sentences that begin with ``file:line:``; `used`: the names that
    values refer to.
    """

    name: str
    path: Path
    sha256: str
    variables: tuple[ConfigVariable, ...]
    warnings: tuple[str, ...] = ()
    used: frozenset[str] = frozenset()

    @property
    def variable_values(self) -> dict[str, str]:
        """The values of the config's variables, by name."""
        return {variable.name: variable.value for variable in self.variables}

    def format_position(self, line_number: int) -> str:
        """The position of a line, as messages have it: ``FILE:LINE``."""
        return f"{self.path}:{line_number}"


def read_config(path: Path, environment: Mapping[str, str]) -> ConfigFile:
    """Read the config at `path`. ``${NAME}`` refers to an earlier line, or else to `environment`.

    Raises UsageError if the file cannot be read, or with a line ``file:line: …`` for each line that is no assignment.
    """
    data = _read_config_bytes(path)
    scope = _VariableScope(environment)
    statements, errors = parse_config_text(_decode_config_text(path, data))
    errors = errors or scope.execute_statements(statements)
    if errors:
        lines = [f"{path}:{error.line}: {error}" for error in errors]
        if len(errors) == MAX_ERRORS:
            lines.append(f"{path}: there may be more errors; these are the first {MAX_ERRORS}")
        raise UsageError("\n".join(lines))
    return ConfigFile(
        name=path.name.removesuffix(".cfg"),
        path=path,
        sha256=hashlib.sha256(data).hexdigest(),
        variables=tuple(scope.variables.values()),
        warnings=tuple(f"{path}:{line}: {message}" for line, message in scope.repeated_variable_warnings()),
        used=frozenset(_names_used_by_other_lines(statements)),
    )


def _read_config_bytes(path: Path) -> bytes:
    """Read the bytes of a config; raises UsageError if it is too large or cannot be read."""
    try:
        return read_regular_file(path, MAX_FILE_BYTES)
    except IsADirectoryError:
        raise UsageError(f"{path}: this is a directory, not a config") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{path}: cannot be read: {reason}") from None


def _decode_config_text(path: Path, data: bytes) -> str:
    """Decode UTF-8 to text with ``\\n`` line ends; refuses characters that no environment variable can contain."""
    if b"\0" in data:
        raise UsageError(
            f"{path}:{_line_number_at(data, data.index(0))}: the line contains a NUL byte; save the file as plain text"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}:{_line_number_at(data, error.start)}: the line is not UTF-8 text; save the file as UTF-8"
        ) from None
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    control = _CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        raise UsageError(
            f"{path}:{line}: the line contains the control character U+{ord(control[0]):04X}; remove that character"
        )
    return text


def _line_number_at(data: bytes, offset: int) -> int:
    """The number, from 1, of the line with the byte at `offset`."""
    return data.count(b"\n", 0, offset) + 1


def comment_out_assignments(text: str, names: Collection[str], reason: str) -> str:
    """The text of a config in which the lines that set one of `names` are comments that end with `reason` in brackets.

    A name stays if another line refers to it, or if a line that sets it is continued or sets something else as well.
    """
    statements, errors = parse_config_text(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    if errors:
        return text
    lines = text.split("\n")
    kept_names = _names_used_by_other_lines(statements)
    lines_by_name: dict[str, list[int]] = {}
    for statement in statements:
        number = statement.assignments[0].line
        is_continued = any(line.endswith(("\\", "\\\r")) for line in lines[max(number - 2, 0) : number])
        for assignment in statement.assignments:
            lines_by_name.setdefault(assignment.name, []).append(number)
            kept_names |= {assignment.name} if is_continued or len(statement.assignments) > 1 else set()
    for name in set(names) - kept_names:
        for number in lines_by_name.get(name, ()):
            line = lines[number - 1].removeprefix("\ufeff")
            lines[number - 1] = f"# {line.rstrip()} ({reason})"
    return "\n".join(lines)


def _names_used_by_other_lines(statements: Iterable[ConfigStatement]) -> set[str]:
    """The names of the variables to which the values of other variables refer."""
    return {
        name
        for statement in statements
        for assignment in statement.assignments
        for name in _referenced_variable_names(assignment.parts or ())
        if name != assignment.name
    }


class _VariableScope:
    """The variables of a config that are set so far, and the numbers of the lines that set them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.variables: dict[str, ConfigVariable] = {}
        self.lines: dict[str, list[int]] = {}
        self.total_bytes = 0

    def find_variable_value(self, name: str) -> str | None:
        """The value of a variable that an earlier line or the environment sets; None if none does."""
        return self.variables[name].value if name in self.variables else self.environment.get(name)

    def set_variable(self, variable: ConfigVariable) -> None:
        """Set a variable; raises ShellSyntaxError if the values become too large."""
        earlier = self.variables.pop(variable.name, None)  # keeps the order of the last assignments
        self.total_bytes += len(variable.value) - (len(earlier.value) if earlier else 0)
        if self.total_bytes > MAX_TOTAL_BYTES:
            raise ShellSyntaxError(
                variable.line, "the config is too large: all its values together may take at most 1 MiB"
            )
        self.variables[variable.name] = variable
        self.lines.setdefault(variable.name, []).append(variable.line)

    def execute_statements(self, statements: Iterable[ConfigStatement]) -> tuple[ShellSyntaxError, ...]:
        """Set the variables of `statements`; returns the errors, at most `MAX_ERRORS`."""
        errors: list[ShellSyntaxError] = []
        for statement in statements:
            try:
                self.execute_statement(statement)
            except ShellSyntaxError as error:
                errors.append(error)
                if len(errors) == MAX_ERRORS:
                    break
                for assignment in statement.assignments:  # later lines that refer to these names are not to blame
                    self.variables.setdefault(assignment.name, ConfigVariable(assignment.name, "", assignment.line))
        return tuple(errors)

    def execute_statement(self, statement: ConfigStatement) -> None:
        """Set the variables of one line, in the order in which bash expands and assigns words."""
        exported: list[ConfigVariable] = []
        for assignment in statement.assignments:
            name, line = assignment.name, assignment.line
            if name in _BASH_OWN:
                raise ShellSyntaxError(line, f"{name} is a variable of the shell itself; a config cannot set it")
            if assignment.parts is not None:
                variable = ConfigVariable(name, _expand_parts(assignment.parts, self, line), line)
                if statement.exported:
                    exported.append(variable)
                else:
                    self.set_variable(variable)
        for variable in exported:
            self.set_variable(variable)
        for assignment in statement.assignments:
            if assignment.parts is None and self.find_variable_value(assignment.name) is None:
                raise ShellSyntaxError(assignment.line, f"{assignment.name} is exported, but no earlier line sets it")

    def repeated_variable_warnings(self) -> list[tuple[int, str]]:
        """A line number and a sentence for each variable that the config sets several times."""
        return [
            (lines[-1], f"{name} is set {len(lines)} times, first on line {lines[0]}; the value on this line is used")
            for name, lines in self.lines.items()
            if len(lines) > 1
        ]


def _referenced_variable_names(parts: tuple[Part, ...]) -> Iterator[str]:
    """The names of the variables to which `parts` and their defaults refer."""
    for part in parts:
        if isinstance(part, VariableReference):
            yield part.name
            yield from _referenced_variable_names(part.default or ())


def _expand_parts(parts: tuple[Part, ...], scope: _VariableScope, line_number: int) -> str:
    """The text of `parts`, with references replaced by values. Defaults that are not needed are not expanded."""
    pieces: list[str] = []
    length = 0
    for part in parts:
        piece = part.text if isinstance(part, LiteralText) else _expand_reference(part, scope)
        pieces.append(piece)
        length += len(piece.encode("utf-8", "surrogateescape"))
        if length > MAX_VALUE_BYTES:
            raise ShellSyntaxError(line_number, f"a value is longer than {MAX_VALUE_BYTES} bytes")
    return "".join(pieces)


def _expand_reference(part: VariableReference, scope: _VariableScope) -> str:
    """The text that replaces a reference to a variable."""
    if part.name in _BASH_OWN:
        raise ShellSyntaxError(part.line, f"{part.name} is a variable of the shell itself; a config cannot use it")
    value = scope.find_variable_value(part.name)
    if value is not None and (value or not part.when_empty):
        return value
    if part.default is not None:
        return _expand_parts(part.default, scope, part.line)
    if value is not None:
        return value
    raise ShellSyntaxError(
        part.line,
        f"{part.name} is not set; set it before this line or in the environment, or write ${{{part.name}:-default}}",
    )
