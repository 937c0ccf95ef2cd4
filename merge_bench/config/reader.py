"""Reads the variables of a ``.cfg`` file, without executing anything.

A config consists of ``NAME=VALUE`` and ``export NAME=VALUE`` lines that bash's ``source`` would also accept. Both kinds
set variables; `trust` decides which of them processes get. Unlike bash, the reader also accepts CRLF line ends and a
UTF-8 byte order mark.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from merge_bench.config.files import read_regular
from merge_bench.config.shell_syntax import MAX_ERRORS, Literal, Part, Reference, ShellSyntaxError, Statement, parse
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
class Variable:
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
    variables: tuple[Variable, ...]
    warnings: tuple[str, ...] = ()
    used: frozenset[str] = frozenset()

    @property
    def environment(self) -> dict[str, str]:
        return {variable.name: variable.value for variable in self.variables}

    def where(self, line: int) -> str:
        return f"{self.path}:{line}"


def read_config(path: Path, environment: Mapping[str, str]) -> ConfigFile:
    """Read the config at `path`. ``${NAME}`` refers to an earlier line, or else to `environment`.

    Raises UsageError if the file cannot be read, or with a line ``file:line: …`` for each line that is no assignment.
    """
    data = _read_bytes(path)
    scope = _Scope(environment)
    statements, errors = parse(_decode(path, data))
    errors = errors or scope.execute_all(statements)
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
        warnings=tuple(f"{path}:{line}: {message}" for line, message in scope.warnings()),
        used=frozenset(
            name
            for statement in statements
            for assignment in statement.assignments
            for name in _referenced_names(assignment.parts or ())
            if name != assignment.name
        ),
    )


def _read_bytes(path: Path) -> bytes:
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except IsADirectoryError:
        raise UsageError(f"{path}: this is a directory, not a config") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{path}: cannot be read: {reason}") from None


def _decode(path: Path, data: bytes) -> str:
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
    return data.count(b"\n", 0, offset) + 1


class _Scope:
    """The variables of a config that are set so far, and the numbers of the lines that set them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.variables: dict[str, Variable] = {}
        self.lines: dict[str, list[int]] = {}
        self.total_bytes = 0

    def lookup(self, name: str) -> str | None:
        return self.variables[name].value if name in self.variables else self.environment.get(name)

    def assign(self, variable: Variable) -> None:
        earlier = self.variables.pop(variable.name, None)  # keeps the order of the last assignments
        self.total_bytes += len(variable.value) - (len(earlier.value) if earlier else 0)
        if self.total_bytes > MAX_TOTAL_BYTES:
            raise ShellSyntaxError(
                variable.line, "the config is too large: all its values together may take at most 1 MiB"
            )
        self.variables[variable.name] = variable
        self.lines.setdefault(variable.name, []).append(variable.line)

    def execute_all(self, statements: Iterable[Statement]) -> tuple[ShellSyntaxError, ...]:
        """Set the variables of `statements`; returns the errors, at most `MAX_ERRORS`."""
        errors: list[ShellSyntaxError] = []
        for statement in statements:
            try:
                self.execute(statement)
            except ShellSyntaxError as error:
                errors.append(error)
                if len(errors) == MAX_ERRORS:
                    break
                for assignment in statement.assignments:  # later lines that refer to these names are not to blame
                    self.variables.setdefault(assignment.name, Variable(assignment.name, "", assignment.line))
        return tuple(errors)

    def execute(self, statement: Statement) -> None:
        """Set the variables of one line, in the order in which bash expands and assigns words."""
        exported: list[Variable] = []
        for assignment in statement.assignments:
            name, line = assignment.name, assignment.line
            if name in _BASH_OWN:
                raise ShellSyntaxError(line, f"{name} is a variable of the shell itself; a config cannot set it")
            if assignment.parts is not None:
                variable = Variable(name, _expand_parts(assignment.parts, self, line), line)
                if statement.exported:
                    exported.append(variable)
                else:
                    self.assign(variable)
        for variable in exported:
            self.assign(variable)
        for assignment in statement.assignments:
            if assignment.parts is None and self.lookup(assignment.name) is None:
                raise ShellSyntaxError(assignment.line, f"{assignment.name} is exported, but no earlier line sets it")

    def warnings(self) -> list[tuple[int, str]]:
        return [
            (lines[-1], f"{name} is set {len(lines)} times, first on line {lines[0]}; the value on this line is used")
            for name, lines in self.lines.items()
            if len(lines) > 1
        ]


def _referenced_names(parts: tuple[Part, ...]) -> Iterator[str]:
    """The names of the variables to which `parts` and their defaults refer."""
    for part in parts:
        if isinstance(part, Reference):
            yield part.name
            yield from _referenced_names(part.default or ())


def _expand_parts(parts: tuple[Part, ...], scope: _Scope, line: int) -> str:
    """The text of `parts`, with references replaced by values. Defaults that are not needed are not expanded."""
    pieces: list[str] = []
    length = 0
    for part in parts:
        piece = part.text if isinstance(part, Literal) else _expand_reference(part, scope)
        pieces.append(piece)
        length += len(piece.encode("utf-8", "surrogateescape"))
        if length > MAX_VALUE_BYTES:
            raise ShellSyntaxError(line, f"a value is longer than {MAX_VALUE_BYTES} bytes")
    return "".join(pieces)


def _expand_reference(part: Reference, scope: _Scope) -> str:
    if part.name in _BASH_OWN:
        raise ShellSyntaxError(part.line, f"{part.name} is a variable of the shell itself; a config cannot use it")
    value = scope.lookup(part.name)
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
