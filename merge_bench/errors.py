"""The errors that end a command, each with its exit status; and warnings.

A message is one sentence for the person at the terminal: what is wrong (option, file and line, host and rank) and, if
there is one, the remedy.
"""

from __future__ import annotations

import codecs
import functools
import importlib.util
import os
import re
import sys
import textwrap
from dataclasses import dataclass

_UNBREAKABLE = re.compile(r"`[^`]*`|(?:python -m|pip install) [^,()]*[^,()\s]|--[a-z-]+ [^\s-]\S*")
"""Matches what readers copy from a message, with its spaces: commands, and options with their values."""


PLAIN = "merge_bench.plain"
"""Error handler of codecs, by name: it writes a plain form, or an escape, of characters that an encoding lacks."""

_PLAIN_FORMS = dict(zip("─│┌┐└┘├┤┬┴┼━·•–—‘’“”×÷µ≈−", "-|+++++++++=-*--''\"\"x/u~-", strict=True))
_PLAIN_FORMS |= dict(zip("→←…≤≥≠⋈", ("->", "<-", "...", "<=", ">=", "!=", "|x|"), strict=True))


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Plain forms or escapes of the characters that could not be encoded, and the position after them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = "".join(_PLAIN_FORMS.get(letter, letter) for letter in error.object[error.start : error.end])
    return letters.encode("ascii", "backslashreplace").decode(), error.end


codecs.register_error(PLAIN, _replace_unencodable)


@dataclass(frozen=True)
class WarningMessage:
    """A warning about something that distorts or explains numbers; it is printed, recorded and shown in the report.

    `code` is for programs, `message` is one sentence, `remedy` is what to do about it, if anything can be done.
    """

    code: str
    message: str
    remedy: str | None = None


class MergeBenchError(Exception):
    """The base of all errors that are shown as a message without a traceback, and end a command with `exit_status`."""

    exit_status = 3
    code = "failed"
    host: str | None = None
    rank: int | None = None
    log_tail: str | None = None


class UsageError(MergeBenchError):
    """Wrong usage or config; nothing was started."""

    exit_status = 2
    code = "usage"


class RunFailed(MergeBenchError):
    """The run failed: a worker died, went silent or ran out of memory. What was measured is kept."""

    code = "run-failed"


class RecordsNotWritten(RunFailed):
    """The records could not be written, because the disk is full or gone."""

    code = "not-recorded"


class LaunchFailed(RunFailed):
    """A launch failed; `host`, `rank`, `log_tail`: where the failed process ran, and the end of its log, if known."""

    def __init__(
        self,
        message: str,
        *,
        host: str | None = None,
        rank: int | None = None,
        log_tail: str | None = None,
        code: str = "run-failed",
    ) -> None:
        super().__init__(message)
        self.host, self.rank, self.log_tail, self.code = host, rank, log_tail, code


class WrongResult(MergeBenchError):
    """The merge result was wrong."""

    exit_status = 4
    code = "wrong-result"


class GateNotMet(MergeBenchError):
    """A gate that was asked for (`--require-transport`, `--fail-on`) was not met."""

    exit_status = 5
    code = "gate-not-met"


class GateWithoutBaseline(GateNotMet):
    """A gate found nothing to compare the result with."""

    code = "nothing-compared"


def convert_system_error(error: OSError) -> MergeBenchError:
    """Convert an error of the operating system, which no other code expected, into an error of this program.

    An error about a file's name is a wrong usage: names come from options, the environment, configs and batch systems,
    and launches turn errors inside of them into failures.
    """
    name = error.filename if error.filename is not None else error.filename2
    if name is None:
        return RunFailed(f"the operating system refused: {error.strerror or first_message_line(error)}")
    return UsageError(f"{os.fsdecode(name) if not isinstance(name, int) else name}: {error.strerror}")


def require_library(library: str, package_extra: str, needed_for: str) -> None:
    """Raise UsageError if `library` is not installed.

    `needed_for`: what needs it; `package_extra`: the extra of this package that installs it.
    """
    if importlib.util.find_spec(library) is None:
        raise UsageError(
            f"{needed_for} needs {library}, which is not installed; run: pip install 'merge-bench[{package_extra}]'"
        )


def print_message(message: str, remedy: str | None = None) -> None:
    """Print a message on standard error; a terminal gets lines that end between words."""
    columns = _stderr_terminal_columns()
    print(wrap_text(mark_unprintable(f"merge_bench: {message}", "\n"), columns, "  "), file=sys.stderr, flush=True)
    if remedy:
        print(wrap_text(mark_unprintable(f"  → {remedy}"), columns, "    "), file=sys.stderr, flush=True)


def mark_unprintable(text: str, kept_characters: str = "") -> str:
    """Replace every unprintable character of a text, such as a control character, by a visible mark.

    Marks that change the direction of writing are unprintable, too. `kept_characters`: characters that stay as they
    are.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in kept_characters else "\ufffd" for letter in text)


_printed_warnings: dict[WarningMessage, None] = {}


def print_warning(caution: WarningMessage) -> None:
    """Print a warning on standard error, and remember it, so that the report need not print it again."""
    print_message(f"warning: {caution.code}: {caution.message}", caution.remedy)
    _printed_warnings[caution] = None


def warnings_already_printed() -> frozenset[WarningMessage]:
    """Warnings that a reader of standard output has seen: all printed ones if standard error goes to the same place."""
    return frozenset(_printed_warnings) if stdout_and_stderr_are_same() else frozenset()


def stdout_and_stderr_are_same() -> bool:
    """Whether standard output and standard error are the same terminal, pipe or file."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):
        return False


def _stderr_terminal_columns() -> int | None:
    """The width of the terminal that standard error writes to, in columns; None if it is a file or a pipe."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else None
    except (OSError, ValueError):
        return None


def wrap_text(text: str, line_length: int | None, indent: str = "") -> str:
    """Break a text into lines of at most `line_length` characters, all but the first indented by `indent`.

    Commands to copy stay on one line.
    """
    if not line_length:
        return text
    joined = _UNBREAKABLE.sub(lambda copied: copied.group().replace(" ", "\0"), text)
    wrap = functools.partial(textwrap.wrap, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(line for part in joined.splitlines() for line in wrap(part, line_length)).replace("\0", " ")


def first_message_line(error: BaseException) -> str:
    """The first line of an exception's message, without a full stop; the name of its class if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
