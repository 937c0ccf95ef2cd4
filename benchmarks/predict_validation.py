"""Compares forecasts of `predict` with merges on clusters that it was not fitted on: test hosts with known link rates.

    python -m benchmarks.predict_validation --output results/curated/predict-cpu-2026-11/predict.json
    python -m benchmarks.predict_validation --only 4x1,4x1@0.5           # some clusters
    python -m benchmarks.predict_validation --show FILE.json             # a stored result again

The model is fitted on two hosts. Its forecasts for 2, 4 and 8 hosts, for slower and faster links, for links that differ
and for phases at once are compared with measurements made afterwards. All hosts share this machine's processors, which
the model does not know, so links have to be slow enough to decide: rows are long (64 B), and all of them together are
far below half of what two cores move (0.2 GB/s each way at most). Needs root, and a machine with nothing else to do:
about 8 minutes there. `docs/measurements.md` has the result. Exit status: 0 measured; 2 wrong usage; 3 something could
not be measured, or it was interrupted; 5 a forecast of the wall is more than --goal off.
"""

from __future__ import annotations

import itertools
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
from merge_bench.errors import MergeBenchError, RunFailed, UsageError
from merge_bench.forecast.document import predict
from merge_bench.records.campaign import Campaign

SCHEMA = 1
OFF, UNMEASURED = 5, 3
HEADINGS = ("hosts", "workers per host", "Mbit/s", "phases", "what", "forecast", "interval", "measured", "error %")


@dataclass(frozen=True)
class Target:
    """A cluster: hosts, workers of each, its hosts' rates in turn as multiples of the one that was fitted on.

    `at_once`: whether it merges with `--pipeline on`.
    """

    hosts: int
    per_host: int = 1
    rates: tuple[float, ...] = (1.0,)
    at_once: bool = False

    @property
    def name(self) -> str:
        """Like ``4x2@0.5``."""
        rates = "/".join(f"{rate:g}" for rate in self.rates)
        return f"{self.hosts}x{self.per_host}" + f"@{rates}" * (rates != "1") + "+pipeline" * self.at_once

    @property
    def what_if(self) -> list[str]:
        """`predict --what-if` for its links: the slowest one decides, as each worker sends to all others."""
        slowest = min(self.rates)
        return [] if slowest == 1 else [f"nic={slowest:g}x"]


FITTED = {False: (Target(2), Target(2, 2)), True: (Target(2, at_once=True),)}
TARGETS = (
    Target(2, rates=(0.5,)),
    Target(4),
    Target(4, rates=(0.5,)),
    Target(4, 2),
    Target(4, rates=(1.0, 1.0, 0.5, 1.0)),
    Target(4, rates=(2.0, 1.0, 0.5, 1.0)),
    Target(4, at_once=True),
    Target(8),
    Target(8, rates=(2.0,)),
)


@click.command(context_settings=command.CONTEXT)
@command.option("--rate", click.FloatRange(1), 100.0, "Rate of each link in Mbit/s, each way.")
@command.option("--chunk", command.ROWS, "250e3", "Rows per chunk.")
@command.option("--launches", click.IntRange(1), 2, "Number of launches of each cluster.")
@command.option("--iterations", click.IntRange(1), 4, "Number of timed merges per launch.")
@command.option(
    "--only", command.NAMES, None, f"Only these clusters, from {', '.join(each.name for each in TARGETS)}. [all]"
)
@command.option("--goal", float, 15.0, "Largest accepted error of a wall-clock forecast in percent.")
@command.OUTPUT
@command.SHOW
@command.time_limit(300)
def validate(
    rate: float,
    chunk: int,
    launches: int,
    iterations: int,
    only: list[str] | None,
    goal: float,
    output: Path | None,
    show: Path | None,
    time_limit: float,
) -> None:
    """Compare forecasts with merges on test hosts that the model was not fitted on."""
    if show is not None:
        sys.exit(_show(command.read(show)))
    targets = chosen(only)
    need_hosts()
    asked = {"rate": rate, "chunk": chunk, "launches": launches, "iterations": iterations}
    document = command.head(SCHEMA, asked=asked, goal=goal / 100, fitted=[], targets=[], failures=[])
    with scratch(time_limit) as bench:
        if command.until_interrupted(lambda: _measure_all(bench, targets, document, output)):
            document["failures"].append({"target": None, "message": "interrupted"})
            command.write(output, document)
    sys.exit(_show(document))


def chosen(names: Sequence[str] | None) -> tuple[Target, ...]:
    """The clusters of these names, or all.

    Raises
    ------
    UsageError
        If there is none of a name.
    """
    wanted = command.chosen(names, [target.name for target in TARGETS])
    return tuple(target for target in TARGETS if target.name in wanted)


def _measure_all(bench: Bench, targets: Sequence[Target], document: dict[str, Any], output: Path | None) -> None:
    """Fit, then forecast and measure every target; what is found goes into `document`, and to `output` at once."""
    fits: dict[bool, list[Campaign]] = {}
    asked = document["asked"]
    for target in targets:
        try:
            if target.at_once not in fits:
                used = FITTED[target.at_once]
                fits[target.at_once] = [measure(bench, each, asked).campaign for each in used]
                document["fitted"] += [_named(each) for each in used]
            found = predict(
                fits[target.at_once],
                workers=target.hosts * target.per_host,
                hosts=target.hosts,
                config="ethernet",
                what_if=target.what_if,
            )
            forecast = to_builtins(found.forecast)
            compared = compare(forecast, measure(bench, target, asked).document, at_once=target.at_once)
            document["targets"].append({**_named(target), "limit": forecast["limit"], "compared": compared})
            for row in rows_of(document["targets"][-1], asked["rate"]):
                command.say(" | ".join(row))
        except MergeBenchError as error:
            document["failures"].append({"target": target.name, "message": str(error)})
            command.say(f"predict_validation: {target.name}: {error}")
        command.write(output, document)


def measure(bench: Bench, target: Target, asked: Mapping[str, Any]) -> Ran:
    """A campaign on hosts of its own; `asked`: Mbit/s of a link, rows of a chunk, launches, iterations of each."""
    from tests.hosts.make_hosts import Hosts

    with Hosts(target.hosts, None) as hosts:
        for host, rate in zip(hosts.hosts, itertools.cycle(target.rates)):
            hosts.shape(host, f"{round(asked['rate'] * rate * 1e6)}bit")
        hosts.write_hosts([f"{host.name} slots={target.per_host}" for host in hosts.hosts])
        ran = bench.merge(
            config="ethernet.cfg",
            fresh=True,
            workers=target.hosts * target.per_host,
            chunk=asked["chunk"],
            payload_columns=7,
            launches=asked["launches"],
            iterations=asked["iterations"],
            timeout=60,
            start_timeout=180,
            pipeline="on" if target.at_once else "off",
            link_rounds=None if target.at_once else 0,  # with phases at once links are fitted on these rounds
            hosts=hosts,
        )
    if len(ran.campaign.launches_not_replaced) != asked["launches"]:
        raise RunFailed(
            f"{target.name}: {len(ran.campaign.launches_not_replaced)} of {asked['launches']} launches succeeded"
        )
    return ran


def compare(forecast: Mapping[str, Any], measured: Mapping[str, Any], *, at_once: bool) -> list[dict[str, Any]]:
    """Wall, exchange and bandwidth, in seconds and bytes per second: forecast, its interval, measured, relative error.

    The exchange does not depend on processors that hosts share here, and would not share elsewhere. With phases at once
    it ends with the slowest computing, and a frame's bandwidth is not that of its links: only the wall is compared.
    """
    found = [("wall_seconds", forecast["wall_seconds"], measured["wall_seconds"]["median"])]
    if not at_once:
        exchange = {"value": forecast["phases_seconds"]["exchange"], "interval": None}
        bandwidth = measured["bandwidth_bytes_per_second"]["harmonic_mean"]
        found += [
            ("exchange_seconds", exchange, measured["phases_seconds"]["exchange"]),
            ("bandwidth_bytes_per_second", forecast["bandwidth_bytes_per_second"], bandwidth),
        ]
    return [
        {
            "what": what,
            "forecast": one["value"],
            "interval": one["interval"],
            "measured": true,
            "error": one["value"] / true - 1,
        }
        for what, one, true in found
    ]


def rows_of(found: Mapping[str, Any], rate: float) -> list[list[str]]:
    """A target's rows of the table; `rate` that was fitted on, in Mbit/s."""
    shown = {
        "wall_seconds": ("wall (ms)", 1e3),
        "exchange_seconds": ("exchange (ms)", 1e3),
        "bandwidth_bytes_per_second": ("bandwidth (MB/s)", 1e-6),
    }
    rates = " / ".join(f"{rate * each:g}" for each in found["rates"])
    head = [str(found["hosts"]), str(found["per_host"]), rates, "at once" if found["at_once"] else "apart"]
    rows = []
    for each in found["compared"]:
        what, factor = shown[each["what"]]
        between = " to ".join(f"{value * factor:.4g}" for value in each["interval"] or ()) or "-"
        values = [f"{each['forecast'] * factor:.4g}", between, f"{each['measured'] * factor:.4g}"]
        rows.append([*head, what, *values, f"{100 * each['error']:+.1f}"])
    return rows


def table(document: Mapping[str, Any]) -> str:
    """How it was measured, all targets' rows in Markdown, and a sentence about the worst."""
    asked, hardware = document["asked"], document["hardware"]
    commit = (document["git"] or {}).get("commit") or "unknown"
    day = time.strftime("%Y-%m-%d", time.gmtime(document["time"]))
    made = (
        f"{day}, {hardware['cores']} cores of {hardware['cpu_model']},"
        f" load average {document['load_average'][0]:.1f} at the beginning, commit {commit[:12]}; for each cluster"
        f" {asked['launches']} × {asked['iterations']} timed merges (launches × iterations):"
    )
    rows = [row for found in document["targets"] for row in rows_of(found, asked["rate"])]
    ending = f"The wall is off by at most {100 * worst(document):.1f} %; the goal is {100 * document['goal']:g} %."
    return "\n\n".join([made, command.table(HEADINGS, rows, text=()), ending] if rows else [made])


def worst(document: Mapping[str, Any]) -> float:
    """The largest relative error of a wall, without its sign."""
    compared = (each for found in document["targets"] for each in found["compared"])
    return max((abs(each["error"]) for each in compared if each["what"] == "wall_seconds"), default=0.0)


def _show(document: Mapping[str, Any]) -> int:
    """Print the table; the exit status."""
    try:
        text = table(document)
        status = UNMEASURED if document["failures"] else OFF if worst(document) > document["goal"] else 0
    except (KeyError, TypeError) as error:
        raise UsageError(f"the file contains no results of this command: {type(error).__name__}: {error}") from None
    click.echo(text)
    return status


def _named(target: Target) -> dict[str, Any]:
    return {"name": target.name, **asdict(target)}


if __name__ == "__main__":
    command.run(validate, "predict_validation")
