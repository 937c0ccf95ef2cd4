"""The public Python functions: load, data frames, drawings, comparisons; `tests/runs/test_existing.py` tests `run`."""

from __future__ import annotations

import doctest
import importlib
import keyword
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, get_args

import matplotlib.figure
import pandas
import polars
import pytest
from bokeh.plotting import figure as bokeh_figure

import merge_bench
from merge_bench import api
from merge_bench.config.option import format_command_line, options_from_python
from merge_bench.config.options import OPTIONS, RunOptions
from merge_bench.errors import GateNotMet, RunFailed, UsageError, WrongResult
from merge_bench.merge.exchange.base import FrameTransfer
from merge_bench.testing import QueueExchange, fake_cluster
from tests.helpers.synthetic_campaigns import Script, interleaved, plan, write_campaign
from tests.helpers.timelines import add_timeline, timeline
from tests.probe.samples import write_campaign as write_probe

BASE = [0.10, 0.11, 0.12, 0.13, 0.14, 0.15]
DATA = 64e6


@pytest.fixture
def result(tmp_path: Path) -> merge_bench.Result:
    """Two configs in six blocks, three iterations each."""
    scripts = interleaved({"default": BASE, "tcp": [2 * wall for wall in BASE]})
    return merge_bench.load(write_campaign(tmp_path, *scripts))


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "numpy|click|msgspec|polars|bokeh|distributed"
    code = f"import merge_bench, sys, re; print([m for m in sys.modules if re.fullmatch({heavy!r}, m)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_public_names_are_functions_whatever_modules_are_loaded() -> None:
    for module in ("cli.run", "campaign.run_campaign", "analysis.compare"):
        importlib.import_module(f"merge_bench.{module}")
    public = (merge_bench.compare, merge_bench.load, merge_bench.run, merge_bench.Result)
    assert [type(each).__name__ for each in public] == ["function", "function", "function", "type"]
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        merge_bench.walk  # noqa: B018


def test_a_result_has_the_document_of_run_json(result: merge_bench.Result) -> None:
    assert [one["config"]["name"] for one in result.document["runs"]] == ["default", "tcp"]
    assert result.verified
    assert result.status == 0
    assert (result.folder / "records.jsonl").is_file()


def test_a_result_is_shown_in_a_few_lines(tmp_path: Path, result: merge_bench.Result) -> None:
    head, default, tcp, folder = repr(result).splitlines()
    assert head == f"Result {result.folder.name} (successful)"
    assert default == "default: 2 workers, 1,000,000 rows per chunk, verified, 489.06 MiB/s"
    assert tcp.startswith("tcp: ")
    assert folder == str(result.folder)
    cut = merge_bench.load(write_campaign(tmp_path, Script(plan=plan(verify="off")), end=None))
    assert "not finished" in repr(cut)
    assert "UNVERIFIED" in repr(cut)
    sweep = interleaved({str(number): BASE[:1] for number in range(5)})
    assert repr(merge_bench.load(write_campaign(tmp_path, *sweep))).splitlines()[4] == "and 2 more runs"
    rows = repr(merge_bench.load(write_probe(tmp_path))).splitlines()
    assert rows[1].startswith("probe ")
    assert len(rows) == 3


def test_an_unverified_result_says_so(tmp_path: Path) -> None:
    assert not merge_bench.load(write_campaign(tmp_path, Script(plan=plan(verify="off")))).verified


def test_iterations_are_tidy(result: merge_bench.Result) -> None:
    frame = result.iterations()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 2 * 6 * 3
    first = frame.iloc[0]
    assert (first.config, first.plan, first.launch, first.block, first.iteration) == ("default", 0, 0, 0, 0)
    assert first.wall_seconds == pytest.approx(0.099)
    assert first.throughput == pytest.approx(DATA / 0.099)
    assert frame.groupby("config").wall_seconds.median().to_dict() == pytest.approx(
        {"default": 0.125, "tcp": 0.25}, rel=0.03
    )


def test_launches_are_what_statistics_are_made_of(result: merge_bench.Result) -> None:
    frame = result.launches("polars")
    assert isinstance(frame, polars.DataFrame)
    tcp = frame.filter(polars.col("config") == "tcp")
    assert tcp["wall_seconds"].to_list() == pytest.approx([2 * wall for wall in BASE])
    assert tcp["block"].to_list() == list(range(6))
    assert frame["complete"].all()
    assert frame["link_limit"][0] == pytest.approx(12e6 / 0.025)
    assert frame["peak_memory_bytes"][0] == 200_000_001


def test_workers_and_pairs_have_bytes_and_rates(result: merge_bench.Result) -> None:
    workers = result.workers()
    assert len(workers) == 2 * 6 * 3 * 2
    assert workers.iloc[1][["rank", "host", "sent_left_bytes", "bandwidth_left"]].tolist() == [
        1,
        "node0",
        8_000_000,
        4e8,
    ]
    pairs = result.pairs()
    assert len(pairs) == 2 * 6 * 2
    row = pairs.iloc[0]
    assert (row.from_rank, row.to_rank, row.bytes, row.transports) == (0, 1, 12_000_000, "sysv/memory,tcp/lo")
    assert row.rate == pytest.approx(4e8)


def test_names_of_columns_are_identifiers(tmp_path: Path, result: merge_bench.Result) -> None:
    frames = [result.iterations(), result.launches(), result.workers(), result.pairs()]
    frames += [merge_bench.load(write_probe(tmp_path)).probes(), merge_bench.history(result.folder.parent)]
    for frame in frames:
        assert len(frame) > 0
        assert [name for name in frame.columns if not name.isidentifier() or keyword.iskeyword(name)] == []


def test_the_package_lists_what_it_offers() -> None:
    assert {"run", "load", "compare", "history", "predict", "published", "Result"} <= {*dir(merge_bench)}
    assert all(hasattr(merge_bench, name) for name in dir(merge_bench))


def test_a_plot_of_one_run_says_which_it_drew(result: merge_bench.Result) -> None:
    for which, config in enumerate(("default", "tcp")):
        for kind in ("phases", "workers"):
            assert result.plot(kind, which).title.text.endswith(f": {config}")


def test_failed_launches_stay_in_the_frames_and_are_marked(tmp_path: Path) -> None:
    scripts = [Script(), Script(index=1, end_status=3)]
    frame = merge_bench.load(write_campaign(tmp_path, *scripts)).iterations()
    assert frame.groupby("launch").complete.all().to_dict() == {0: True, 1: False}


def test_rows_of_probes(tmp_path: Path) -> None:
    frame = merge_bench.load(write_probe(tmp_path)).probes()
    assert frame[["config", "test", "size"]].values.tolist() == [["tuned", "tag_lat", 8], ["default", "tag_lat", 8]]
    assert frame.seconds.tolist() == pytest.approx([1e-6, 2e-6])


def test_what_was_not_measured_is_missing_not_0(tmp_path: Path) -> None:
    result = merge_bench.load(write_campaign(tmp_path, Script(plan=plan(exchange="dask"))))
    assert result.iterations().bandwidth.isna().all()
    assert len(result.workers()) == len(result.pairs()) == 0


@pytest.mark.parametrize("kind", [kind for kind in get_args(api.Kind) if kind not in ("network", "tuning")])
def test_every_kind_of_drawing_in_both_libraries(tmp_path: Path, kind: Any) -> None:
    scripts = interleaved({"default": BASE, "tcp": [2 * wall for wall in BASE]})
    folder = write_campaign(tmp_path, *(replace(one, plan=plan(4)) for one in scripts))
    for launch in range(len(scripts)):
        add_timeline(folder, timeline(["node0"] * 4, {"node0": 7.0}, launch=launch))
    result = merge_bench.load(folder)
    assert isinstance(result.plot(kind), bokeh_figure)
    assert isinstance(result.plot(kind, backend="matplotlib"), matplotlib.figure.Figure)


def test_pairs_of_few_workers_are_no_picture(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"at least 4 workers; Result\.pairs\(\)"):
        merge_bench.load(write_campaign(tmp_path)).plot("pairs")


def test_network_measurements_can_be_drawn(tmp_path: Path) -> None:
    assert isinstance(merge_bench.load(write_probe(tmp_path)).plot("network"), bokeh_figure)


def test_what_cannot_be_drawn_is_a_sentence(result: merge_bench.Result) -> None:
    wrong: Any = "pie"
    with pytest.raises(UsageError, match="there is no plot 'pie'; choose from throughput, "):
        result.plot(wrong)
    with pytest.raises(UsageError, match=r"has no 'workers' plot 2; choose from 0 to 1"):
        result.plot("workers", 2)
    with pytest.raises(UsageError, match="has no data for a plot of kind 'tuning'"):
        result.plot("tuning")
    with pytest.raises(UsageError, match="backend='ascii' is neither"):
        result.plot("workers", backend=wrong.replace("pie", "ascii"))
    with pytest.raises(UsageError, match="frame='pie' is neither"):
        result.iterations(wrong)


def test_results_are_compared_by_folder_or_as_they_are(result: merge_bench.Result, tmp_path: Path) -> None:
    (throughput, *_) = merge_bench.compare(result)["comparisons"]
    assert (throughput["candidate"], throughput["verdict"], throughput["ratio"]) == (
        "tcp",
        "SLOWER",
        pytest.approx(0.5),
    )
    other = write_campaign(tmp_path / "other", *interleaved({"default": BASE}))
    both = merge_bench.compare(result.folder, str(other), threshold=0.5)
    assert both["threshold"] == 0.5
    assert [each["path"] for each in both["results"]] == [str(result.folder), str(other)]
    with pytest.raises(UsageError, match="name at least one result"):
        merge_bench.compare()


def test_a_report_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    result = merge_bench.load(write_campaign(tmp_path))
    assert result.write_report() == result.folder / "report.html"
    assert result.write_report(tmp_path / "x.html").read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(UsageError, match="never overwritten"):
        result.write_report(result.folder / "records.jsonl")


def test_options_are_data_and_have_a_command_line() -> None:
    given = {
        "chunk": [1e6, 25_000_000],
        "workers": 2,
        "config": Path("tcp.cfg"),
        "fresh": True,
        "check_link": False,
        "skew": "zipf:1.2",
        "frac_match": 0.3,
        "seed": None,
    }
    words = "--chunk 1000000,25000000 --workers 2 --config tcp.cfg --fresh --skew zipf:1.2 --frac-match 0.3"
    assert format_command_line(given, OPTIONS) == words.split()
    options = options_from_python(RunOptions, given, OPTIONS)
    assert options.several == {"chunk": (1_000_000, 25_000_000)}
    assert (options.fresh, options.check_link, options.seed, options.skew) == (True, False, 0, 1.2)
    assert set(options.sources) == set(given) - {"check_link", "seed"}
    assert options_from_python(RunOptions, {"blocks": 4}, OPTIONS).launches == 4
    with pytest.raises(UsageError, match="are one option"):
        options_from_python(RunOptions, {"blocks": 4, "launches": 4}, OPTIONS)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"chunks": 5}, "unknown option 'chunks'; did you mean chunk or columns?"),
        ({"json": True}, "'json' is an option of the command line only"),
        ({"service": "https://x"}, "'service' is an option of the command line only"),
        ({"chunk": "many"}, "'many' is not a count"),
        ({"workers": 0}, "must be at least 1, not 0"),
        ({"config": "no-such.cfg"}, "no-such.cfg"),
        ({"on": "k", "left": "a"}, "--left also needs --right"),
    ],
)
def test_a_wrong_option_is_a_sentence_and_starts_nothing(options: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        merge_bench.run(results=tmp_path, **options)
    assert not list(tmp_path.iterdir())


class FlippingExchange(QueueExchange):
    """A data plane that changes bits of the payload that it carries."""

    def transfer(
        self, sends: Mapping[int, Any], receives: Mapping[int, Any], *, note_batches: bool = False
    ) -> FrameTransfer:
        flight = super().transfer(sends, receives, note_batches=note_batches)
        for rows in (buffer for buffer in receives.values() if buffer.nbytes > 4000):  # headers are shorter
            rows[len(rows) // 2 :] ^= 1
        return flight


@pytest.mark.parametrize(
    ("status", "error", "cluster", "options", "message"),
    [
        (
            3,
            RunFailed,
            {"failures": {"run_merge_iterations": ValueError("no such row")}},
            {},
            r"rank 0 .* failed: .*no such row",
        ),
        (4, WrongResult, {"exchange": FlippingExchange}, {}, "wrong values"),
        (5, GateNotMet, {}, {"engine": ["native", "polars"], "fail_on": "not-faster"}, "INCONCLUSIVE in throughput"),
    ],
)
def test_a_run_that_did_not_end_well_raises_unless_told_not_to(
    status: int, error: type[Exception], cluster: Any, options: Any, message: str, tmp_path: Path
) -> None:
    options = {**options, "chunk": 1000, "iterations": 1, "warmup": 0, "results": tmp_path}
    with fake_cluster(**cluster):
        with pytest.raises(error, match=rf"{message}.*; the records are in {tmp_path}/[\w-]+$") as raised:
            merge_bench.run(**options)
        (folder,) = tmp_path.iterdir()
        assert str(raised.value).endswith(str(folder))
        kept = merge_bench.run(**options, check=False)
    assert kept.folder not in (None, folder)
    assert kept.status == (0 if error is GateNotMet else status)  # a gate judges a run that ended well


class WatchingExchange(QueueExchange):
    """A data plane that notes what a notebook would notice of a run: the process's words, signals and outputs."""

    seen: ClassVar[list[object]] = []

    def connect(self, addresses: Sequence[bytes]) -> None:
        self.seen.append(outside())
        super().connect(addresses)


def outside() -> object:
    """Words, signal handlers and outputs of this process."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    return list(sys.argv), handlers, [os.fstat(descriptor).st_ino for descriptor in (1, 2)]


def test_the_records_hold_the_command_that_does_the_same_and_the_caller_stays_as_it_is(tmp_path: Path) -> None:
    before = outside()
    with fake_cluster(exchange=WatchingExchange):
        result = merge_bench.run(results=tmp_path, chunk=5e3, warmup=0)
    assert WatchingExchange.seen == [before] * 2
    assert outside() == before
    program, *words = result.campaign.head.argv
    assert program.endswith("merge_bench/__main__.py")
    assert words == ["run", "--results", str(tmp_path), "--chunk", "5000", "--warmup", "0"]


@pytest.mark.slow
def test_the_examples_of_the_documentation_do_what_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[1] / "docs" / "results.md"
    scripts = interleaved({"default": BASE, "tcp": [2 * wall for wall in BASE]})
    write_campaign(tmp_path / "results", *scripts).rename(tmp_path / "campaign")
    monkeypatch.chdir(tmp_path)
    made = merge_bench.load("campaign")
    monkeypatch.setattr(api, "run", lambda **_: made)
    done = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert done.attempted > 10
    assert done.failed == 0
