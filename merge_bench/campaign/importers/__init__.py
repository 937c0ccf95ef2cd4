"""Formats that `import` reads: a registry of this folder, one file for the output of each program.

A file has a constant ``IMPORTER = Importer(…)`` with literal arguments, which is read as those of engines are, and two
functions: ``find_identifying_line(text)`` returns the number of the first line that only this program prints, 0 if
there is none; ``read(text)`` returns an `ImportedResult`, or raises UsageError with one sentence if the text is cut,
damaged, or of several runs.

To add one: such a file, a test with recorded output, and its lines in docs/results.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from merge_bench.merge import read_registry

if TYPE_CHECKING:
    from merge_bench.campaign.printed_text import PrintedText
    from merge_bench.errors import Caution
    from merge_bench.records.schema import Measurement, PrintedTotals


@dataclass(frozen=True, kw_only=True)
class Importer:
    """A format that `import` reads.

    `name`: as ``--format`` takes it, and of its file; `help`: which program prints it, in a few words; `place`: its
    position in lists; `includes`: formats whose lines may be part of an output of this one; `bus_bandwidth`: whether
    the bandwidth of its collectives is the bus bandwidth.
    """

    name: str
    help: str
    place: int
    includes: tuple[str, ...] = ()
    bus_bandwidth: bool = False


@dataclass(frozen=True, kw_only=True)
class ImportedResult:
    """The result that an importer read from the text of another program, in the form that records have.

    `program`: what printed the text; `plan`: the plan in the first line of the records; `measurements`: the lines of
    launch 0; `command`: the command line in the text; `variables`: the settings in the text, as those of the config;
    `headline`, `fraction`, `data_bytes`, `rows`: only of merges.
    """

    program: str
    plan: Mapping[str, Any]
    measurements: Sequence[Measurement]
    command: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[Caution, ...] = ()
    headline: PrintedTotals | None = None
    fraction: float | None = None
    data_bytes: int = 0
    rows: int = 0


class FormatReader(Protocol):
    """The two functions that the file of an importer has."""

    def find_identifying_line(self, text: PrintedText) -> int:
        """Return the number of the first line that only this program prints; 0 if there is none."""
        ...

    def read(self, text: PrintedText) -> ImportedResult:
        """Read the result in a text; raises UsageError if the text is cut, damaged, or of several runs."""
        ...


AUTO = "auto"
"""The value of ``--format`` with which the format is recognised."""


def importers() -> Mapping[str, Importer]:
    """Return every importer by its name, in the order in which lists show them."""
    declared = read_registry(tuple(__path__), "IMPORTER", Importer)
    return {each.name: each for each in sorted(declared, key=lambda each: (each.place, each.name))}


def format_option_help() -> str:
    """The help of the option ``--format``: each format, and which program prints it."""
    members = "; ".join(f"{each.name}: {each.help}" for each in importers().values())
    return f"Format of FILE; {AUTO}: recognised by its lines; {members}."


def load_format_reader(name: str) -> FormatReader:
    """Import the Python file of the importer called `name`."""
    return cast(FormatReader, importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))
