"""Reads the variables of a ``.cfg`` file, without executing anything.

A config consists of ``NAME=VALUE`` and ``export NAME=VALUE`` lines that bash's ``source`` would also accept. Both kinds
set variables; `variables` decides which of them processes get. Unlike bash, the reader also accepts CRLF line ends and
a UTF-8 byte order mark.

The grammar is a subset of bash: an accepted text has the same values as with ``source``. Text that could run something,
or that bash would use for anything but an assignment, is refused.

    file       := { line }
    line       := [ "export" ] { NAME "=" word | NAME } [ "#" comment ] newline
    word       := { text | \\x | '…' | "…" | $NAME | ${NAME} | ${NAME:-word} | ${NAME-word} | ~ }
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from merge_bench.config.files import read_regular_file
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

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLANK = " \t"
_META = {
    "`": "'`' starts a command substitution",
    ";": "';' starts another command",
    "&": "'&' starts a command in the background",
    "|": "'|' is a pipe",
    "<": "'<' is a redirection or a process substitution",
    ">": "'>' is a redirection or a process substitution",
    "(": "'(' starts a subshell, an array or a function",
    ")": "')' ends a subshell, an array or a function",
}
_MAX_DEPTH = 16
MAX_ERRORS = 20
_EXPORT = re.compile(r"export(?=[ \t\n]|\Z)")
_COMMENT = re.compile(r"#[^\n]*")
_REST_OF_LINE = re.compile(r"([^\\\n]|\\(\n|.|\Z))*")
_SINGLE_QUOTED = re.compile(r"'[^'\n]*'")
_OPERATOR = re.compile(r"\}|:?-")
_PLAIN_RUN = re.compile(r"[A-Za-z0-9_./%+,@^-]+")
_QUOTED_RUN = re.compile(r"[A-Za-z0-9_./%+,@^:= -]+")


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


class ShellSyntaxError(ValueError):
    """A line of a config is outside the grammar.

    `line`: its number, from 1. `message`: one sentence.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class LiteralText:
    """A part of a value that is taken literally."""

    text: str


@dataclass(frozen=True)
class VariableReference:
    """A part of a value that refers to a variable: ``$NAME`` or ``${NAME:-default}``.

    `when_empty`: the default also replaces an empty value (``:-``), not only a missing one (``-``).
    """

    name: str
    line: int
    default: tuple[Part, ...] | None = None
    when_empty: bool = False


Part = LiteralText | VariableReference


@dataclass(frozen=True)
class Assignment:
    """One ``NAME=word`` of a config; `parts`: those of the word, None for a bare name after ``export``."""

    name: str
    parts: tuple[Part, ...] | None
    line: int


@dataclass(frozen=True)
class ConfigStatement:
    """The assignments of one line of a config.

    `exported`: the line begins with ``export``; bash then expands all its words before it assigns any.
    """

    assignments: tuple[Assignment, ...]
    exported: bool


def parse_config_text(text: str) -> tuple[tuple[ConfigStatement, ...], tuple[ShellSyntaxError, ...]]:
    """Parse `text`, whose lines end in ``\\n``, to statements, and an error for each line that is outside the grammar.

    Parsing ends after `MAX_ERRORS` errors.
    """
    parser = _ConfigParser(text)
    return tuple(parser.parse_statements()), tuple(parser.errors)


def _describe_syntax_error(rest_of_line: str, is_first: bool, start_of_line: str) -> str:
    """A sentence that says why `rest_of_line` begins with no assignment.

    `is_first`: whether one could be the line's first.
    """
    shown = re.split(r"[ \t]", rest_of_line, maxsplit=1)[0][:40]
    name = NAME.match(rest_of_line)
    after = rest_of_line[name.end() :] if name else ""
    if rest_of_line.startswith("$("):
        return "a command substitution is not allowed; a config is never executed"
    if shown[:1] in _META:
        return f"{_META[shown[0]]}; a config contains assignments only and is never executed"
    if name and after.startswith("+="):
        return f"'+=' is not supported; write {name[0]}=${{{name[0]}}}more"
    if after.startswith("["):
        return f"{shown!r} is an element of an array; a config contains plain values only"
    if re.match(r"[ \t]*\(|[ \t]+\w+[ \t]*\(", after):
        return f"{shown!r} would define a function; a config is never executed"
    if re.match(r"[ \t]+=", after):
        return "blanks around '=' are not allowed; write NAME=VALUE"
    if not is_first:
        if start_of_line.endswith(",") or shown.startswith(","):
            last = re.split(r"[ \t]", start_of_line)[-1]
            joined = re.sub(r"[ \t]*,[ \t]*", ",", f"{last} {rest_of_line}")
            whole = re.split(r"[ \t]", joined, maxsplit=1)[0]
            return f"{shown!r} follows an assignment on the same line; write lists without blanks: {whole}"
        return f"{shown!r} follows an assignment on the same line; quote a value that contains blanks"
    return f"{shown!r} is not NAME=VALUE; a config contains assignments only and is never executed"


class _ConfigParser:
    """A recursive-descent parser of configs. ``\\`` at the end of a line joins it with the next one.

    `exported`: the line begins with ``export``, after which bash expands braces. `depth`: how deep ``${`` is nested.
    `errors`: at most one for each line; parsing continues on the next line.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.exported = False
        self.depth = 0
        self.errors: list[ShellSyntaxError] = []

    def syntax_error(self, message: str) -> ShellSyntaxError:
        """An error about the current line."""
        return ShellSyntaxError(self.line, message)

    def peek_character(self) -> str:
        """The next character without consuming it, '' at the end of the text; skips joints of continued lines."""
        while self.text.startswith("\\\n", self.at):
            self.at += 2
            self.line += 1
        return self.text[self.at : self.at + 1]

    def consume_match(self, pattern: re.Pattern[str]) -> str:
        """Consume and return the text at this position that matches `pattern`; '' if none does."""
        match = pattern.match(self.text, self.at)
        text = match[0] if match else ""
        self.at += len(text)
        return text

    def consume_character(self) -> str:
        """Consume and return the next character, even if it is part of a joint of lines."""
        character = self.text[self.at : self.at + 1]
        self.at += 1
        self.line += character == "\n"
        return character

    def parse_statements(self) -> Iterator[ConfigStatement]:
        """Parse the text to statements, line after line; `errors` gets those of wrong lines."""
        while character := self.peek_character():
            if character in _BLANK + "\n":
                self.consume_character()
            elif not self.consume_match(_COMMENT):
                try:
                    statement = self.parse_statement()
                except ShellSyntaxError as error:
                    self.errors.append(error)
                    if len(self.errors) == MAX_ERRORS:
                        return
                    self.depth = 0
                    self.line += self.consume_match(_REST_OF_LINE).count("\n")
                else:
                    yield statement

    def parse_statement(self) -> ConfigStatement:
        """Parse the assignments of one line."""
        self.exported = bool(self.consume_match(_EXPORT))
        assignments: list[Assignment] = []
        while (character := self.peek_character()) not in ("", "\n"):
            if character in _BLANK:
                self.consume_character()
            elif not self.consume_match(_COMMENT):
                assignments.append(self.parse_assignment(is_first=not assignments))
        if not assignments:
            raise self.syntax_error("export needs a name; write export NAME=VALUE")
        return ConfigStatement(tuple(assignments), self.exported)

    def parse_assignment(self, *, is_first: bool) -> Assignment:
        """Parse one assignment, or a bare name after ``export``."""
        line, start = self.line, self.at
        name = self.consume_match(NAME)
        following = self.peek_character()
        if name and following == "=":
            self.consume_character()
            if self.peek_character() == "(":
                raise self.syntax_error(f"{name} is an array; a config contains plain values only")
            return Assignment(name, tuple(self.parse_word()), line)
        if name and self.exported and following in ("", "\n", *_BLANK):
            return Assignment(name, None, line)
        before = self.text[:start].rpartition("\n")[2]
        raise self.syntax_error(
            _describe_syntax_error(self.text[start:].partition("\n")[0], is_first, before.rstrip(_BLANK))
        )

    def parse_word(self) -> list[Part]:
        """Parse one unquoted word; inside ``${NAME:-…}``, the default up to and with the ``}``."""
        inner = self.depth > 0
        parts: list[Part] = []
        tilde_here = True
        while True:
            character = self.peek_character()
            if inner and character == "}":
                self.consume_character()
                return parts
            if inner and character in ("", "\n"):
                raise self.syntax_error("'${' is not closed by '}' on its line")
            if character in ("", "\n") or (character in _BLANK and not inner):
                return parts
            if character == "~":
                parts.append(self.parse_tilde(inner) if tilde_here else LiteralText(self.consume_character()))
            elif character == "$":
                parts.append(self.parse_dollar(in_double_quotes=False))
            elif character == "'":
                parts.append(self.parse_single_quoted())
            elif character == '"':
                self.consume_character()
                parts.extend(self.parse_double_quoted('"'))
            elif character == "\\":
                parts.append(self.parse_escaped_character())
            else:
                if character == "=" and self.text[self.at + 1 : self.at + 2] == "~":
                    raise self.syntax_error("shells read '~' after '=' differently; quote it or write ${HOME}")
                parts.append(self.parse_plain_text())
            tilde_here = character == ":"

    def parse_plain_text(self) -> LiteralText:
        """Parse text without special characters."""
        character = self.peek_character()
        if character in _META:
            raise self.syntax_error(f"{_META[character]}; quote it if it belongs to the value")
        if character == "{" and (self.exported or self.depth):
            raise self.syntax_error("'{' may start a brace expansion; quote it")
        return LiteralText(self.consume_match(_PLAIN_RUN) or self.consume_character())

    def parse_tilde(self, inside_braces: bool) -> Part:
        """Parse ``~`` at the start of a path to a reference to ``HOME``; `inside_braces`: within a ``${NAME:-…}``."""
        self.consume_character()
        following = self.peek_character()
        if following == "" or following in "\n/:" + ("}" if inside_braces else _BLANK):
            return VariableReference("HOME", self.line)
        if following in "\\\"'$":
            return LiteralText("~")
        raise self.syntax_error("'~' works only alone or as '~/'; write ${HOME}, or quote a literal '~'")

    def parse_escaped_character(self) -> LiteralText:
        """Parse a backslash and the character after it to that character."""
        self.consume_character()
        if self.at == len(self.text):
            raise self.syntax_error("nothing follows the backslash at the end of the file")
        return LiteralText(self.consume_character())

    def parse_single_quoted(self) -> LiteralText:
        """Parse a text in single quotes."""
        quoted = self.consume_match(_SINGLE_QUOTED)
        if not quoted:
            raise self.syntax_error("a single quote is not closed on its line")
        return LiteralText(quoted[1:-1])

    def parse_double_quoted(self, closing_character: str) -> list[Part]:
        """Parse the rest of a double-quoted text up to its closing character: a quote, or the ``}`` of a default."""
        parts: list[Part] = []
        while (character := self.peek_character()) != closing_character:
            if character in ("", "\n"):
                what = "a double quote is not closed" if closing_character == '"' else "'${' is not closed by '}'"
                raise self.syntax_error(f"{what} on its line")
            if closing_character == "}" and self.text.startswith(("<(", ">("), self.at):
                raise self.syntax_error("'<' is a redirection or a process substitution, even in quotes inside '${'")
            if closing_character == "}" and character in "\"'":
                raise self.syntax_error(
                    "a quoted default in '${NAME:-default}' cannot contain quotes; remove the inner quotes"
                )
            parts.append(self.parse_quoted_part(f'$`\\"{closing_character}'))
        self.consume_character()
        return parts

    def parse_quoted_part(self, escapable_characters: str) -> Part:
        """Parse literal text or one expansion inside double quotes."""
        character = self.peek_character()
        if character == "$":
            return self.parse_dollar(in_double_quotes=True)
        if character == "`":
            raise self.syntax_error("a command substitution (backtick) is not allowed; a config is never executed")
        if character == "\\":
            self.consume_character()
            following = self.text[self.at : self.at + 1]
            return (
                LiteralText(self.consume_character())
                if following and following in escapable_characters
                else LiteralText("\\")
            )
        return LiteralText(self.consume_match(_QUOTED_RUN) or self.consume_character())

    def parse_dollar(self, *, in_double_quotes: bool) -> Part:
        """Parse ``$NAME`` or ``${…}``, or a ``$`` that begins no reference."""
        self.consume_character()
        character = self.text[self.at : self.at + 1]
        if character == "{":
            self.consume_character()
            return self.parse_braced_reference(in_double_quotes)
        if NAME.match(self.text, self.at):
            return VariableReference(self.parse_variable_name(), self.line)
        if character == "(":
            raise self.syntax_error("a command substitution or arithmetic is not allowed; a config is never executed")
        if character == "[":
            raise self.syntax_error("arithmetic is not allowed; write the number")
        if character and character in "0123456789@*#?-$!":
            raise self.syntax_error(
                f"'${character}' is a special parameter of the shell; a config can use named variables only"
            )
        if character and character in "'\"" and not in_double_quotes:
            raise self.syntax_error(f"${character}…{character} quoting is not supported; use plain quotes")
        self.refuse_continued_line()
        return LiteralText("$")

    def refuse_continued_line(self) -> None:
        """Raise ShellSyntaxError if the line is continued inside a reference."""
        if self.text.startswith("\\\n", self.at):
            raise self.syntax_error("a line break inside an expansion is not allowed; write it on one line")

    def parse_variable_name(self) -> str:
        """Parse the name of a variable."""
        name = self.consume_match(NAME)
        if not name:
            raise self.syntax_error("'${' must be followed by a name and '}'")
        self.refuse_continued_line()
        return name

    def parse_braced_reference(self, in_double_quotes: bool) -> VariableReference:
        """Parse the rest of ``${NAME}`` or ``${NAME:-default}``."""
        line = self.line
        if self.depth >= _MAX_DEPTH:
            raise self.syntax_error(f"'${{' is nested more than {_MAX_DEPTH} levels deep")
        name = self.parse_variable_name()
        operator = self.consume_match(_OPERATOR)
        if not operator:
            raise self.syntax_error(f"'${{{name}…}}' is not supported; only ${{{name}}} and ${{{name}:-default}} are")
        if operator == "}":
            return VariableReference(name, line)
        self.depth += 1
        default = self.parse_double_quoted("}") if in_double_quotes else self.parse_word()
        self.depth -= 1
        return VariableReference(name, line, tuple(default), when_empty=operator == ":-")
