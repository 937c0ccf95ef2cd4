"""The part of bash's grammar that only assigns variables, read into assignments.

The grammar is a subset of bash on purpose: whatever is accepted here gives what ``source`` gives, and whatever
could run something, or would make bash do something else than assign, is refused. Nothing is expanded here.

    file       := { line }
    line       := [ "export" ] { NAME "=" word | NAME } [ "#" comment ] newline
    word       := { text | \\x | '…' | "…" | $NAME | ${NAME} | ${NAME:-word} | ${NAME-word} | ~ }
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLANK = " \t"
_META = {
    ";": "';' starts another command",
    "&": "'&' starts a command in the background",
    "|": "'|' is a pipe",
    "<": "'<' is a redirection or a process substitution",
    ">": "'>' is a redirection or a process substitution",
    "(": "'(' starts a subshell, an array or a function",
    ")": "')' ends a subshell, an array or a function",
}
_MAX_DEPTH = 16
_PLAIN_RUN = re.compile(r"[A-Za-z0-9_./%+,@^-]+")
_QUOTED_RUN = re.compile(r"[A-Za-z0-9_./%+,@^:= -]+")


class ShellSyntaxError(ValueError):
    """Text outside the grammar.

    Parameters
    ----------
    line
        Number of the line, from 1.
    message
        One sentence.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(frozen=True)
class Literal:
    """Text that stands for itself."""

    text: str


@dataclass(frozen=True)
class Reference:
    """``$NAME`` or ``${NAME:-default}``.

    `when_empty`: the default also replaces an empty value (``:-``), not only an unset one (``-``).
    """

    name: str
    line: int
    default: tuple[Part, ...] | None = None
    when_empty: bool = False


Part = Literal | Reference


@dataclass(frozen=True)
class Assignment:
    """One ``NAME=word``; `parts` is None for a bare name after ``export``."""

    name: str
    parts: tuple[Part, ...] | None
    line: int


@dataclass(frozen=True)
class Statement:
    """The assignments of one line.

    `exported`: bash expands every word of an ``export`` before it assigns any, and those of a plain line one by one.
    """

    assignments: tuple[Assignment, ...]
    exported: bool


def parse(text: str) -> tuple[Statement, ...]:
    """Read `text`, whose lines end in ``\\n``, into statements.

    Raises
    ------
    ShellSyntaxError
        At the first thing that is not an assignment, a comment or an ``export``.
    """
    return tuple(_Parser(text).statements())


def _describe(rest: str, first: bool) -> str:
    """One sentence about `rest`, the end of a line that should begin with an assignment and does not."""
    shown = re.split(r"[ \t]", rest, maxsplit=1)[0][:40]
    name = NAME.match(rest)
    after = rest[name.end() :] if name else ""
    if rest.startswith(("`", "$(")):
        return "a command substitution is not allowed; a config is never executed"
    if shown[:1] in _META:
        return f"{_META[shown[0]]}; a config holds assignments only and is never executed"
    if name and after.startswith("+="):
        return f"'+=' is not supported; write {name[0]}=${{{name[0]}}}more"
    if after.startswith("["):
        return f"{shown!r} is an element of an array; a config holds plain values only"
    if re.match(r"[ \t]*\(|[ \t]+\w+[ \t]*\(", after):
        return f"{shown!r} would define a function; a config is never executed"
    if re.match(r"[ \t]+=", after):
        return "no blanks may stand around '='; write NAME=VALUE"
    if not first:
        return f"{shown!r} after an assignment would be a command or its argument; quote a value that has blanks"
    return f"{shown!r} is not NAME=VALUE; a config holds assignments only and is never executed"


class _Parser:
    """Recursive descent over characters; ``\\`` at the end of a line joins it with the next one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1

    def error(self, message: str) -> ShellSyntaxError:
        return ShellSyntaxError(self.line, message)

    def peek(self) -> str:
        """The next character, '' at the end; joins continued lines."""
        while self.text.startswith("\\\n", self.at):
            self.at += 2
            self.line += 1
        return self.text[self.at : self.at + 1]

    def run(self, pattern: re.Pattern[str]) -> Literal | None:
        """A run of characters without a meaning of their own, in one piece."""
        match = pattern.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return Literal(match[0])

    def take(self) -> str:
        """Consume the next character as it stands; inside single quotes and comments lines are not joined."""
        character = self.text[self.at : self.at + 1]
        self.at += 1
        self.line += character == "\n"
        return character

    def statements(self) -> list[Statement]:
        found: list[Statement] = []
        while self.peek():
            if self.peek() in _BLANK + "\n":
                self.take()
            elif self.peek() == "#":
                self.comment()
            else:
                found.append(self.statement())
        return found

    def comment(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def statement(self) -> Statement:
        exported = self.keyword("export")
        assignments: list[Assignment] = []
        while True:
            while self.peek() and self.peek() in _BLANK:
                self.take()
            if self.peek() in ("", "\n"):
                break
            if self.peek() == "#":
                self.comment()
                break
            assignments.append(self.assignment(exported, first=not assignments))
        if not assignments:
            raise self.error("export needs a name; write export NAME=VALUE")
        return Statement(tuple(assignments), exported)

    def keyword(self, word: str) -> bool:
        self.peek()
        after = self.text[self.at + len(word) : self.at + len(word) + 1]
        if self.text.startswith(word, self.at) and after in ("", "\n", *_BLANK):
            self.at += len(word)
            return True
        return False

    def assignment(self, exported: bool, *, first: bool) -> Assignment:
        self.peek()
        line = self.line
        match = NAME.match(self.text, self.at)
        if match is None:
            raise self.not_an_assignment(first)
        name = match[0]
        self.at = match.end()
        following = self.peek()
        if following == "=":
            self.take()
            if self.peek() == "(":
                raise self.error(f"{name} is an array; a config holds plain values only")
            return Assignment(name, tuple(self.word(brace_expansion=exported)), line)
        if exported and following in ("", "\n", *_BLANK):
            return Assignment(name, None, line)
        self.at = match.start()
        raise self.not_an_assignment(first)

    def not_an_assignment(self, first: bool) -> ShellSyntaxError:
        end = self.text.find("\n", self.at)
        return self.error(_describe(self.text[self.at : len(self.text) if end < 0 else end], first))

    def word(self, *, brace_expansion: bool, inner: bool = False, depth: int = 0) -> list[Part]:
        """One unquoted word; `inner`: the default inside ``${NAME:-…}``, which ends at its ``}``."""
        parts: list[Part] = []
        tilde_here = True
        while True:
            character = self.peek()
            if inner and character == "}":
                return parts
            if character in ("", "\n") or (character in _BLANK and not inner):
                if inner:
                    raise self.error("'${' is not closed by '}' on its line")
                return parts
            if character == "~":
                parts.append(self.tilde(inner) if tilde_here else Literal(self.take()))
            elif character == "$":
                parts.append(self.dollar(quoted=False, brace_expansion=brace_expansion, depth=depth))
            elif character == "'":
                parts.append(self.single_quoted())
            elif character == '"':
                parts.extend(self.double_quoted(brace_expansion, depth))
            elif character == "\\":
                parts.append(self.escaped())
            else:
                if character == "=" and self.text[self.at + 1 : self.at + 2] == "~":
                    raise self.error("'~' after '=' is read differently by different shells; quote it or write ${HOME}")
                parts.append(self.plain(refuse_brace=brace_expansion or inner))
            tilde_here = character == ":"

    def plain(self, *, refuse_brace: bool) -> Literal:
        character = self.peek()
        if character in _META:
            raise self.error(f"{_META[character]}; quote it if it belongs to the value")
        if character == "`":
            raise self.error("a command substitution (backtick) is not allowed; a config is never executed")
        if character == "{" and refuse_brace:
            raise self.error("'{' may start a brace expansion here; quote it")
        return self.run(_PLAIN_RUN) or Literal(self.take())

    def tilde(self, inner: bool) -> Part:
        self.take()
        following = self.peek()
        if following == "" or following in "\n/:" + ("}" if inner else _BLANK):
            return Reference("HOME", self.line)
        if following in "\\\"'$":
            return Literal("~")
        raise self.error("'~' works only alone or as '~/'; write ${HOME}, or quote a '~' that is meant literally")

    def escaped(self) -> Literal:
        self.take()
        if self.at == len(self.text):
            raise self.error("nothing follows the backslash at the end of the file")
        return Literal(self.take())

    def single_quoted(self) -> Literal:
        self.take()
        end = self.text.find("'", self.at)
        newline = self.text.find("\n", self.at)
        if end < 0 or 0 <= newline < end:
            raise self.error("a single quote is not closed on its line")
        text = self.text[self.at : end]
        self.at = end + 1
        return Literal(text)

    def double_quoted(self, brace_expansion: bool, depth: int) -> list[Part]:
        self.take()
        parts: list[Part] = []
        while (character := self.peek()) != '"':
            if character in ("", "\n"):
                raise self.error("a double quote is not closed on its line")
            parts.append(self.quoted_part('$`"\\', brace_expansion, depth))
        self.take()
        return parts

    def quoted_part(self, escapable: str, brace_expansion: bool, depth: int) -> Part:
        """One character or expansion inside double quotes."""
        character = self.peek()
        if character == "$":
            return self.dollar(quoted=True, brace_expansion=brace_expansion, depth=depth)
        if character == "`":
            raise self.error("a command substitution (backtick) is not allowed; a config is never executed")
        if character == "\\":
            self.take()
            following = self.text[self.at : self.at + 1]
            return Literal(self.take()) if following and following in escapable else Literal("\\")
        return self.run(_QUOTED_RUN) or Literal(self.take())

    def dollar(self, *, quoted: bool, brace_expansion: bool, depth: int) -> Part:
        self.take()
        character = self.text[self.at : self.at + 1]
        if character == "{":
            self.take()
            return self.braced(quoted, brace_expansion, depth)
        if NAME.match(self.text, self.at):
            return Reference(self.name(), self.line)
        if character == "(":
            raise self.error("a command substitution or arithmetic is not allowed; a config is never executed")
        if character == "[":
            raise self.error("arithmetic is not allowed; write the number")
        if character and character in "0123456789@*#?-$!":
            raise self.error(f"'${character}' is a special parameter of a shell; a config knows named variables only")
        if character and character in "'\"" and not quoted:
            raise self.error(f"${character}…{character} quoting is not supported; use plain quotes")
        self.refuse_continued()
        return Literal("$")

    def refuse_continued(self) -> None:
        if self.text.startswith("\\\n", self.at):
            raise self.error("a continued line may not split an expansion; write it on one line")

    def name(self) -> str:
        match = NAME.match(self.text, self.at)
        if match is None:
            raise self.error("'${' must be followed by a name and '}'")
        self.at = match.end()
        self.refuse_continued()
        return match[0]

    def braced(self, quoted: bool, brace_expansion: bool, depth: int) -> Reference:
        line = self.line
        if depth >= _MAX_DEPTH:
            raise self.error(f"'${{' is nested more than {_MAX_DEPTH} deep")
        name = self.name()
        operator = re.compile(r"\}|:?-").match(self.text, self.at)
        if operator is None:
            raise self.error(f"of the forms of '${{{name}…}}' only ${{{name}}} and ${{{name}:-default}} are understood")
        self.at = operator.end()
        if operator[0] == "}":
            return Reference(name, line)
        default = self.quoted_default(brace_expansion, depth) if quoted else self.default(brace_expansion, depth)
        self.take()
        return Reference(name, line, tuple(default), when_empty=operator[0] == ":-")

    def default(self, brace_expansion: bool, depth: int) -> list[Part]:
        return self.word(brace_expansion=brace_expansion, inner=True, depth=depth + 1)

    def quoted_default(self, brace_expansion: bool, depth: int) -> list[Part]:
        parts: list[Part] = []
        while (character := self.peek()) != "}":
            if character in ("", "\n"):
                raise self.error("'${' is not closed by '}' on its line")
            if self.text.startswith(("<(", ">("), self.at):
                raise self.error("'<' is a redirection or a process substitution, even in quotes inside '${'")
            if character in "\"'":
                raise self.error(
                    "a quoted default in '${NAME:-default}' cannot contain quotes; remove the inner quotes"
                )
            parts.append(self.quoted_part('$`"\\}', brace_expansion, depth + 1))
        return parts
