"""Ways to start a cluster, one file each: the files of this folder are the values of ``--launcher``.

To add one: a file that declares a `LauncherKind` as ``LAUNCHER`` and imports slow libraries inside functions, a test,
and a row in docs/first-cluster.md.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from typing import NamedTuple

from merge_bench.cluster.base import BatchSystem, ClusterSettings, Launcher, LauncherKind
from merge_bench.cluster.hosts import HostSpec
from merge_bench.config.options import ClusterOptions
from merge_bench.errors import UsageError, WarningMessage

AUTO = "auto"


@functools.cache
def launchers_by_name() -> Mapping[str, LauncherKind]:
    """Return the declaration of every launcher by its name, in the order in which they are shown."""
    modules = (importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__))
    kinds: list[LauncherKind] = [module.LAUNCHER for module in modules]
    return {kind.name: kind for kind in sorted(kinds, key=lambda kind: (kind.place, kind.name))}


class ChosenLauncher(NamedTuple):
    """The launcher that the options choose, and its hosts: none for this machine or a running cluster."""

    launcher: LauncherKind
    hosts: tuple[HostSpec, ...]


def choose_launcher(options: ClusterOptions, environ: Mapping[str, str]) -> ChosenLauncher:
    """Return the launcher that the options and the environment choose, and its hosts; raises UsageError."""
    chosen = choose_launcher_kind(options, environ)
    try:
        return ChosenLauncher(chosen, chosen.hosts(options, environ))
    except UsageError as error:
        raise UsageError(f"--launcher {chosen.name}: {error}" if chosen.variables else str(error)) from None


def choose_launcher_kind(options: ClusterOptions, environ: Mapping[str, str]) -> LauncherKind:
    """Return the kind of launcher that the options and the environment choose.

    With ``auto``: the launcher whose options are given, else that of the batch job which this process is in, if its
    nodes can be reached, else the one that starts processes here. Raises UsageError if options contradict each other.
    """
    name, kinds = options.launcher, launchers_by_name()
    with_options = [kind for kind in kinds.values() if any(getattr(options, key) for key in kind.needs)]
    running = next((kind for kind in with_options if not kind.owns_processes), None)
    if running is not None:
        if name not in (AUTO, running.name) or with_options != [running]:
            what = "--scheduler-address and --scheduler-file use a running cluster"
            raise UsageError(f"{what}; leave out --launcher and --hosts")
        return running
    if name == AUTO:
        return with_options[0] if with_options else _automatic_launcher_kind(options, environ)[0]
    chosen = kinds[name]
    if chosen.needs and chosen not in with_options:
        raise UsageError(f"--launcher {name} needs {' or '.join(map(_command_line_option_name, chosen.needs))}")
    if with_options and chosen not in with_options:
        key = next(key for key in with_options[0].needs if getattr(options, key))
        raise UsageError(f"{_command_line_option_name(key)} cannot be combined with --launcher {name}")
    return chosen


def unreachable_batch_job_warning(options: ClusterOptions, environ: Mapping[str, str]) -> WarningMessage | None:
    """Return a warning if ``--launcher auto`` ignores a batch job whose hosts cannot be reached, or None."""
    automatic = options.launcher == AUTO and choose_launcher_kind(options, environ).starts_here
    return _automatic_launcher_kind(options, environ)[1] if automatic else None


def _automatic_launcher_kind(
    options: ClusterOptions, environ: Mapping[str, str]
) -> tuple[LauncherKind, WarningMessage | None]:
    """Return the launcher of the batch job that this process is in, else the local one, and a warning or None.

    The warning is about a batch job whose hosts cannot be reached.
    """
    passed_over = None
    for kind in launchers_by_name().values():
        if not kind.inside(environ):
            continue
        try:
            kind.hosts(options, environ)
        except UsageError as error:
            names = [name for name in kind.variables if name in environ]
            what = f"{names[0]} is set, but no job can be reached: {error}; everything runs on this machine"
            remedy = f"unset {' '.join(names)}, or add --launcher {_local_launcher_kind().name}"
            passed_over = passed_over or WarningMessage("no-job", what, remedy)
        else:
            return kind, None
    return _local_launcher_kind(), passed_over


def launcher_choices() -> tuple[str, ...]:
    return (AUTO, *launchers_by_name())


def launcher_help_text() -> str:
    conditions = dict.fromkeys(kind.auto for kind in launchers_by_name().values() if kind.auto)
    return f"How processes are started; auto: {', '.join([*conditions, f'else {_local_launcher_kind().name}'])}."


def batch_systems() -> dict[str, BatchSystem]:
    """Return the batch systems for which ``submit`` makes jobs, by the name of their launcher."""
    return {name: kind.batch for name, kind in launchers_by_name().items() if kind.batch is not None}


def systems_with_storage_option() -> list[str]:
    """Return the names of the batch systems whose jobs have the option ``--storage``."""
    return [batch.title for batch in batch_systems().values() if batch.storage]


def make_launcher(settings: ClusterSettings) -> Launcher:
    """Make the launcher that the settings name."""
    kind = launchers_by_name()[settings.launcher]
    if kind.make is not None:
        return kind.make()
    from merge_bench.cluster.start_on_hosts import RemoteLauncher

    assert kind.reach is not None
    return RemoteLauncher(kind.name, kind.reach)


def _local_launcher_kind() -> LauncherKind:
    return next(kind for kind in launchers_by_name().values() if kind.starts_here)


def _command_line_option_name(key: str) -> str:
    return f"--{key.replace('_', '-')}"
