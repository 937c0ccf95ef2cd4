"""Compares forecasts of `predict` with merges on clusters that it was not fitted on, and counts intervals that hold.

    python -m benchmarks.predict_validation --on one-host --output results/curated/predict-cpu-2026-11/one-host.json
    python -m benchmarks.predict_validation --on links --output results/curated/predict-cpu-2026-11/links.json
    python -m benchmarks.predict_validation --on links --only 4x1,8x1@2    # some clusters
    python -m benchmarks.predict_validation --show FILE.json               # a stored result again

`one-host`: fitted on two workers with small and large chunks; forecasts are for 1 to 8 workers on this machine, and for
chunks between. `links`: fitted on two test hosts; forecasts are for 2 to 8 hosts, for slower and faster links, for
links that differ and for phases at once. All test hosts share this machine's processors, which the forecast is given
(`--what-if cores=`); each has a core, which others have as well. Links have to be slow enough to decide: rows are long
(64 B). Needs a machine with nothing else to do, and for links root: about 6 minutes each on two cores.
`docs/measurements.md` has the results. Exit status: 0 measured; 2 wrong usage; 3 something could not be measured, or it
was interrupted; 5 fewer walls than --goal are inside their intervals.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from benchmarks import command
from benchmarks.goal.bench import Bench, Ran, need_hosts, scratch
from merge_bench.analysis.statistics import median
from merge_bench.errors import MergeBenchError, RunFailed, UsageError
from merge_bench.forecast.document import predict
from merge_bench.forecast.fit import NORMAL_QUANTILE, model_error
from merge_bench.forecast.model import WorkerCores
from merge_bench.records.campaign import Campaign
from merge_bench.units import format_count

SCHEMA = 2
MISSED, UNMEASURED = 5, 3
ONE_HOST, LINKS = "one-host", "links"
HEADINGS = (
    "hosts",
    "workers per host",
    "rows per chunk",
    "Mbit/s",
    "phases",
    "what",
    "forecast",
    "interval",
    "measured",
    "error %",
    "inside",
)


@dataclass(frozen=True)
class Target:
    """A cluster: hosts, workers of each, rows of a chunk, its hosts' rates in turn as multiples of the fitted one.

    `at_once`: whether it merges with `--pipeline on`.
    """

    hosts: int
    per_host: int = 1
    rates: tuple[float, ...] = (1.0,)
    at_once: bool = False
    rows: int = 250_000

    @property
    def name(self) -> str:
        """Like ``4x2@0.5``, of one host ``1x4:1e6``."""
        rates = "/".join(f"{rate:g}" for rate in self.rates)
        rows = f":{self.rows:.0e}".replace("+0", "") * (self.hosts == 1)
        return f"{self.hosts}x{self.per_host}{rows}" + f"@{rates}" * (rates != "1") + "+pipeline" * self.at_once

    @property
    def what_if(self) -> list[str]:
        """`predict --what-if` for its links and its cores.

        The slowest link decides, as each worker sends to all others. More hosts than this machine has cores share them.
        """
        slowest, cores = min(self.rates), machine_cores() / self.hosts
        faster = [] if slowest == 1 else [f"nic={slowest:g}x"]
        return faster + ([f"cores={cores:g}"] if self.hosts > 1 and cores < 1 else [])


@dataclass(frozen=True)
class Part:
    """A part of the validation: the clusters that the model is fitted on, and those that it forecasts.

    `error`: what `predict` takes for the model's relative error there.
    """

    fitted: tuple[Target, ...]
    targets: tuple[Target, ...]
    config: str
    launches: int
    iterations: int


PARTS = {
    ONE_HOST: Part(
        fitted=tuple(Target(1, 2, rows=rows) for rows in (100_000, 5_000_000)),
        targets=tuple(
            Target(1, workers, rows=rows)
            for workers, rows in (
                (1, 1_000_000),
                (2, 1_000_000),
                (4, 100_000),
                (4, 1_000_000),
                (4, 5_000_000),
                (8, 100_000),
                (8, 1_000_000),
            )
        ),
        config="default",
        launches=6,
        iterations=10,
    ),
    LINKS: Part(
        fitted=(Target(2), Target(2, 2), Target(2, at_once=True)),
        targets=(
            Target(2, rates=(0.5,)),
            Target(4),
            Target(4, 2),
            Target(4, rates=(1.0, 1.0, 0.5, 1.0)),
            Target(4, rates=(2.0, 1.0, 0.5, 1.0)),
            Target(4, at_once=True),
            Target(8),
            Target(8, rates=(2.0,)),
        ),
        config="ethernet",
        launches=2,
        iterations=2,
    ),
}


def turns_on_a_core(hosts: int, per_host: int, cores: int) -> float:
    """How many workers take turns on a core, where the hosts share the `cores` of this machine."""
    return WorkerCores.share(cores / hosts, per_host).turns


def machine_cores() -> int:
    """The cores that this process may use, which all test hosts share."""
    return len(os.sched_getaffinity(0))


@click.command(context_settings=command.CONTEXT)
@command.option("--on", click.Choice([ONE_HOST, LINKS]), ONE_HOST, "Forecasts for one host, or over links of hosts.")
@command.option("--rate", click.FloatRange(1), 100.0, "Rate of each link in Mbit/s, each way.")
@command.option("--launches", click.IntRange(1), None, "Number of launches of each cluster. [6; links: 2]")
@command.option("--iterations", click.IntRange(1), None, "Number of timed merges per launch. [10; links: 2]")
@command.option(
    "--only",
    command.NAMES,
    None,
    "Only these clusters, from "
    + "; ".join(", ".join(each.name for each in part.targets) for part in PARTS.values())
    + ". [all]",
)
@command.option("--goal", click.FloatRange(0, 100), 80.0, "Least share of walls inside their intervals in percent.")
@command.OUTPUT
@command.SHOW
@command.time_limit(300)
def validate(
    on: str,
    rate: float,
    launches: int | None,
    iterations: int | None,
    only: list[str] | None,
    goal: float,
    output: Path | None,
    show: Path | None,
    time_limit: float,
) -> None:
    """Compare forecasts with merges on clusters that the model was not fitted on."""
    if show is not None:
        sys.exit(_show(command.read(show)))
    part = PARTS[on]
    targets = chosen(part, only)
    if on == LINKS:
        need_hosts()
    asked = {
        "on": on,
        "rate": rate,
        "launches": launches or part.launches,
        "iterations": iterations or part.iterations,
    }
    document = command.head(SCHEMA, asked=asked, goal=goal / 100, fitted=[], targets=[], failures=[])
    with scratch(time_limit) as bench:
        if command.until_interrupted(lambda: _measure_all(bench, part, targets, document, output)):
            document["failures"].append({"target": None, "message": "interrupted"})
            command.write(output, document)
    sys.exit(_show(document))


def chosen(part: Part, names: Sequence[str] | None) -> tuple[Target, ...]:
    """The clusters of these names, or all.

    Raises
    ------
    UsageError
        If there is none of a name.
    """
    wanted = command.chosen(names, [target.name for target in part.targets])
    return tuple(target for target in part.targets if target.name in wanted)


def _measure_all(
    bench: Bench, part: Part, targets: Sequence[Target], document: dict[str, Any], output: Path | None
) -> None:
    """Fit, then forecast and measure every target; the results go into `document`, and to `output` at once."""
    fits: dict[bool, list[Campaign]] = {}
    asked = document["asked"]
    for target in targets:
        try:
            if target.at_once not in fits:
                used = [fitted for fitted in part.fitted if fitted.at_once == target.at_once]
                fits[target.at_once] = [measure(bench, part, fitted, asked).campaign for fitted in used]
                document["fitted"] += [_named(fitted) for fitted in used]
            forecast_document = predict(
                fits[target.at_once],
                workers=target.hosts * target.per_host,
                hosts=target.hosts,
                chunk=target.rows,
                config=part.config,
                what_if=target.what_if,
            )
            forecast = to_builtins(forecast_document.forecast)
            measured = measure(bench, part, target, asked)
            document["targets"].append(
                {
                    **_named(target),
                    "limit": forecast["limit"],
                    "launch_spread": forecast_document.launch_spread,
                    "model_error": model_error(
                        forecast["parts_seconds"], turns_on_a_core(target.hosts, target.per_host, machine_cores())
                    ),
                    "launch_walls": launch_walls(measured.campaign),
                    "compared": compare(forecast, measured.document, at_once=target.at_once),
                }
            )
            for row in rows_of(document["targets"][-1], asked["rate"]):
                command.say(" | ".join(row))
        except MergeBenchError as error:
            document["failures"].append({"target": target.name, "message": str(error)})
            command.say(f"predict_validation: {target.name}: {error}")
        command.write(output, document)


def measure(bench: Bench, part: Part, target: Target, asked: Mapping[str, Any]) -> Ran:
    """A campaign on this host or on test hosts; `asked`: Mbit/s of a link, launches, iterations of each.

    Test host n has core n of this machine, counted round.
    """
    options = {
        "config": f"{part.config}.cfg",
        "fresh": True,
        "workers": target.hosts * target.per_host,
        "chunk": target.rows,
        "launches": asked["launches"],
        "iterations": asked["iterations"],
        "verify": "ends",
        "timeout": 60,
        "start_timeout": 180,
        "pipeline": "on" if target.at_once else "off",
        "link_rounds": None if target.at_once else 0,  # with phases at once links are fitted on these rounds
    }
    if target.hosts == 1:
        ran = bench.merge(**options)
    else:
        from tests.hosts.make_hosts import Hosts

        cores = sorted(os.sched_getaffinity(0))
        with Hosts(target.hosts, None) as hosts:
            for host, rate in zip(hosts.hosts, itertools.cycle(target.rates)):
                hosts.shape(host, f"{round(asked['rate'] * rate * 1e6)}bit")
                assert host.namespaces is not None
                os.sched_setaffinity(host.namespaces.pid, {cores[host.number % len(cores)]})
            hosts.write_hosts([f"{host.name} slots={target.per_host}" for host in hosts.hosts])
            ran = bench.merge(**options, payload_columns=7, hosts=hosts)
    if len(ran.campaign.launches_not_replaced) != asked["launches"]:
        raise RunFailed(
            f"{target.name}: {len(ran.campaign.launches_not_replaced)} of {asked['launches']} launches succeeded"
        )
    return ran


def launch_walls(campaign: Campaign) -> list[float]:
    """The median wall-clock seconds of each launch of a campaign's only run."""
    return [
        median([iteration.wall_seconds for iteration in launch.timed_iterations])
        for launch in campaign.launches_not_replaced
    ]


def compare(forecast: Mapping[str, Any], measured: Mapping[str, Any], *, at_once: bool) -> list[dict[str, Any]]:
    """Wall, exchange and bandwidth, in seconds and bytes per second: forecast, its interval, measured, relative error.

    With phases at once the exchange ends with the slowest computing, and a frame's bandwidth is not that of its links:
    only the wall is compared. One worker exchanges nothing.
    """
    quantities = [("wall_seconds", forecast["wall_seconds"], measured["wall_seconds"]["median"])]
    if not at_once and forecast["bandwidth_bytes_per_second"] is not None:
        exchange = {"value": forecast["phases_seconds"]["exchange"], "interval": None}
        bandwidth = measured["bandwidth_bytes_per_second"]["harmonic_mean"]
        quantities += [
            ("exchange_seconds", exchange, measured["phases_seconds"]["exchange"]),
            ("bandwidth_bytes_per_second", forecast["bandwidth_bytes_per_second"], bandwidth),
        ]
    return [
        {
            "what": what,
            "forecast": quantity["value"],
            "interval": quantity["interval"],
            "measured": true,
            "error": quantity["value"] / true - 1,
        }
        for what, quantity, true in quantities
    ]


def rows_of(target: Mapping[str, Any], rate: float) -> list[list[str]]:
    """A target's rows of the table; `rate` that was fitted on, in Mbit/s."""
    shown = {
        "wall_seconds": ("wall (ms)", 1e3),
        "exchange_seconds": ("exchange (ms)", 1e3),
        "bandwidth_bytes_per_second": ("bandwidth (MB/s)", 1e-6),
    }
    rates = " / ".join(f"{rate * each:g}" for each in target["rates"]) if target["hosts"] > 1 else "-"
    phases = "at once" if target["at_once"] else "apart"
    head = [str(target["hosts"]), str(target["per_host"]), format_count(target["rows"]), rates, phases]
    rows = []
    for compared in target["compared"]:
        what, factor = shown[compared["what"]]
        between = " to ".join(f"{value * factor:.4g}" for value in compared["interval"] or ()) or "-"
        values = [f"{compared['forecast'] * factor:.4g}", between, f"{compared['measured'] * factor:.4g}"]
        inside = _launches_inside(target, compared) if compared["what"] == "wall_seconds" else "-"
        rows.append([*head, what, *values, f"{100 * compared['error']:+.1f}", inside])
    return rows


def _launches_inside(target: Mapping[str, Any], compared: Mapping[str, Any]) -> str:
    low, high = compared["interval"]
    walls = target["launch_walls"]
    return f"{sum(low <= wall <= high for wall in walls)} of {len(walls)}"


def table(document: Mapping[str, Any], *, only_walls: bool = False) -> str:
    """How it was measured, all targets' rows in Markdown, and sentences about the intervals and the model's error."""
    asked, hardware = document["asked"], document["hardware"]
    commit = (document["git"] or {}).get("commit") or "unknown"
    day = time.strftime("%Y-%m-%d", time.gmtime(document["time"]))
    made = (
        f"{day}, {hardware['cores']} cores of {hardware['cpu_model']},"
        f" load average {document['load_average'][0]:.1f} at the beginning, commit {commit[:12]}; for each cluster"
        f" {asked['launches']} × {asked['iterations']} timed merges (launches × iterations):"
    )
    rows = [row for target in document["targets"] for row in rows_of(target, asked["rate"])]
    headings = list(HEADINGS)
    if only_walls:
        what = HEADINGS.index("what")
        wall_rows = [row for row in rows if row[what].startswith("wall")]
        headings, *rows = [[*row[:what], *row[what + 1 :]] for row in (headings, *wall_rows)]
        headings[what] = "forecast (ms)"
    return "\n\n".join([made, command.table(headings, rows, text=()), ending(document)] if rows else [made])


def ending(document: Mapping[str, Any]) -> str:
    """Sentences about the walls: how many are inside their intervals, how far they are off, and the model's error."""
    walls, errors = _walls(document), log_errors(document)
    inside = walls_inside(document)
    others = sum(map(inside_with_error_of_others, document["targets"], _errors_of_others(errors)))
    return (
        f"{inside} of {len(walls)} walls are inside their intervals; the goal is {100 * document['goal']:g} %. With the"
        f" model's error from the other clusters alone {others} of {len(walls)} are. The root mean square of"
        f" ln(measured ÷ forecast) is {100 * _root_mean_square(errors):.1f} %; the largest error is"
        f" {100 * max(abs(wall['error']) for wall in walls):.1f} %. The spread between launches is"
        f" {100 * spread_of_launches(document):.1f} %."
    )


def _walls(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [compared for target in document["targets"] for compared in target["compared"][:1]]


def log_errors(document: Mapping[str, Any]) -> list[float]:
    """ln(measured ÷ forecast) of each target's wall."""
    return [math.log(wall["measured"] / wall["forecast"]) for wall in _walls(document)]


def walls_inside(document: Mapping[str, Any]) -> int:
    """How many walls are inside their intervals."""
    return sum(wall["interval"][0] <= wall["measured"] <= wall["interval"][1] for wall in _walls(document))


def spread_of_launches(document: Mapping[str, Any]) -> float:
    """The standard deviation of ln(wall of a launch), pooled over the targets; 0 with one launch of each."""
    logs = [[math.log(wall) for wall in target["launch_walls"]] for target in document["targets"]]
    squares = sum((value - sum(each) / len(each)) ** 2 for each in logs for value in each)
    degrees = sum(len(each) - 1 for each in logs)
    return math.sqrt(squares / degrees) if degrees else 0.0


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values)) if values else 0.0


def _errors_of_others(errors: Sequence[float]) -> list[float]:
    """For each target the model's error from the others: the root mean square of theirs."""
    return [_root_mean_square([*errors[:index], *errors[index + 1 :]]) for index in range(len(errors))]


def inside_with_error_of_others(target: Mapping[str, Any], error: float) -> bool:
    """Whether a target's wall is inside its interval, if that is made with this error of the model instead."""
    wall = target["compared"][0]
    end = wall["interval"][1] if wall["measured"] > wall["forecast"] else wall["interval"][0]
    square = math.log(end / wall["forecast"]) ** 2 + NORMAL_QUANTILE**2 * (error**2 - target["model_error"] ** 2)
    return abs(math.log(wall["measured"] / wall["forecast"])) <= math.sqrt(max(square, 0.0))


def _show(document: Mapping[str, Any]) -> int:
    """Print the table; the exit status."""
    try:
        text = table(document)
        missed = walls_inside(document) < document["goal"] * len(document["targets"])
        status = UNMEASURED if document["failures"] else MISSED if missed else 0
    except (KeyError, TypeError) as error:
        raise UsageError(f"the file contains no results of this command: {type(error).__name__}: {error}") from None
    click.echo(text)
    return status


def _named(target: Target) -> dict[str, Any]:
    return {"name": target.name, **asdict(target)}


if __name__ == "__main__":
    command.run(validate, "predict_validation")
