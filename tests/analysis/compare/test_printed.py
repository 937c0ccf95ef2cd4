"""What people see: text and Markdown."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from merge_bench.analysis.compare import compare_campaigns
from merge_bench.analysis.documents import CompareDocument
from merge_bench.records.reader import read_campaign
from merge_bench.view.comparison import comparison_as_markdown, draw_ratio_strip_plot, format_percent, print_comparison
from merge_bench.view.markdown import escape_markdown
from merge_bench.view.suggested_command import SuggestedCommand
from tests.analysis.compare.test_document import NOISE, SIX, failing, faster, on_busy_host
from tests.helpers.synthetic_campaigns import Script, interleaved, write_campaign


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def text(*folders: Path, metric: str = "throughput", **options: Any) -> str:
    file = io.StringIO()
    print_comparison(compare_campaigns([read_campaign(each) for each in folders], **options), metric=metric, file=file)
    return file.getvalue()


def written(tmp_path: Path, scripts: list[Script]) -> Path:
    return write_campaign(tmp_path, *scripts)


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    return write_campaign(tmp_path, *interleaved({"base": SIX, "tuned": faster(1.25)}))


FASTER = "FASTER: 1.250 × as fast in throughput (95 % interval 1.248 to 1.253, threshold 2 %), 6 blocks, p = 0.031"


def test_the_verdict_comes_last_and_once_with_what_it_rests_on(tuned: Path) -> None:
    lines = text(tuned).splitlines()
    assert lines[4] == "tuned against base · 1,000,000 rows per chunk, 2 workers"
    assert lines[-2:] == ["Verdict on throughput", FASTER]
    assert sum("1.250 × as fast" in line for line in lines) == 1


def test_without_details_there_is_the_verdict_alone_and_what_to_do_next(tuned: Path) -> None:
    file, step = io.StringIO(), SuggestedCommand(("report", "x"), "draws it")
    print_comparison(document(tuned), metric="throughput", details=False, next_command=step, file=file)
    assert file.getvalue().splitlines()[3:] == [
        "",
        "Verdict on throughput",
        "tuned against base · 1,000,000 rows per chunk, 2 workers",
        FASTER,
        "Next: python -m merge_bench report x",
        "      (draws it)",
    ]


@pytest.mark.parametrize("width", [80, 100])
def test_words_stay_whole_in_a_narrow_terminal(width: int) -> None:
    recorded = Path(__file__).parents[2] / "data" / "campaigns" / "sweep"

    def words(columns: int) -> tuple[set[str], int]:
        file = Terminal()
        print_comparison(document(recorded), metric="throughput", file=file, width=columns)
        lines = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()
        its = {word for line in lines for word in line.split() if "─" not in word}
        return its, max(len(line) for line in lines if not line.startswith("Result "))

    whole, narrow = words(300), words(width)
    assert {"INCONCLUSIVE", "throughput", "Launches", "default"} <= whole[0]
    assert whole[0] - narrow[0] == set()
    assert narrow[1] <= width


def test_every_metric_has_its_row_with_absolute_values_and_its_points(tuned: Path) -> None:
    lines = text(tuned).splitlines()
    heading, throughput, bandwidth, wall = (re.split(r"\s{2,}", line) for line in lines[5:9])
    assert heading == ["Metric", "Verdict", "Speed-up", "95 % interval", "base", "tuned", "Launches", "p", "By block"]
    # 64 MB in 0.125 s and in 0.1 s, in GiB/s.
    assert throughput[:8] == [
        "throughput (GiB/s)",
        "FASTER",
        "1.250",
        "1.248 to 1.253",
        "0.478",
        "0.597",
        "6 / 6",
        "0.031",
    ]
    assert throughput[8].startswith("1.000 [|....")
    assert throughput[8].endswith("] 1.253")
    assert bandwidth[:3] == ["bandwidth (GiB/s)", "EQUIVALENT", "1.000"]
    assert bandwidth[-1] == "1.000 [|6] 1.000"
    assert wall[4:6] == ["125.00", "100.06"]  # milliseconds
    assert lines[12] == "throughput by block: " + "  ".join(f"{1.25 / noise:.3f}" for noise in NOISE)


def test_differences_stand_below(tuned: Path) -> None:
    assert re.search(r"^Differs +base +tuned\nconfig +UCX_TLS +base +tuned$", text(tuned), re.MULTILINE)


def test_the_sentence_is_about_the_metric_asked_for(tuned: Path) -> None:
    assert "EQUIVALENT: 1.000 × as fast in join (" in text(tuned, metric="join")


def test_campaigns_have_letters(tmp_path: Path) -> None:
    folders = [write_campaign(tmp_path, *interleaved({"base": SIX})) for _ in range(2)]
    found = text(*folders)
    for letter, folder in zip("AB", folders, strict=True):
        assert re.search(rf"^{letter}: +{re.escape(str(folder))}$", found, re.MULTILINE)
    assert "\nB: base against A: base · " in found
    assert "6 launches each, not interleaved" in found
    assert "By launch" in found


def test_a_verdict_of_a_busy_host_has_a_caveat_beside_it(tmp_path: Path) -> None:
    quiet = write_campaign(tmp_path / "quiet", *interleaved({"base": SIX, "tuned": faster(1.25)}))
    assert "measured while" not in text(quiet)
    busy = on_busy_host(write_campaign(tmp_path / "busy", *interleaved({"base": SIX, "tuned": faster(1.25)})))
    said = "measured while other processes kept the host's cores busy, so the difference may come from the host."
    lines = text(busy).splitlines()
    assert lines[[line.startswith("FASTER: ") for line in lines].index(True) + 1] == f"This result was {said}"
    campaigns = [quiet, on_busy_host(write_campaign(tmp_path / "both", *interleaved({"base": faster(3.0)})))]
    assert f"\nB was {said}\n" in text(*campaigns)
    assert f"\nA and B were {said}\n" in text(*[on_busy_host(each) for each in campaigns])
    document = compare_campaigns([read_campaign(busy)])
    file = io.StringIO()
    gates = f"--fail-on not-faster passed: …; this result was {said}"
    print_comparison(document, metric="throughput", gate_text=gates, file=file)
    assert file.getvalue().count("measured while") == 1
    assert file.getvalue().endswith(f"\n{gates}\n")
    assert f"**\n\nThis result was {said}\n" in comparison_as_markdown(document, metric="throughput")


def test_sides_with_different_numbers_of_launches_are_counted_apart(tmp_path: Path) -> None:
    folders = [write_campaign(tmp_path, *interleaved({"base": walls})) for walls in (SIX, SIX[:1])]
    assert "6 and 1 launches, not interleaved" in text(*folders)


def test_an_inconclusive_verdict_tells_what_would_help(tmp_path: Path) -> None:
    few = text(written(tmp_path, interleaved({"base": SIX[:3], "tuned": SIX[1:4]})))
    assert re.search(
        r"^INCONCLUSIVE: too few launches for a verdict; 0\.\d+ × as fast in throughput, 3 blocks, "
        r"p = 0\.25; a verdict needs about \d+ more launches of each config$",
        few,
        re.MULTILINE,
    )
    close = text(written(tmp_path, interleaved({"base": SIX, "tuned": faster(1.0199)})))
    assert "INCONCLUSIVE: the true difference may be below or above 2 %; " in close
    assert close.count("; a verdict needs more than 1000 launches of each config\n") == 1


def test_failures_are_counted_in_sight(tmp_path: Path) -> None:
    walls = [0.1 + 0.01 * block for block in range(9)]
    scripts = failing(interleaved({"base": walls, "tuned": [wall / 2 for wall in walls]}), "tuned", 1)
    found = text(written(tmp_path, scripts))
    assert "\nFAILED: 1 of 9 launches failed; 2.000 × as fast in throughput" in found
    assert "9 / 8 (1 failed)" in found


def test_a_config_without_numbers_shows_none(tmp_path: Path) -> None:
    scripts = failing(interleaved({"base": SIX, "tuned": SIX}), "tuned", *range(6))
    found = text(written(tmp_path, scripts))
    assert "\nFAILED: 6 of 6 launches failed\n" in found
    assert "Speed-up" not in found


def test_every_line_with_numbers_is_marked_where_nothing_was_verified(tmp_path: Path) -> None:
    folder = written(tmp_path, interleaved({"base": SIX, "tuned": faster(1.25)}, verify="off"))
    numbers = [line for line in text(folder).splitlines() if re.search(r"\d\.\d{3} ", line) and "by block:" not in line]
    assert len(numbers) == 7
    assert all("UNVERIFIED" in line for line in numbers)
    rows = [line for line in comparison_as_markdown(document(folder), metric="wall").splitlines() if " to " in line]
    assert len(rows) == 7
    assert all("UNVERIFIED" in row for row in rows)


def document(*folders: Path) -> CompareDocument:
    return compare_campaigns([read_campaign(each) for each in folders])


def test_corrected_p_values_stand_beside_the_plain_ones(tmp_path: Path) -> None:
    walls = [0.1 + 0.01 * block for block in range(9)]
    found = text(written(tmp_path, interleaved({"base": walls, "one": walls, "two": [w / 2 for w in walls]})))
    assert "p = 0.0078 (Holm)" in found  # 2 · 2 ÷ 2⁹
    assert "p (Holm)" in found
    assert "(97.5 % interval " in found


def test_an_aa_comparison_shows_the_noise(tmp_path: Path) -> None:
    noise = [1, 1.1, 1, 1, 1, 1]
    walls = {"base": SIX, "again": faster(1.0, noise), "tuned": faster(1.25), "near": faster(1.06)}
    scripts = [
        replace(each, variables={}) if each.config in ("base", "again") else each
        for each in interleaved({name: [*each, *each] for name, each in walls.items()})
    ]
    found = text(written(tmp_path, scripts))
    assert "again against base, the same config (A/A) · " in found
    assert len(re.findall(r"threshold 2 %, noise floor [\d.]+ %", found)) == 3
    assert "\nFASTER: 1.250 × as fast" in found


def test_a_narrow_terminal_gets_the_points_in_a_table_of_their_own(tuned: Path) -> None:
    file = Terminal()
    print_comparison(document(tuned), metric="throughput", file=file, width=100)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in file.getvalue().splitlines()]
    assert max(len(line) for line in lines if not line.startswith("Result ")) <= 100
    assert sum("throughput (GiB/s)" in line for line in lines) == 2


@pytest.mark.parametrize(
    ("ratios", "drawn"),
    [
        ([0.99, 1.01, 1.01], "0.990 [o..|.2] 1.010"),
        ([1.0, 1.0], "1.000 [|2] 1.000"),
        ([1.15, 1.25, 1.4, 1.5], "1.000 [|.oo2] 1.500"),
        ([0.5] * 12, "0.500 [#...|] 1.000"),
        ([0.001], "0.001 [o...|] 1.000"),
    ],
)
def test_points_are_drawn_to_scale_on_either_side_of_1(ratios: list[float], drawn: str) -> None:
    assert draw_ratio_strip_plot(ratios, 4) == drawn


@pytest.mark.parametrize(("share", "shown"), [(0.95, "95 %"), (0.02, "2 %"), (0.9833333, "98.33 %")])
def test_shares_are_shown_in_percent(share: float, shown: str) -> None:
    assert format_percent(share) == shown


def test_markdown_says_the_same(tuned: Path) -> None:
    lines = comparison_as_markdown(document(tuned), metric="throughput").splitlines()
    assert lines[0] == f"* Result: {escape_markdown(str(tuned))}"
    assert lines[2] == "### tuned against base · 1,000,000 rows per chunk, 2 workers"
    assert lines[4].startswith("**FASTER: 1.250 × as fast in throughput (")
    table = [line for line in lines if line.startswith("| ")]
    cells = [re.split(r"(?<!\\)\|", line) for line in table[:8]]
    assert {len(row) for row in cells} == {len(cells[0])}
    assert cells[0][1:4] == [" Metric ", " Verdict ", " Speed-up "]
    assert table[-2:] == ["| --- | --- | --- | --- |", "| config | UCX\\_TLS | base | tuned |"]


def test_markdown_takes_nothing_in_the_records_for_markup(tmp_path: Path) -> None:
    scripts = interleaved({"base": SIX, "a|b*<script>": SIX})
    found = comparison_as_markdown(document(written(tmp_path, scripts)), metric="throughput")
    assert "a\\|b\\*\\<script\\>" in found
    assert "a|b" not in found
    assert "<script>" not in found.replace("\\<script\\>", "")
