"""Makes the options of each run of a sweep, and refuses options that work together on no machine."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

from merge_bench.cluster import dask_settings
from merge_bench.cluster.launchers import choose_kind, launchers
from merge_bench.config import allowed_transports
from merge_bench.config.option import DEFAULT
from merge_bench.config.options import RunOptions
from merge_bench.errors import UsageError
from merge_bench.merge import engines
from merge_bench.merge.engines import Description
from merge_bench.merge.engines.base import How
from merge_bench.merge.exchange import data_plane, planes_with
from merge_bench.merge.plan import BROADCAST, check_broadcast
from merge_bench.merge.workload.benchmarks import BENCHMARKS
from merge_bench.merge.workload.synthetic import KEY

AUTO = "auto"
SWEPT = ("chunk", "workers", "question", "engine", "exchange", "shuffle")
"""The options of which several values make a sweep, those of the tables first: runs of the same tables are in a row."""


def runs_of(options: RunOptions, environ: Mapping[str, str]) -> list[RunOptions]:
    """The options of each run; one run for each combination of swept values and each question of a benchmark.

    Raises
    ------
    UsageError
        If the options of a run work together on no machine, or one of them has no effect.
    """
    if options.rows is not None and options.workload != "h2o":
        raise UsageError("--rows needs --workload h2o; the size of synthetic tables is set with --chunk")
    benchmark = BENCHMARKS.get(options.workload)
    if benchmark is not None:
        named = options.several.get("question", (options.question,) if options.question else ())
        options = options.updated({"question": benchmark.choose(named)}, {})
    elif options.question is not None:
        raise UsageError(f"--question needs --workload {' or '.join(BENCHMARKS)}")
    swept = {key: options.several[key] for key in SWEPT if key in options.several}
    if "chunk" in swept and options.workload != "synthetic":
        raise UsageError("--chunk cannot be used with real tables, whose size is fixed; omit --chunk")
    exchanges = swept.get("exchange", (options.exchange,))
    if "shuffle" in swept and not any(data_plane(name).shuffles for name in exchanges):
        shuffling = planes_with(lambda plane: plane.shuffles)
        raise UsageError(f"several values of --shuffle need --exchange {shuffling}; no other has a shuffle method")
    runs = []
    for combination in itertools.product(*swept.values()):
        run = options.updated(dict(zip(swept, combination, strict=True)), {})
        if "shuffle" in swept and not data_plane(run.exchange).shuffles and run.shuffle != swept["shuffle"][0]:
            continue
        if benchmark is not None and (how := benchmark.question(run.question or "").how) is not None:
            if options.source("how") != DEFAULT:
                raise UsageError(
                    f"--how cannot be used with --workload {benchmark.name}, whose questions define it; omit --how"
                )
            run = replace(run, how=how)
        runs.append(run)
    for run in runs:
        _refuse_impossible(run, environ)
    return runs


def _refuse_impossible(options: RunOptions, environ: Mapping[str, str]) -> None:
    """Raise `UsageError` if the options of one run work together on no machine."""
    launcher = choose_kind(options, environ)
    if not launcher.owns_processes and options.interface and not options.source("interface").startswith("environment"):
        raise UsageError(
            "--interface cannot be used with a running cluster, whose interface is fixed; omit --interface"
        )
    refuse_more_launches(launcher.name, options.launches)
    if launcher.owns_processes and not launcher.starts_here:
        protocol_of(options, others_connect=True)
    if options.workload == "synthetic":
        _refuse_synthetic_keys(options)
    if options.engine != AUTO:
        engine_of(options, gpus=False)
    _refuse_for_data_plane(options)
    how = How(options.how)
    if options.runtime_filter == "on" and how.keeps_left and how.keeps_right:
        raise UsageError(
            f"--runtime-filter on drops rows that have no match, and --how {how.value} keeps those of both tables; use"
            " --runtime-filter off"
        )
    if options.distribution == BROADCAST:
        check_broadcast(how)
        if without := option_needing_shuffle(options):
            raise UsageError(f"{without} cannot be used with --distribution broadcast; omit it, or use a shuffle")
    for word, hint in allowed_transports.unknown_words(",".join(options.require_transport)).items():
        raise UsageError(f"--require-transport {word}: no release of UCX has such a transport{hint}")
    if options.workers is not None:
        refuse_no_pairs(options, options.workers)
    if options.write_result is not None and options.verify == "off":
        raise UsageError("--write-result writes a table that was verified; omit --verify off")


def _refuse_synthetic_keys(options: RunOptions) -> None:
    if options.columns:
        raise UsageError("--columns cannot be used with synthetic tables; --payload-columns sets how many they have")
    keys = options.on or options.left_on
    if keys and tuple(keys) != (KEY,):
        names = ("--on", "--on") if options.on else ("--left-on", "--left-on and --right-on")
        raise UsageError(
            f"{names[0]} {','.join(keys)} cannot be used with synthetic tables, whose key column is always {KEY!r};"
            f" omit {names[1]}"
        )


def _refuse_for_data_plane(options: RunOptions) -> None:
    plane = data_plane(options.exchange)
    if not plane.supports_join(options.how):
        others = planes_with(lambda other: other.supports_join(options.how))
        raise UsageError(
            f"--exchange {plane.name} does not support --how {options.how}; use --how {', '.join(dict(plane.joins))}"
            f" or --exchange {others}"
        )
    if options.pipeline == "on" and not plane.pipeline:
        raise UsageError(
            f"--pipeline on needs --exchange {planes_with(lambda other: other.pipeline)}, not {plane.name};"
            " use --pipeline off"
        )
    if options.runtime_filter == "on" and not plane.runtime_filter:
        raise UsageError(f"--exchange {plane.name} has no runtime filter; use --runtime-filter off")
    if options.timeline == "on" and not plane.timeline:
        raise UsageError(
            f"--timeline on needs --exchange {planes_with(lambda other: other.timeline)}; use --timeline auto"
        )
    if options.distribution == BROADCAST and not plane.broadcast:
        raise UsageError(f"--exchange {plane.name} sends no table whole; use --distribution shuffle")
    if options.require_transport and not plane.endpoints:
        raise UsageError(
            f"--require-transport needs --exchange {planes_with(lambda other: other.endpoints)}; --exchange"
            f" {plane.name} has no UCX endpoints between workers"
        )


def refuse_more_launches(launcher: str, launches: int) -> None:
    """Raise `UsageError` if more than one launch is wanted of a cluster that is already running."""
    if launches > 1 and not launchers()[launcher].owns_processes:
        raise UsageError("with a running cluster, use one config and one size, and omit --launches")


def refuse_no_pairs(options: RunOptions, workers: int) -> None:
    """Raise `UsageError` if transports between workers are required, but there is only one worker."""
    if options.require_transport and workers < 2:
        raise UsageError(
            "--require-transport needs at least two workers, because it checks pairs of workers; use --workers 2 or"
            " more"
        )


def protocol_of(options: RunOptions, *, others_connect: bool) -> str:
    """The protocol of Dask's messages: tls, unless another one or --insecure is given.

    `others_connect`: whether other machines can reach the ports. If not, `auto` means tcp for a data plane that sends
    the rows in Dask's messages, which would measure the encryption.

    Raises
    ------
    UsageError
        If other machines could connect to ports that ask for no certificate.
    """
    if options.protocol == AUTO and dask_settings.requires_encryption():
        return "tls"
    if options.protocol == AUTO:
        open_anyway = options.insecure if others_connect else not data_plane(options.exchange).by_workers
        return "tcp" if open_anyway else "tls"
    if others_connect and options.protocol != "tls" and not options.insecure:
        raise UsageError(
            f"--protocol {options.protocol} is not encrypted: anyone able to connect can run code here; use --protocol"
            " tls, or add --insecure on a trusted network"
        )
    return options.protocol


def engine_of(options: RunOptions, *, gpus: bool) -> Description:
    """The engine that the options name; ``auto`` chooses one by whether there are GPUs.

    Raises
    ------
    UsageError
        If the engine does not support another option.
    """
    dask = not data_plane(options.exchange).by_workers
    engine = engines.auto_engine(gpus=gpus, dask=dask) if options.engine == AUTO else engines.describe(options.engine)
    if dask and engine.dask_backend is None:
        others = (other.name for other in engines.descriptions() if other.dask_backend is not None)
        raise UsageError(
            f"--exchange {options.exchange} does not support --engine {engine.name}; use --engine {' or '.join(others)}"
        )
    if options.pipeline == "on" and not engine.in_parts:
        raise UsageError(f"--engine {engine.name} cannot overlap phases; use --pipeline off")
    if (only := data_plane(options.exchange).engines) and engine.name not in only:
        raise UsageError(f"--exchange {options.exchange} needs --engine {' or '.join(only)}, not {engine.name}")
    if options.runtime_filter == "on" and engine.device_memory:
        raise UsageError(f"--engine {engine.name} has no runtime filter; use --runtime-filter off")
    return engine


def option_needing_shuffle(options: RunOptions) -> str | None:
    """The option among those given that needs the distribution `shuffle`, as on the command line; None if none does.

    A broadcast has hardly anything to overlap: no row can be joined before all of the small table has arrived. A
    runtime filter saves the partition and exchange of rows, and a broadcast has neither for the large table.
    """
    values = {"--pipeline on": options.pipeline, "--runtime-filter on": options.runtime_filter}
    return next((option for option, value in values.items() if value == "on"), None)
