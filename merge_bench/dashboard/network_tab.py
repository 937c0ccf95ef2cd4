"""The Network tab: network measurements by message size, of several campaigns and published datasets together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import panel as pn

from merge_bench.analysis import published
from merge_bench.dashboard import components as ui
from merge_bench.dashboard.background import LastResult
from merge_bench.errors import MergeBenchError
from merge_bench.probe.shared import placement_text
from merge_bench.probe.shared.stored_rows import row_quantity, rows_with_campaigns
from merge_bench.probe.view.charts import make_panels_of_results, row_value_range
from merge_bench.records.campaign import Campaign
from merge_bench.records.probe_rows import ProbeRow
from merge_bench.records.results_folder import ResultEntry
from merge_bench.report.campaign_figures import CampaignCache, LoadedCampaign
from merge_bench.view.plot import Chart
from merge_bench.view.titles import campaign_choices

MOST_ROWS = 20_000
NOTHING = ui.empty_state_html("network measurement", "probe p2p")
UNCHOSEN = '<p class="soft">No campaign is selected, or the selected ones contain no measurements.</p>'
_MOST_LISTED = 200
_WIDTHS = {"Config": 100, "Message size (B)": 105, "Launches": 110, "What": 180, "Protocol": 220, "Test": 80}
_WIDTHS |= {"Placement": 120, "Lanes": 120, "Median": 90, "From": 90, "Least": 85, "Most": 85}


@dataclass(frozen=True)
class NetworkContent:
    """What the Network tab shows: charts, the table of measured rows, and sentences on what is missing."""

    charts: tuple[Chart, ...] = ()
    frame: pd.DataFrame | None = None
    problems: tuple[str, ...] = ()


def make_network_content(loaded: Sequence[LoadedCampaign], datasets: Sequence[str]) -> NetworkContent:
    """Make the charts and table of network measurements in `loaded` campaigns and published `datasets`."""
    problems = [one.problem for one in loaded if one.problem]
    campaigns = [one.campaign for one in loaded if one.campaign is not None]
    measured: list[tuple[Campaign, ProbeRow]] = []
    try:
        measured += rows_with_campaigns(campaigns)
    except MergeBenchError as reason:
        problems.append(str(reason))
    others = [row for name in datasets for row in published.network_rows(name)]
    total = len(measured) + len(others)
    if total > MOST_ROWS:
        problems.append(f"Only the first {MOST_ROWS:,} of {total:,} rows are shown.")
        measured = measured[:MOST_ROWS]
        others = others[: MOST_ROWS - len(measured)]
    rows = [*(row for _, row in measured), *others]
    return NetworkContent(make_panels_of_results(measured, others), _rows_data_frame(rows), tuple(problems))


def _rows_data_frame(rows: Sequence[ProbeRow]) -> pd.DataFrame:
    """Make the table of network measurements, a row for each of `rows`."""
    values = [(row_quantity(row), row_value_range(row)) for row in rows]  # as the charts show them
    columns: dict[str, list[Any]] = {
        "Config": [row.config for row in rows],
        "Test": [row.test for row in rows],
        "Placement": [placement_text(row.placement) for row in rows],
        "Message size (B)": [row.size for row in rows],
        "What": [f"{measure.title} ({measure.unit})" for measure, _ in values],
        "Median": [value.median if value else None for _, value in values],
        "Least": [value.low if value else None for _, value in values],
        "Most": [value.high if value else None for _, value in values],
        "Lanes": [", ".join(row.selected) for row in rows],
        "Protocol": [row.protocol or "" for row in rows],
        "Launches": [row.launches for row in rows],
        "From": [row.source or "measured" for row in rows],
    }
    return ui.make_data_frame(columns, numbers=("Median", "Least", "Most"), whole=("Message size (B)", "Launches"))


class NetworkView:
    """The Network tab. At first it shows the newest measurement; published ones only if they are chosen."""

    def __init__(self, entries: Callable[[], Sequence[ResultEntry]], cache: CampaignCache) -> None:
        self._entries = entries
        self._contents = LastResult(
            lambda chosen, datasets: make_network_content(cache.load(chosen), datasets),
            lambda problem: NetworkContent(problems=(problem,)),
        )
        self._shown: NetworkContent | None = None
        self._empty = ""
        self._begun = False
        self.datasets = ui.make_dataset_select("Published", published.NETWORK, width=700)
        self.choice = ui.make_multi_select("Measurements (times in UTC)", {}, size=self.datasets.size, width=600)
        self._problems = ui.html_text()
        self.parts = pn.Column(sizing_mode=ui.WIDE, min_height=300, margin=0)
        self.layout = pn.Column(
            ui.make_row(self.choice, self.datasets), self._problems, self.parts, sizing_mode=ui.WIDE
        )

    def read_update(self) -> tuple[Sequence[ResultEntry], NetworkContent]:
        """Return the campaigns to choose from, and the content of the chosen ones (in a thread)."""
        entries = tuple(entry for entry in self._entries() if entry.probe is not None)[:_MOST_LISTED]
        chosen = tuple(entry for entry in entries if entry.id in self.choice.value)
        return entries, self._contents(chosen, tuple(self.datasets.value))

    def show_update(self, update: tuple[Sequence[ResultEntry], NetworkContent]) -> None:
        """Show what `read_update` returned, under the document's lock."""
        entries, content = update
        options = campaign_choices(entries)
        if options != self.choice.options:
            kept = [value for value in self.choice.value if value in options.values()]
            self.choice.param.update(options=options, value=kept)
        if options and not self._begun:
            self._begun = True
            if not self.choice.value and not self.datasets.value:
                self.choice.value = [next(iter(options.values()))]
        empty = "" if content.charts else UNCHOSEN if options else NOTHING
        if content is not self._shown or empty != self._empty:
            self._shown, self._empty = content, empty
            self._problems.value = ui.problems_html(content.problems)
            self.parts.objects = [ui.html_text(empty)] if empty else _make_widgets(content)


def _make_widgets(content: NetworkContent) -> list[Any]:
    """Make the cards of the charts, and the table."""
    parts: list[Any] = [ui.make_card_row(*map(ui.make_chart_card, content.charts))]
    if content.frame is not None and len(content.frame):
        parts.append(
            ui.make_table(content.frame, widths=_WIDTHS, terms={"From": "Published"}, pagination="local", page_size=10)
        )
    return parts
