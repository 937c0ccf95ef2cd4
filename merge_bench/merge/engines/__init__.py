"""The dataframe libraries that partition and join on a worker: a registry of this folder, one file an engine.

An engine's file has a constant ``ENGINE = EngineDescription(…)`` with literal arguments. They are read from the source
text, so that listing the engines imports neither engines nor their libraries. The command line, its help and all
questions about an engine use these descriptions.

To add one: a file with such a constant and a class of the protocol in `base.py`, a row in docs/merging.md.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from merge_bench.config.installation import setup_command
from merge_bench.errors import UsageError
from merge_bench.merge import read_registry

if TYPE_CHECKING:
    from merge_bench.merge.engines.base import Engine, JoinShape


@dataclass(frozen=True, kw_only=True)
class EngineDescription:
    """The properties of an engine (name, packages, memory, abilities), as its file in this folder declares them."""

    name: str  # in `--engine`, and of its file
    help: str  # what it is, in one line of the command's help
    attribute: str  # the name of its class
    packages: tuple[str, ...]  # names of those that it imports
    place: int  # its position among the engines of the same memory; `auto` uses the first one that can work
    device_memory: bool = False  # its rows are in the memory of a GPU, which every worker needs; or in host memory
    in_parts: bool = False
    """It can join some rows while others are in flight (`base.PipelinedEngine`), as ``--pipeline on`` needs."""
    dask_backend: str | None = None  # of Dask's dataframes, for `--exchange dask`; None: there is none
    refuses: tuple[tuple[str, str], ...] = ()
    """Column types that it does not support: the name of a test of `pyarrow.types` without ``is_``, and the reason."""
    result_copies: float = 1.0  # host memory of a result, times its bytes; measured
    kept_bytes: int = 0  # freed memory that its library keeps, bytes for each row and payload column; measured
    reuses_sent: bool = False  # without pipelining, it writes the result over right parcels that were sent

    @property
    def missing_package(self) -> str | None:
        """The name of the first package that the engine needs and that is not installed; None if all are."""
        return next((name for name in self.packages if importlib.util.find_spec(name) is None), None)


def engine_descriptions() -> tuple[EngineDescription, ...]:
    """The descriptions of all engines: those of host memory, then those of device memory."""
    engines = read_registry(tuple(__path__), "ENGINE", EngineDescription)
    return tuple(sorted(engines, key=lambda engine: (engine.device_memory, engine.place, engine.name)))


def engine_names() -> tuple[str, ...]:
    """The names of all engines, in the order of `engine_descriptions`."""
    return tuple(engine.name for engine in engine_descriptions())


def describe_engine(name: str) -> EngineDescription:
    """Return the description of the engine called `name`; raises `UsageError` if there is none."""
    for engine in engine_descriptions():
        if engine.name == name:
            return engine
    raise UsageError(f"there is no engine {name!r}; the engines are {', '.join(engine_names())}")


def default_engine(*, device_memory: bool, needs_dask: bool = False) -> EngineDescription:
    """Return the first engine whose rows are in device memory, or else in host memory.

    `needs_dask`: that has a Dask backend.
    """
    return next(
        engine
        for engine in engine_descriptions()
        if engine.device_memory == device_memory and (engine.dask_backend is not None or not needs_dask)
    )


def choose_auto_engine(*, has_gpus: bool, needs_dask: bool = False) -> EngineDescription:
    """Return the engine that ``--engine auto`` selects: one on GPUs if possible, else a CPU engine."""
    on_gpus = default_engine(device_memory=True, needs_dask=needs_dask)
    return (
        on_gpus
        if has_gpus and on_gpus.missing_package is None
        else default_engine(device_memory=False, needs_dask=needs_dask)
    )


def engine_choices() -> tuple[str, ...]:
    """Return all values of ``--engine``: ``auto`` and the names of the engines."""
    return ("auto", *engine_names())


def engine_option_help() -> str:
    """Return the help text of ``--engine``: the meaning of ``auto``, and a line about each engine."""
    on_gpus, elsewhere = default_engine(device_memory=True), default_engine(device_memory=False)
    lines = "; ".join(f"{engine.name}: {engine.help}" for engine in engine_descriptions())
    auto = f"auto: {on_gpus.name} on GPUs, else {elsewhere.name}"
    return f"Library that partitions and joins on a worker; {auto}; {lines}."


def import_engine_class(name: str) -> Callable[[JoinShape], Engine]:
    """Import the engine called `name` with its library, and return the engine's class.

    Raises `UsageError` if its library is not installed here. The class raises an error if it cannot work on this
    machine.
    """
    description = describe_engine(name)
    if description.missing_package is not None:
        raise UsageError(
            f"engine {name} needs the package {description.missing_package}, which is not installed in this"
            f" environment; run: {setup_command('cu13' if description.device_memory else None)}"
        )
    module = importlib.import_module(f"{__name__}.{name}")
    engine: Callable[[JoinShape], Engine] = getattr(module, description.attribute)
    return engine
