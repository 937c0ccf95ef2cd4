"""Formats for other programs, one file each: the files of this folder are the values of ``export --format``.

To add one: a file that declares an `Exporter` as ``EXPORTER`` and imports what it works with inside functions, a test,
and a line in docs/results.md.
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
    """A format for results.

    Attributes
    ----------
    name
        As ``--format`` takes it.
    help
        What the file contains, in a few words.
    place
        Its position in lists.
    encode
        The contents of the file. Raises UsageError if the format cannot express these results; the message is one
        sentence.
    binary
        Whether it is no text, so that it needs ``--output``.
    """

    name: str
    help: str
    place: int
    encode: Callable[[Sequence[Campaign]], bytes]
    binary: bool = False


@functools.cache
def exporters() -> Mapping[str, Exporter]:
    """Every exporter by its name, in the order in which they are shown; the first is the default."""
    modules = (importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__))
    found: list[Exporter] = [module.EXPORTER for module in modules]
    return {each.name: each for each in sorted(found, key=lambda each: (each.place, each.name))}


def help_text() -> str:
    """The help of ``--format``: what each file contains."""
    return f"Format; {'; '.join(f'{each.name}: {each.help}' for each in exporters().values())}."
