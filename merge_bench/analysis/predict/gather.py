"""Finds the runs and network measurements for a forecast in stored campaigns; refuses what cannot be modelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from merge_bench.analysis.aggregate import counted
from merge_bench.analysis.host_load import busy_host
from merge_bench.analysis.predict.parameters import Values
from merge_bench.analysis.predict.probed_links import links_of
from merge_bench.analysis.predict.samples import Measured, measured
from merge_bench.analysis.verification_state import State, state_of
from merge_bench.errors import UsageError, WrongResult
from merge_bench.merge.exchange import able, recorded_plane
from merge_bench.records.campaign import Campaign, Launch, Run

UNEVEN = 1.2
"""A worker that received more than this many times the mean of rows gets a note."""


@dataclass(frozen=True)
class Probed:
    """Parameters of links from network measurements: `values` of all launches together, and of `each` launch."""

    values: Values = field(default_factory=dict)
    each: tuple[Values, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class Measurements:
    """What a forecast is made from. `notes`: its weaknesses, as sentences."""

    runs: tuple[Measured, ...]
    probed: Probed
    engine: str
    config: str
    notes: tuple[str, ...]


def gather(campaigns: Sequence[Campaign], config: str | None) -> Measurements:
    """The runs of one config, and the network measurements.

    Raises
    ------
    UsageError
        If there is no run that a forecast can rest on, or several that do not belong together.
    WrongResult
        If a run's result was wrong.
    """
    for index, campaign in enumerate(campaigns):
        if any(campaign.records.samefile(other.records) for other in campaigns[:index]):
            raise UsageError(f"{campaign.folder} is named twice; name each result once")
    merges = [(campaign, run) for campaign in campaigns if not campaign.probe for run in campaign.runs]
    chosen = _of_config(merges, config)
    found: list[Measured] = []
    notes: list[str] = []
    for campaign, run in chosen:
        _refuse(campaign, run)
        name = campaign.folder.name
        one = measured(name, run)
        if one is None:
            raise UsageError(
                f"{campaign.folder} cannot be used for a forecast: it lacks phase times of some workers; name"
                " another RESULT"
            )
        if not one.shape.rows_per_chunk or not one.shape.row_bytes:
            raise UsageError(f"{campaign.folder} merged no rows, so nothing can be forecast from it")
        found.append(one)
        if one.uneven > UNEVEN:
            notes.append(
                f"In {name}, one worker received {one.uneven:.1f} times the mean number of rows. The model spreads "
                "rows evenly, so its forecasts are too fast for such skewed keys."
            )
        notes += [f"Warning: {name} was measured on a busy host: {each.message}." for each in busy_host(campaign)]
        state = state_of(run, counted(run))
        if state is State.WRONG:
            raise WrongResult(f"{campaign.folder}: the merge result was wrong, so nothing is forecast from it")
        if state is not State.VERIFIED:
            notes.append(f"{name} is not verified; its merge result may be wrong.")
    engine = _agreed("engine", [str(run.plan.engine) for _, run in chosen])
    _agreed("--pipeline", [str(one.shape.overlapped) for one in found if one.shape.workers > 1])
    used = chosen[0][1].config.name
    probed = _probed(campaigns, used, notes)
    return Measurements(tuple(found), probed, engine, used, tuple(dict.fromkeys(notes)))


def _of_config(merges: Sequence[tuple[Campaign, Run]], config: str | None) -> list[tuple[Campaign, Run]]:
    if not merges:
        raise UsageError("a forecast needs a measured merge, but got only network measurements; add a RESULT of `run`")
    names = list(dict.fromkeys(run.config.name for _, run in merges))
    if config is None and len(names) > 1:
        raise UsageError(
            f"the results were measured with several configs; choose one with --config: {', '.join(names)}"
        )
    chosen = [(campaign, run) for campaign, run in merges if config in (None, run.config.name)]
    if not chosen:
        raise UsageError(f"--config {config}: there are no results for this config, only for {', '.join(names)}")
    return chosen


def _refuse(campaign: Campaign, run: Run) -> None:
    """Refuse what the model does not describe."""
    folder = campaign.folder
    if run.imported:
        raise UsageError(
            f"{folder} cannot be used for a forecast: imported results have no phase times; use a RESULT of `run`"
        )
    if not recorded_plane(run.plan.exchange).by_workers:
        raise UsageError(
            f"{folder} cannot be used for a forecast: it was measured with --exchange {run.plan.exchange}; use a RESULT"
            f" of --exchange {able(lambda plane: plane.by_workers)}"
        )
    if run.plan.how not in (None, "inner"):
        raise UsageError(
            f"{folder} cannot be used for a forecast: it was measured with --how {run.plan.how}; use a RESULT of"
            " --how inner"
        )
    if run.plan.distribution == "broadcast":
        raise UsageError(
            f"{folder} cannot be used for a forecast: it was measured with a broadcast of the {run.plan.broadcast_side}"
            " table; use a RESULT of --distribution shuffle"
        )
    if run.plan.runtime_filter:
        raise UsageError(
            f"{folder} cannot be used for a forecast: it was measured with --runtime-filter on; use a RESULT of"
            " --runtime-filter off"
        )
    workload = run.plan.workload
    if workload and workload.zipf:
        raise UsageError(
            f"{folder} cannot be used for a forecast: it has skewed keys (zipf:{workload.zipf}); use a RESULT with"
            " --skew none"
        )


def _agreed(what: str, words: Sequence[str]) -> str:
    names = list(dict.fromkeys(words))
    if len(names) > 1:
        raise UsageError(f"the results differ in {what} ({', '.join(names)}); give only results with the same {what}")
    return names[0] if names else ""


def _probed(campaigns: Sequence[Campaign], config: str, notes: list[str]) -> Probed:
    """From network measurements under `config`; from all of them, if they were made under one other config."""
    by_config: dict[str, list[tuple[Campaign, Launch]]] = {}
    for campaign in campaigns:
        if campaign.probe and campaign.probe != "p2p":
            raise UsageError(
                f"{campaign.folder} cannot be used for a forecast: it contains results of `probe {campaign.probe}`;"
                " use results of `probe p2p`"
            )
        for launch in campaign.standing if campaign.probe else ():
            if launch.probes and launch.line is not None:
                by_config.setdefault(launch.line.config, []).append((campaign, launch))
    if not by_config:
        return Probed()
    names = ", ".join(by_config)
    if config not in by_config and len(by_config) > 1:
        raise UsageError(
            f"the merges use {config}, but the network was measured with {names}; add a RESULT of `probe p2p` with"
            f" {config}"
        )
    if config not in by_config:
        notes.append(f"The network was measured with {names}, but the merges with {config}; their settings may differ.")
    chosen = by_config.get(config) or next(iter(by_config.values()))
    values = links_of([line for _, launch in chosen for line in launch.probes])
    each = [links_of(launch.probes) for _, launch in chosen]
    whole = [found for found in each if found.keys() == values.keys()]
    origin = ", ".join(dict.fromkeys(campaign.folder.name for campaign, _ in chosen))
    return Probed(values, tuple(whole) or (values,), origin) if values else Probed()
