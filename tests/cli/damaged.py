"""Every command that shows stored results, called in this process on one result."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from merge_bench.analysis.summary import summarize_campaign
from merge_bench.cli import cli
from merge_bench.dashboard import live_data, network_tab, results_tab, tuning_tab
from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.report.campaign_figures import CampaignCache
from merge_bench.report.run import print_campaign_report
from merge_bench.view.streams import encode_document

COMMANDS = {
    "report": lambda folder, whole: ["report", folder],
    "compare": lambda folder, whole: ["compare", folder, "--anyway"],
    "compare two": lambda folder, whole: ["compare", whole, folder, "--anyway"],
    "results": lambda folder, whole: ["results", "--results", folder.parent],
    "history": lambda folder, whole: ["history", folder.parent, "--details"],
    "show": lambda folder, whole: ["show", folder, "--details"],
    "show json": lambda folder, whole: ["show", folder, "--json"],
    "predict": lambda folder, whole: ["predict", folder, "--workers", "4"],
    "export csv": lambda folder, whole: ["export", folder],
    "export prometheus": lambda folder, whole: ["export", folder, "--format", "prometheus"],
    "export bencher": lambda folder, whole: ["export", folder, "--format", "bencher"],
    "export parquet": lambda folder, whole: ["export", folder, "--format", "parquet", "--output", folder / "x.parquet"],
    "export trace": lambda folder, whole: ["export", folder, "--format", "trace"],
    "probe show": lambda folder, whole: ["probe", "show", folder],
    "import": lambda folder, whole: ["import", folder / "records.jsonl", "--results", folder.parent],
}


def words_of(command: str) -> Callable[[Path, Path], int]:
    """What calls the command on a `folder` of damaged records (`whole`: the same undamaged), and gives its status."""
    if command == "dashboard":
        return _dashboard
    if command == "run":
        return _summary

    def call(folder: Path, whole: Path) -> int:
        words = [str(word) for word in COMMANDS[command](folder, whole)]
        done = CliRunner().invoke(cli, words, standalone_mode=False)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code

    return call


def _dashboard(folder: Path, whole: Path) -> int:
    """The data of the dashboard's tabs, without a page."""
    index = ResultsFolder(folder.parent)
    entries, cache = index.entries(), CampaignCache()
    loaded = cache.load(entries)
    results_tab.campaigns_data_frame(entries, cache.cached_figures)
    results_tab.make_results_content(loaded, metric="Throughput", axis_unit=results_tab.ABSOLUTE, dataset_names=())
    results_tab.make_results_content(loaded, metric="Bandwidth", axis_unit=results_tab.OF_LINK, dataset_names=())
    network_tab.make_network_content(loaded, ())
    for each in loaded:
        tuning_tab.make_tuning_content(each)
        if each.campaign is not None:
            live_data.make_live_campaign_state(each.campaign, running=False)
            live_data.make_live_campaign_state(each.campaign, running=True)
    return 2 if any(each.problem for each in loaded) else 0


def _summary(folder: Path, whole: Path) -> int:
    """The report of `run` and its document, as they are shown for a stored result."""
    try:
        campaign = read_campaign(folder)
    except UsageError:
        return 2
    document = summarize_campaign(campaign)
    encode_document(document)
    if campaign.probe is None:
        print_campaign_report(campaign, document, details=True, file=io.StringIO())
    return 0
