"""Formats for other programs: the exporters in the files of this folder are the values of ``export --format``.

To add one: a file that declares an `Exporter` as ``EXPORTER`` and imports what it works with inside functions, a test,
and a line in docs/results.md. Formats that write the same figures share a file.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merge_bench.records.campaign import Campaign


@dataclass(frozen=True)
class Exporter:
    """An export format of results.

    `name`: as ``--format`` takes it; `help`: what the file contains, in a few words; `place`: its position in lists;
    `encode`: returns the contents of the file, or raises UsageError with a sentence if the format cannot express these
    results; `binary`: whether the file is binary, so that it needs ``--output``.
    """

    name: str
    help: str
    place: int
    encode: Callable[[Sequence[Campaign]], bytes]
    binary: bool = False


@functools.cache
def exporters() -> Mapping[str, Exporter]:
    """Return every exporter by its name, in the order in which they are shown; the first is the default."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    exporters = [value for module in modules for value in vars(module).values() if isinstance(value, Exporter)]
    return {exporter.name: exporter for exporter in sorted(exporters, key=lambda each: (each.place, each.name))}


def export_formats_help() -> str:
    """The help of the option ``--format``: each export format with its description."""
    return f"Format; {'; '.join(f'{exporter.name}: {exporter.help}' for exporter in exporters().values())}."
