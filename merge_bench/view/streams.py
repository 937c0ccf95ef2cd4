"""Standard output that only this program writes to, without control characters of a terminal; standard error."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

import click

from merge_bench.errors import PLAIN, WarningMessage, mark_unprintable, print_warning

if TYPE_CHECKING:
    import msgspec


class EscapingTerminal(io.TextIOWrapper):
    """Standard output on a terminal; escapes all unprintable characters that are written, ``\\u001b`` for example.

    So a terminal obeys no text out of records, logs and file names. JSON stays JSON.
    """

    def write(self, text: str) -> int:
        super().write(text if text.isprintable() else "".join(map(_escape_unprintable_character, text)))
        return len(text)


class _UnescapedTerminal:
    """A stream that writes to an `EscapingTerminal` without escaping, for the control characters of rich."""

    def __init__(self, terminal: EscapingTerminal) -> None:
        self._terminal = terminal

    def write(self, text: str) -> int:
        return io.TextIOWrapper.write(self._terminal, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)


def unescaped_stream(stream: TextIO) -> TextIO:
    """Return `stream` without escaping, for a library that writes control characters itself and escapes texts."""
    return _UnescapedTerminal(stream) if isinstance(stream, EscapingTerminal) else stream  # type: ignore[return-value]


def _escape_unprintable_character(letter: str) -> str:
    if letter.isprintable() or letter in "\n\t":
        return letter
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def send_native_output_to_stderr() -> None:
    """Redirect what native code prints on standard output to standard error; `sys.stdout` keeps standard output.

    Only for the program itself, at its start; a function that another program calls must not do this. Does nothing if
    `sys.stdout` is not the one that Python began with.
    """
    if sys.stdin is None:
        _open_descriptor_on_null_device(0)
    if sys.stderr is None:  # closed: what is printed there would reach standard output
        _open_descriptor_on_null_device(2)
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        _open_descriptor_on_null_device(1)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    elif sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        before = sys.stdout
        before.flush()
        file = os.fdopen(os.dup(1), "wb", buffering=0 if before.write_through else -1)
        kind = EscapingTerminal if before.isatty() else io.TextIOWrapper
        sys.stdout = kind(file, before.encoding, PLAIN, None, before.line_buffering, before.write_through)
        os.dup2(2, 1)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors=PLAIN)


def _open_descriptor_on_null_device(descriptor: int) -> None:
    """Open a closed descriptor on ``/dev/null``, also for child processes, so that no file gets its number."""
    null = os.open(os.devnull, os.O_WRONLY)
    if null == descriptor:
        os.set_inheritable(null, True)
    else:
        os.dup2(null, descriptor)
        os.close(null)


def write_standard_output(contents: bytes) -> None:
    """Write UTF-8 text on standard output; on a terminal, unprintable characters are escaped."""
    if isinstance(sys.stdout, EscapingTerminal):
        sys.stdout.write(contents.decode("utf-8", "replace"))
    else:
        click.echo(contents, nl=False)


def flush_standard_output() -> bool:
    """Flush standard output; returns False if its reader has gone, as with ``| head``.

    Raises
    ------
    OSError
        If the disk behind it is full, for example.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest at its end
        if isinstance(error, BrokenPipeError):
            return False
        raise
    return True


def print_document(document: msgspec.Struct, *, indent: int = 0) -> None:
    """Print a document as JSON on standard output."""
    write_standard_output(encode_document(document, indent=indent) + b"\n")


def encode_document(document: msgspec.Struct, *, indent: int = 0) -> bytes:
    """Encode a document as JSON, on one line if `indent` is 0; bytes that are not UTF-8 become escapes."""
    import msgspec

    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=indent)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(document)).encode()


def print_warnings(warnings: Iterable[WarningMessage]) -> None:
    """Print warnings on standard error, each once."""
    for caution in dict.fromkeys(warnings):
        print_warning(caution)


def print_log_tail(tail: str | None) -> None:
    """Print the last lines of a log on standard error, if there are any."""
    if tail:
        print("  the log's last lines:", file=sys.stderr)
        for line in tail.splitlines():
            print(f"  | {mark_unprintable(line)}", file=sys.stderr)
