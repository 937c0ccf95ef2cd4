"""What each layer between the hardware and a merge costs: the same parcels through each of them, in turn.

    python -m benchmarks.layers --output FILE.json                           # two workers of this host
    python -m benchmarks.layers --hosts 2 --rate 1 --output FILE.json        # hosts with shaped links; needs root
    python -m benchmarks.layers --show FILE.json --plot FILE.png

A block measures every layer once, in random order. A layer's rate is what one worker receives from the others in a
second, over the time from the first to the last byte of all of them; of ucx_perftest, the rate of one stream one way.
Each layer has a loss: its rate against that of the layer named beside it. `share`: of what the hardware copies (this
host's memory: read once and written once) or what the link carries each way, which is the bisection bandwidth of hosts
on one switch. Exit status: 0 measured; 2 wrong usage; 3 something could not be measured, or it was interrupted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.all_to_all import Link
from benchmarks.goal.bench import Bench, need_hosts, scratch
from benchmarks.processes import Document, options, run_limited, run_merge_bench, surroundings
from merge_bench.analysis.statistics import median, median_interval
from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.exchange.base import longest_message_bytes
from merge_bench.view.plot import Bar, bar_chart
from merge_bench.view.plot.draw import check_plot_files, draw_charts_into_file

SCHEMA = 1
ROW_BYTES = 16
SETTINGS = ("UCX", "MERGE_BENCH_", "DASK_")
HEADINGS = ("layer", "what", "MB/s a worker", "95 %", "of the hardware", "lost against")


@dataclass(frozen=True)
class Layer:
    """A layer. `above`: the layer against which its loss is counted."""

    name: str
    what: str
    above: str | None = None


HARDWARE = "hardware"
LAYERS = (
    Layer(HARDWARE, "memory copied by all workers at once, or what a link carries each way"),
    Layer("ucx_perftest", "one stream of tagged messages, one way", HARDWARE),
    Layer("mpi", "MPI_Alltoallv of the parcels", "ucx_perftest"),
    Layer("data plane", "our data plane alone: the parcels between two barriers", "ucx_perftest"),
    Layer("merge", "the exchange of a merge, between partition and join", "data plane"),
    Layer("dask p2p", "Dask's P2P shuffle of as many rows, through memory", "merge"),
)


@dataclass(frozen=True)
class Setting:
    """Where and what is measured. `rate`: bits per second of each link each way; None: workers of this host."""

    workers: int
    chunk: int
    iterations: int
    rate: float | None

    @property
    def received(self) -> int:
        """Bytes that a worker receives from all others in one merge."""
        return 2 * self.chunk * ROW_BYTES * (self.workers - 1) // self.workers

    def chosen(self) -> dict[str, object]:
        """Options of all commands."""
        more: dict[str, object] = {}
        if self.rate is not None:
            more = {"config": "ethernet.cfg", "timeout": 60, "start_timeout": 200}
        return {"workers": self.workers, **more}


class Measurer:
    """Measures layers; `hosts`: test hosts, or None for this host."""

    def __init__(self, bench: Bench, setting: Setting, hosts: Any) -> None:
        self.bench, self.setting, self.hosts = bench, setting, hosts
        self.copied: float | None = None
        self._count = 0
        self.layers: dict[str, Callable[[], float]] = {
            "ucx_perftest": self.perftest,
            "mpi": self.mpi,
            "data plane": self.data_plane,
            "merge": self.merge,
            "dask p2p": self.dask,
        }

    def perftest(self) -> float:
        """Bytes per second of messages as long as those of a merge."""
        size = longest_message_bytes(self.setting.workers, 0)
        rows = self._probe("p2p", sizes=min(size, self.setting.received))["rows"]
        return min(float(row["bandwidth_bytes_per_second"]) for row in rows if row["test"] == "tag_bw")

    def mpi(self) -> float:
        """Bytes per second of `MPI_Alltoallv`."""
        return self._all_to_all("mpi")

    def data_plane(self) -> float:
        """Bytes per second of the data plane without a merge."""
        return self._all_to_all("ucx")

    def merge(self) -> float:
        """Bytes per second of the exchange in a merge; notes the rate at which memory is copied, too."""
        document = self.bench.merge(
            hosts=self.hosts,
            chunk=self.setting.chunk,
            iterations=self.setting.iterations,
            **self.setting.chosen(),
        ).document
        rate = (document["memory_rate"] or {}).get("copy_bytes_per_second")
        self.copied = None if rate is None else rate / 2
        return self.setting.received / float(document["phases_seconds"]["exchange"])

    def dask(self) -> float:
        """Bytes per second of Dask's P2P shuffle."""
        words = [
            sys.executable,
            "-m",
            "benchmarks.peer.dask_shuffle",
            *options(workers=self.setting.workers, chunk=self.setting.chunk, iterations=self.setting.iterations),
        ]
        if self.hosts is not None:
            from tests.hosts.make_hosts import SWITCH_ADDRESS

            places = ",".join(host.address for host in self.hosts.hosts)
            words += options(addresses=places, ssh_config=self.hosts.ssh_config, host=SWITCH_ADDRESS)
            words = self.hosts.command(*words)
        ended = run_limited(words, surroundings(*SETTINGS), self._stem(), self.bench.limit)
        if ended.failure:
            raise RunFailed(f"Dask's shuffle: {ended.failure}")
        found = json.loads(ended.output.read_text().splitlines()[-1])
        return float(found["bytes"] / median(found["seconds"]))

    def _all_to_all(self, backend: str) -> float:
        document = self._probe("all-to-all", chunk=self.setting.chunk, backend=backend)
        row = next(row for row in document["rows"] if row["test"] == f"{backend}_alltoallv")
        if row["wrong"]:
            raise RunFailed(f"{row['test']} moved wrong bytes")
        return float(row["bandwidth_bytes_per_second"])

    def _probe(self, name: str, **chosen: object) -> Document:
        stem = self._stem()
        words = options(**self.setting.chosen(), **chosen, launches=1, results=f"{stem}.results")
        return run_merge_bench(
            words, surroundings(*SETTINGS), stem, self.bench.limit, verb=("probe", name), hosts=self.hosts
        )[0]

    def _stem(self) -> Path:
        self._count += 1
        return self.bench.folder / f"layer-{self._count:03d}"


def measure(
    setting: Setting, blocks: int, seed: int, limit: float, note: Callable[[Mapping[str, list[float]]], None]
) -> None:
    """Measure all layers in every block; `note` gets the rates so far after each measurement.

    Raises
    ------
    RunFailed
        If a layer could not be measured.
    """
    rates: dict[str, list[float]] = {layer.name: [] for layer in LAYERS}
    with ExitStack() as stack:
        bench, hosts = stack.enter_context(scratch(limit, seed)), None
        if setting.rate is not None:
            from tests.hosts import make_hosts

            make_hosts.BURST = f"{Link(round(setting.rate)).burst}b"
            hosts = stack.enter_context(make_hosts.Hosts(setting.workers, f"{round(setting.rate)}bit"))
        measurer = Measurer(bench, setting, hosts)
        for block in range(blocks):
            for name in command.shuffled(list(measurer.layers), seed, block):
                rate = measurer.layers[name]()
                rates[name].append(rate)
                if name == "merge":
                    link = Link(round(setting.rate)).limit if setting.rate is not None else measurer.copied
                    rates[HARDWARE] += [] if link is None else [link]
                command.say(f"block {block + 1} of {blocks}: {name} {rate / 1e6:,.0f} MB/s")
                note(rates)


def rows(rates: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Each measured layer's median rate, its 95 % interval (six blocks or more), its share and its loss.

    Losses are medians over blocks: 1 - rate ÷ rate of the layer `above` in the same block.
    """
    found = []
    for layer in LAYERS:
        values = rates.get(layer.name) or []
        if not values:
            continue
        interval = median_interval(values)
        hardware, above = rates.get(HARDWARE) or [], rates.get(layer.above or "") or []
        found.append(
            {
                "layer": layer.name,
                "what": layer.what,
                "blocks": len(values),
                "bytes_per_second": median(values),
                "low": interval.low if interval else None,
                "high": interval.high if interval else None,
                "share": _ratio(values, hardware),
                "above": layer.above,
                "loss": None if (ratio := _ratio(values, above)) is None else 1 - ratio,
            }
        )
    return found


def _ratio(values: Sequence[float], others: Sequence[float]) -> float | None:
    pairs = list(zip(values, others, strict=False))
    return median([value / other for value, other in pairs]) if pairs else None


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """The layers in Markdown."""
    lines = []
    for row in found:
        interval = "" if row["low"] is None else f"{row['low'] / 1e6:,.0f} to {row['high'] / 1e6:,.0f}"
        loss = "" if row["loss"] is None else f"{row['above']}: {row['loss']:.1%}"
        lines.append(
            (
                row["layer"],
                row["what"],
                f"{row['bytes_per_second'] / 1e6:,.0f}",
                interval,
                "" if row["share"] is None else f"{row['share']:.1%}",
                loss,
            )
        )
    return command.table(HEADINGS, lines, text=(0, 1, 5))


def show(document: Mapping[str, Any], plots: Sequence[Path]) -> None:
    """Print the table, and draw the ladder into files."""
    found = rows(document["rates"])
    click.echo(table(found))
    ladder = [(row["layer"], [Bar(row["layer"], 0, row["bytes_per_second"] / 1e6, _interval(row))]) for row in found]
    for plot in plots:
        title, axis = f"What each layer moves: {document['title']}", "received by a worker (MB/s)"
        draw_charts_into_file(
            [
                bar_chart(
                    ladder, title=title, axis_title=axis, unit="MB/s", note="bar: median over blocks; thick line: 95 %"
                )
            ],
            plot,
        )


def _interval(row: Mapping[str, Any]) -> tuple[float, float] | None:
    return None if row["low"] is None else (row["low"] / 1e6, row["high"] / 1e6)


@click.command(context_settings=command.CONTEXT)
@command.option("--workers", click.IntRange(2), 2, "Number of workers on this host.")
@command.option("--hosts", click.IntRange(2), None, "Number of test hosts with shaped links; each runs one worker.")
@command.option("--rate", click.FloatRange(0, min_open=True), 1.0, "Rate of each link in Gbit/s, each way.")
@command.option("--chunk", command.ROWS, "1e6", "Rows of a worker in each frame of the merge.")
@command.option("--iterations", click.IntRange(1), 5, "Iterations of a merge and of Dask's shuffle in a block.")
@command.option("--blocks", click.IntRange(1), 6, "Number of blocks; six give an interval.")
@command.option("--plot", str, None, "Draw the layers into this .png, .svg or .html file.")
@command.OUTPUT
@click.option("--show", "show_file", type=command.FILE, metavar="FILE.json", help="Show these results again.")
@command.SEED
@command.time_limit(300)
def layers(
    workers: int,
    hosts: int | None,
    rate: float,
    chunk: int,
    iterations: int,
    blocks: int,
    plot: str | None,
    output: Path | None,
    show_file: Path | None,
    seed: int,
    time_limit: float,
) -> None:
    """Measure what each layer between hardware and merge costs."""
    plots = check_plot_files([plot] if plot else [])
    if show_file is not None:
        show(command.read(show_file), plots)
        return
    if hosts is not None:
        need_hosts()
    setting = Setting(hosts or workers, chunk, iterations, rate * 1e9 if hosts else None)
    place = f"{hosts} hosts with links of {rate:g} Gbit/s" if hosts else f"{workers} workers of one host"
    document = command.head(SCHEMA, title=f"{place}, {chunk:,} rows per chunk", rates={})

    def note(rates: Mapping[str, list[float]]) -> None:
        document["rates"] = rates
        command.write(output, document)

    status = command.until_interrupted(lambda: measure(setting, blocks, seed, time_limit, note))
    if not document["rates"]:
        raise UsageError("nothing was measured")
    show(document, plots)
    click.echo(f"Processor: {document['hardware']['cpu_model']}")
    sys.exit(status)


if __name__ == "__main__":
    command.run(layers, "layers")
