"""Parses the text of a ``.cfg`` file to its assignments, without computing their values.

The grammar is a subset of bash: an accepted text has the same values as with ``source``. Text that could run something,
or that bash would use for anything but an assignment, is refused.

    file       := { line }
    line       := [ "export" ] { NAME "=" word | NAME } [ "#" comment ] newline
    word       := { text | \\x | '…' | "…" | $NAME | ${NAME} | ${NAME:-word} | ${NAME-word} | ~ }
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
