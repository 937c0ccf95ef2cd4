"""Parsers of option values: one function per kind of value.

Each takes text from the command line, a config or the environment, and raises ValueError with one sentence if the text
is wrong.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from merge_bench.units import parse_bytes, parse_count, parse_duration, parse_rate

Parser = Callable[[str], object]
_T = TypeVar("_T")
_Number = TypeVar("_Number", int, float)

_SWITCH = dict.fromkeys(("1", "true", "yes", "on", "y"), True) | dict.fromkeys(("0", "false", "no", "off", "n"), False)
# The kernel's rule (dev_valid_name) without the characters that would need quoting somewhere.
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")
_SERVICE_ADDRESS = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?/?")


def count_parser(minimum: int, maximum: float = math.inf) -> Callable[[str], int]:
    """Make a parser of whole numbers, such as ``25e6``, from `minimum` to `maximum`."""

    def parse_limited_count(text: str) -> int:
        value = parse_count(text)
        if value < minimum:
            raise ValueError(f"must be at least {minimum}, not {text}")
        if value > maximum:
            raise ValueError(f"must be at most {maximum:,}, not {text}")
        return value

    return parse_limited_count


def several_values_parser(parser: Parser) -> Parser:
    """Make a parser of one value of `parser`, or of several values separated by commas, which give a tuple."""

    def parse_several_values(text: str) -> object:
        values = _refuse_repeated_values(text, map(parser, text.split(",")))
        return values[0] if len(values) == 1 else values

    return parse_several_values


def _positive_number_parser(parser: Callable[[str], _Number]) -> Callable[[str], _Number]:
    """Make a parser of numbers above 0 from a `parser` of any numbers."""

    def parse_positive_number(text: str) -> _Number:
        value = parser(text)
        if not 0 < value < math.inf:
            raise ValueError(f"must be above 0, not {text}")
        return value

    return parse_positive_number


parse_size = _positive_number_parser(parse_bytes)
"""Parses a number of bytes above 0, such as ``30GB`` or ``28GiB``."""
parse_positive_rate = _positive_number_parser(parse_rate)
"""Parses a rate above 0, such as ``12.5GB/s`` or ``100Gbit/s``, to bytes per second."""
parse_positive_duration = _positive_number_parser(parse_duration)
"""Parses a duration above 0, such as ``15`` or ``500ms``, to seconds."""


def number_parser(minimum: float, maximum: float, *, exclude_minimum: bool = False) -> Callable[[str], float]:
    """Make a parser of numbers from `minimum` to `maximum`, both included.

    `exclude_minimum`: whether `minimum` itself is excluded.
    """

    def parse_limited_number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
        if not (minimum < value if exclude_minimum else minimum <= value) or not value <= maximum:
            raise ValueError(f"must be {'>' if exclude_minimum else '≥'} {minimum:g} and ≤ {maximum:g}, not {text}")
        return value

    return parse_limited_number


def parse_percent(text: str) -> float:
    """Parse a percentage below 100 %, such as ``2%``, to a share: 0.02."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*", text)
    share = float(match[1]) / 100.0 if match else 1.0
    if share >= 1.0:
        raise ValueError(f"{text!r} is not a percentage below 100 %; write it like 2%")
    return share


def parse_lower_case_word(text: str) -> str:
    """Parse a name in any case to lower case; later code checks whether the name exists."""
    return text.strip().lower()


def choice_parser(*allowed: str, **old_words: str) -> Parser:
    """Make a parser of one of the words `allowed`, in any case.

    `old_words`: other words that are accepted, each with the allowed word that it stands for.
    """

    def parse_choice(text: str) -> str:
        value = old_words.get(parse_lower_case_word(text), parse_lower_case_word(text))
        if value not in allowed:
            raise ValueError(f"{text!r} is not one of {', '.join(allowed)}")
        return value

    return parse_choice


@dataclass(frozen=True)
class NamesParser:
    """A parser of one or several names, separated by commas; `parser` parses each. The option can be repeated.

    A name in double quotes keeps its blanks and commas, as in CSV: ``a,"b,c"``.
    """

    parser: Parser = str

    def __call__(self, text: str) -> tuple[object, ...]:
        """Parse `text` to its names, in order; raises ValueError for an empty name and for one that occurs twice."""
        parts, place, more = [], 0, True
        while more:
            match = _NAME.match(text, place)
            assert match is not None  # it matches everything up to the next comma
            quoted, plain = match["quoted"], match["plain"]
            parts.append(plain.strip() if quoted is None else quoted.replace('""', '"'))
            if not parts[-1] and quoted is None:
                raise ValueError(f"{text!r} contains an empty name; write names like a,b")
            place, more = match.end(), bool(match["comma"])
        return tuple(map(self.parser, _refuse_repeated_values(text, parts)))

    @staticmethod
    def format_names(values: Iterable[str]) -> str:
        """Write names as one text that this parser reads: separated by commas, in double quotes where necessary."""
        return ",".join(map(quote_name, values))


class ColumnNamesParser(NamesParser):
    """A parser of column names. If the option is repeated, each of its values is one name, with commas and blanks."""


class RepeatedTextParser(NamesParser):
    """A parser of any text, such as a regular expression; an option that is given several times has several values."""

    def __call__(self, text: str) -> tuple[object, ...]:
        return (parse_nonblank_text(text),)


_NAME = re.compile(r'(?:\s*"(?P<quoted>(?:[^"]|"")*)"\s*(?=,|$)|(?P<plain>[^,]*))(?P<comma>,?)')


def quote_name(name: str) -> str:
    """Write a name for `NamesParser`: in quotes if it is empty, or has a comma, a quote, or a blank at an end."""
    plain = name and name == name.strip() and not set(name) & set(',"')
    return name if plain else '"{}"'.format(name.replace('"', '""'))


def _refuse_repeated_values(text: str, values: Iterable[_T]) -> tuple[_T, ...]:
    """The values as a tuple; raises ValueError if one occurs twice."""
    parsed = tuple(values)
    if len(set(parsed)) != len(parsed):
        raise ValueError(f"{text!r} contains a value twice")
    return parsed


def choices_parser(*allowed: str) -> Parser:
    """Make a parser of one or several of the words `allowed`, separated by commas."""
    return NamesParser(choice_parser(*allowed))


def parse_nonblank_text(value: str) -> str:
    """Parse any text that is not blank; returns it unchanged."""
    if not value.strip():
        raise ValueError("the value is empty")
    return value


def parse_path(text: str) -> str:
    """Parse a path: replaces ``~`` and ``~user`` by the home folder, and leaves the rest as it was typed.

    Raises ValueError, with one sentence, if the text is empty, no file can have this name, or there is no such user.
    """
    if not text.strip():
        raise ValueError("the value is empty")
    try:
        name = str(Path(text).expanduser()) if text.startswith("~") else text
        os.stat(name)
    except RuntimeError:
        user = text[1:].partition("/")[0]
        who = f"there is no user {user!r}" if user else "you have no home folder"
        raise ValueError(f"{text!r}: {who}; write the whole path") from None
    except OSError as error:
        if not isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError):  # it may be elsewhere
            raise ValueError(f"{text!r}: {error.strerror}") from None
    except ValueError:
        raise ValueError(f"{text!r} contains a NUL character, which no file name can") from None
    return name


def find_stored_result(path: str, results_folder: str | None) -> str:
    """The path of a result: `path`, or if there is no such file, the folder of that name in `results_folder`.

    `results_folder`: None for that of ``MERGE_BENCH_RESULTS``, by default ``results``.
    """
    stored = Path(results_folder or os.environ.get("MERGE_BENCH_RESULTS") or "results", path)
    return str(stored) if Path(path).name == path and not os.path.lexists(path) and stored.is_dir() else path


def parse_result(text: str) -> str:
    """Parse the path of a result, or its name in the results folder; raises ValueError as `parse_path` does."""
    return find_stored_result(parse_path(text), None)


UCX_VERSION = re.compile(r"\d+\.\d+\.\d+(\.post\d+)?")
"""The version of a release of UCX."""
AUTO, WHEEL, SYSTEM = "auto", "wheel", "system"


def parse_ucx_origin(text: str) -> str:
    """Parse a value of ``--ucx``: ``auto``, ``wheel``, ``system``, a release (``1.21.0``), or a folder with a slash.

    Raises ValueError if it is something else.
    """
    word = parse_lower_case_word(text)
    if word in (AUTO, WHEEL, SYSTEM) or UCX_VERSION.fullmatch(word):
        return word
    if "/" not in text:
        raise ValueError(
            f"{text!r} is not {AUTO}, {WHEEL}, {SYSTEM}, a release such as 1.21.0, or the folder of an installed UCX"
            " such as /opt/ucx"
        )
    return str(Path(parse_path(text.strip())).absolute())


RANGE = ".."


def parse_ucx_releases(text: str) -> tuple[str, ...]:
    """Parse releases of UCX: ``1.19.0..1.22.0`` to ends with `RANGE` between them, ``1.19.0,/opt/ucx`` to its values.

    Raises ValueError if they are fewer than two, or one is no release and no folder.
    """
    ends = text.strip().split(RANGE)
    if len(ends) == 2 and all(map(UCX_VERSION.fullmatch, ends)):
        return ends[0], RANGE, ends[1]
    releases = tuple(map(parse_ucx_origin, text.split(",")))
    if len(releases) < 2 or {AUTO, WHEEL, SYSTEM} & {*releases}:
        raise ValueError(
            f"{text!r} is not FIRST{RANGE}LAST, such as 1.19.0..1.22.0, and no list of releases or folders"
        )
    _refuse_repeated_values(text, releases)
    return releases


parse_names, parse_columns, parse_paths = NamesParser(), ColumnNamesParser(), NamesParser(parse_path)
parse_texts = RepeatedTextParser()


def parse_interface_name(value: str) -> str:
    """Parse the name of a network interface, such as ``eth0``."""
    if not _INTERFACE.fullmatch(value):
        raise ValueError(f"{value!r} is not a valid name of a network interface")
    return value


def parse_service_address(text: str) -> str:
    """Parse the address of a service, such as ``https://bench.example:5007``; a slash at its end is dropped."""
    if not _SERVICE_ADDRESS.fullmatch(text):
        raise ValueError(f"{text!r} is not the address of one service, such as https://bench.example:5007")
    return text.rstrip("/")


def parse_yes_or_no(text: str) -> bool:
    """Parse ``y``/``n``, ``1``/``0``, ``true``/``false``, ``yes``/``no`` or ``on``/``off`` to True or False."""
    value = _SWITCH.get(parse_lower_case_word(text))
    if value is None:
        raise ValueError(f"{text!r} is not yes or no")
    return value


def parse_skew(text: str) -> float:
    """Parse the skew of keys: ``zipf:1.2`` to 1.2, the exponent of their Zipf distribution; ``none`` to 0.0."""
    value = parse_lower_case_word(text)
    if value == "none":
        return 0.0
    if not value.startswith("zipf:"):
        raise ValueError(f"{text!r} is not none or zipf:S; write zipf:1.2, for example")
    return number_parser(0, 10, exclude_minimum=True)(value.removeprefix("zipf:"))


def suggest_similar_names(name: str, names: Iterable[str], *, cutoff: float = 0.6, prefix: str = "") -> str:
    """The hint ``; did you mean A or B?`` with those of `names` that are nearest to `name`; empty if none is near.

    `prefix`: put before the names in the hint.
    """
    near = [prefix + each for each in difflib.get_close_matches(name, list(names), n=3, cutoff=cutoff)]
    return f"; did you mean {' or '.join(near)}?" if near else ""
