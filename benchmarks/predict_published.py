"""Forecasts some published merges of 2022 from others: the model applied to 16 V100 and 16 A100.

    python -m benchmarks.predict_published

Computes only, within a second. The report prints bandwidth and throughput, from which exchange and all else follow:
exchange = bytes that a worker sends ÷ bandwidth; else = data ÷ throughput - exchange. `docs/predict.md` has what
follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks import command
from merge_bench.analysis.published import merge_results
from merge_bench.forecast.fit import fit_model_parameters
from merge_bench.forecast.gather import IterationSample, LinkTransfer, MeasuredRun, MergeShape
from merge_bench.forecast.model import GPUS, MergeScenario, forecast_merge

WORKERS, ROW_BYTES, FRAMES = 16, 16, 2
CLUSTERS = {"gadi-v100": (4, "v100"), "gadi-dgx-a100": (2, "a100-40gb")}
"""Hosts, and the GPU whose memory bandwidth is taken: the report does not say which A100 these are."""
SMALL, LARGE = 1_000_000, 25_000_000


@dataclass(frozen=True)
class Cell:
    """One published run: seconds of an iteration, of a typical worker's exchange, and of all else."""

    cluster: str
    config: str
    rows: int
    wall: float
    exchange: float

    @property
    def rest(self) -> float:
        """Partition, join, and waiting."""
        return self.wall - self.exchange

    @property
    def name(self) -> str:
        """The run's name in the tables."""
        return f"{'16 V100' if self.cluster == 'gadi-v100' else '16 A100'}, {self.config}"


def cells() -> list[Cell]:
    """The published runs whose bandwidth and throughput are both valid."""
    found = []
    for cluster in CLUSTERS:
        values = {(one.config, one.rows_per_chunk, one.metric): one.value for one in merge_results(cluster)}
        for config, rows in dict.fromkeys((config, rows) for config, rows, _ in values):
            bandwidth, throughput = (values[config, rows, metric] for metric in ("bandwidth", "throughput"))
            if bandwidth and throughput:
                chunks = FRAMES * rows * ROW_BYTES
                sent = chunks * (WORKERS - 1) / WORKERS
                found.append(Cell(cluster, config, rows, chunks * WORKERS / throughput, sent / bandwidth))
    return found


def measured(cell: Cell) -> MeasuredRun:
    """The run as the fit takes it: all that is no exchange counts as join."""
    hosts, _ = CLUSTERS[cell.cluster]
    each = WORKERS // hosts
    message = cell.rows * ROW_BYTES / WORKERS
    nic = LinkTransfer(FRAMES * each * (WORKERS - each) * message, FRAMES * (WORKERS - each), cell.exchange)
    sample = IterationSample(wall=cell.wall, partition=0.0, join=cell.rest, rows=FRAMES * cell.rows, nic=nic)
    return MeasuredRun(MergeShape(cell.name, (each,) * hosts, cell.rows, ROW_BYTES), ((sample,),))


def other_sizes(found: Sequence[Cell]) -> Iterator[tuple[str, int, int, float, float]]:
    """Of each run: name, rows fitted on, rows forecast for, wall forecast from the other size, wall measured."""
    for cell, other in itertools.permutations(found, 2):
        if (cell.cluster, cell.config) == (other.cluster, other.config):
            yield cell.name, other.rows, cell.rows, _forecast(other, cell.rows), cell.wall


def other_gpus(found: Sequence[Cell]) -> Iterator[tuple[str, float, float, float]]:
    """Of each A100 run of LARGE chunks, with its own exchange: what 16 V100 forecast, and what they do with waiting.

    The first takes all that is no exchange for computing, scaled by the memories' bandwidths. The second fits
    else = computing + k · exchange on both V100 configs, and scales the computing alone.
    """
    large = {(cell.cluster, cell.config): cell for cell in found if cell.rows == LARGE}
    default, tuned = large["gadi-v100", "default"], large["gadi-v100", "optimized"]
    scale = GPUS[CLUSTERS["gadi-v100"][1]].bandwidth / GPUS[CLUSTERS["gadi-dgx-a100"][1]].bandwidth
    k, computing = waiting(default, tuned)
    for (cluster, config), cell in large.items():
        if cluster == "gadi-dgx-a100":
            naive = tuned.rest * scale + cell.exchange
            yield f"16 A100, {config}", naive, computing * scale + (1 + k) * cell.exchange, cell.wall


def waiting(one: Cell, other: Cell) -> tuple[float, float]:
    """k and computing of else = computing + k · exchange, through two runs that compute the same."""
    k = (one.rest - other.rest) / (one.exchange - other.exchange)
    return k, one.rest - k * one.exchange


def _forecast(fitted_on: Cell, rows: int) -> float:
    """The model's wall; transfers within a host are taken to be hidden behind those between hosts."""
    values = {"local_rate": float("inf"), **fit_model_parameters([measured(fitted_on)], {})}
    return forecast_merge(MergeScenario(WORKERS, CLUSTERS[fitted_on.cluster][0], rows, ROW_BYTES), values).wall


def tables() -> str:
    """All of it, in Markdown."""
    found = cells()
    sizes = [
        (name, f"{fitted:.3g}", f"{wanted:.3g}", _ms(forecast), _ms(true), _off(forecast, true))
        for name, fitted, wanted, forecast, true in other_sizes(found)
    ]
    gpus = [
        (name, _ms(naive), _off(naive, true), _ms(explained), _off(explained, true), _ms(true))
        for name, naive, explained, true in other_gpus(found)
    ]
    fits = []
    for cluster, rows in itertools.product(CLUSTERS, (SMALL, LARGE)):
        of = {cell.config: cell for cell in found if (cell.cluster, cell.rows) == (cluster, rows)}
        k, computing = waiting(of["default"], of["optimized"])
        fits.append((of["default"].name.partition(",")[0], f"{rows:.3g}", f"{k:.2f}", _ms(computing)))
    made = (
        (("run", "fitted on (rows)", "forecast for", "forecast ms", "published ms", "error %"), sizes),
        (("run", "scaled: forecast ms", "error %", "with waiting: forecast ms", "error %", "published ms"), gpus),
        (("cluster", "rows", "k", "computing ms"), fits),
    )
    return "\n\n".join(command.table(*each) for each in made)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def _off(forecast: float, true: float) -> str:
    return f"{100 * (forecast / true - 1):+.1f}"


if __name__ == "__main__":
    print(tables())
