"""The data planes, which move rows between workers: a registry of this folder, one file a data plane.

A file has a constant ``PLANE = DataPlane(…)`` with literal arguments, which is read as those of engines are. The values
of ``--exchange``, its help and all questions about a data plane come from these descriptions.

To add one: a file with such a constant and a class of `base.Exchange`, and a row in docs/merging.md.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from merge_bench.errors import UsageError
from merge_bench.merge import read_registry


@dataclass(frozen=True, kw_only=True)
class DataPlane:
    """The properties of a data plane: its name, packages and abilities, as its file in this folder declares them."""

    name: str  # in `--exchange`, and of its file
    help: str  # how it moves rows, in a few words of the option's help
    place: int  # its position in lists; the first one is the default
    attribute: str | None = None
    """The name of its class, an `Exchange`, with which the workers exchange rows by themselves and measure it. None:
    Dask's scheduler merges dataframes of the engine's library, of which only the wall-clock time is known."""
    packages: tuple[str, ...] = ()  # names of those that it imports
    joins: tuple[tuple[str, str], ...] = ()
    """The kinds of join (``--how``) that it has, each with its name in the library that joins; empty: all."""
    pipeline: bool = False  # whether rows can travel while others are partitioned and joined (`MessageExchange`)
    runtime_filter: bool = False  # whether workers can share which keys they have before they partition
    timeline: bool = False  # whether what begins and ends when can be noted
    link_limit: bool = False  # whether the messages of a merge can be sent again without the merge
    endpoints: bool = False  # whether our own UCX endpoints carry the rows: lanes to record, transports to require
    ucx: bool = False  # whether UCX moves the rows, as its settings say
    engines: tuple[str, ...] = ()  # names of those that it works with; empty: all
    tables: bool = False  # whether it partitions and moves tables of the engine (`TableExchange`) instead of parcels
    broadcast: bool = True  # whether a worker can send a frame whole to all others
    shuffles: tuple[tuple[str, float], ...] = ()
    """The values of ``--shuffle`` that it has, each with the memory it needs, in sizes of both frames; measured."""

    @property
    def workers_exchange_rows(self) -> bool:
        """Whether the workers exchange rows with this package's code; otherwise Dask's scheduler merges dataframes."""
        return self.attribute is not None

    @property
    def missing_package(self) -> str | None:
        """The name of the first package that the data plane needs and that is not installed; None if all are."""
        return next((name for name in self.packages if importlib.util.find_spec(name) is None), None)

    def supports_join(self, how: str) -> bool:
        """Whether the data plane supports this kind of join (a value of ``--how``)."""
        return not self.joins or how in dict(self.joins)


UNKNOWN = DataPlane(name="", help="", place=0, attribute="")


def data_planes() -> tuple[DataPlane, ...]:
    """The descriptions of all data planes, the default one first."""
    return tuple(
        sorted(read_registry(tuple(__path__), "PLANE", DataPlane), key=lambda plane: (plane.place, plane.name))
    )


def find_data_plane(name: str) -> DataPlane:
    """Return the description of the data plane called `name`; raises `UsageError` if there is none."""
    plane = find_recorded_plane(name)
    if plane is UNKNOWN:
        names = ", ".join(plane.name for plane in data_planes())
        raise UsageError(f"there is no exchange {name!r}; the exchanges are {names}")
    return plane


def find_recorded_plane(name: str | None) -> DataPlane:
    """Return the description of the data plane that a record names; `UNKNOWN` if there is none of that name."""
    return next((plane for plane in data_planes() if plane.name == name), UNKNOWN)


def format_plane_names(has_capability: Callable[[DataPlane], object]) -> str:
    """Return the names of all data planes that have a property, joined for a sentence, as in ``ucx or other``."""
    return " or ".join(plane.name for plane in data_planes() if has_capability(plane))


def exchange_option_help() -> str:
    """Return the help text of ``--exchange``: a few words about each data plane."""
    return f"How the frames are exchanged; {'; '.join(f'{plane.name}: {plane.help}' for plane in data_planes())}."


def import_exchange_class(name: str) -> type[Any]:
    """Import the data plane called `name` with its libraries, and return its `Exchange` class."""
    plane = find_data_plane(name)
    assert plane.attribute is not None, "Dask's scheduler moves the rows"
    exchange: type[Any] = getattr(importlib.import_module(f"{__name__}.{name}"), plane.attribute)
    return exchange
