"""`run --against history`: a result against the present level of those before it."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest

from merge_bench.analysis.compare import METRICS, ONE_NIGHT
from merge_bench.analysis.documents import Failure
from merge_bench.config.options import RunOptions
from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign
from merge_bench.regressions.document import accept_level, load_history
from merge_bench.regressions.gates import RegressionGate, gate_summary
from merge_bench.view.comparison import print_comparison
from tests.analysis.history.made_up import Nights, write


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def gate(results: Path, *fail_on: str, allow_no_baseline: bool = False) -> RegressionGate:
    options = RunOptions(against="history", fail_on=fail_on, results=str(results), allow_no_baseline=allow_no_baseline)
    found = RegressionGate.from_options(options, choice_count=1, run_count=1)
    assert found is not None
    return found


def held(results: Path, night: int, *fail_on: str) -> tuple[str, int]:
    """The verdict on the result of that night, and the exit status, when it was the last one."""
    for later in sorted(results.glob("0*"))[night + 1 :]:
        shutil.rmtree(later)
    document, status = gate(results, *fail_on).judge_campaign(read_campaign(next(results.glob(f"{night:04d}-*"))))
    return document.comparisons[0].verdict if document.comparisons else "", status


def test_the_night_of_a_loss_does_not_pass(tmp_path: Path) -> None:
    write(tmp_path, Nights(shift=30, factor=1.08, launches=5))
    assert held(tmp_path, 30, "slower") == ("SLOWER", 5)


def test_nights_like_those_before_pass(tmp_path: Path) -> None:
    write(tmp_path, Nights(count=21, shift=99, launches=5))
    for night in range(20, 14, -1):
        assert held(tmp_path, night, "slower")[1] == 0


def test_a_loss_that_stays_does_not_pass_until_it_is_accepted(tmp_path: Path) -> None:
    write(tmp_path, Nights(count=40, shift=20, factor=1.08, launches=5))
    assert held(tmp_path, 39, "slower") == ("SLOWER", 5)
    found = load_history([tmp_path])
    accept_level(found, accepted_by="ann", reason="it stays")
    verdict, status = held(tmp_path, 39, "slower")
    assert (verdict in ("EQUIVALENT", "INCONCLUSIVE"), status) == (True, 0)


def test_after_a_loss_that_ended_the_gate_is_as_good_as_before(tmp_path: Path) -> None:
    write(tmp_path, Nights(count=44, shift=30, until=36, factor=1.08, launches=5))
    (series,) = load_history([tmp_path]).series
    assert [(shift.result, shift.ended, shift.returns) for shift in series.shifts] == [
        (30, 36, False),
        (36, None, True),
    ]
    assert series.shifts[0].change == pytest.approx(1 / 1.08 - 1, abs=0.015)
    assert series.reference_results == [*range(30), *range(36, 44)]
    write(tmp_path / "next", Nights(count=45, shift=44, factor=1.08, launches=5))
    (tmp_path / "next" / "0044-tcp").rename(tmp_path / "0044-tcp")
    shutil.rmtree(tmp_path / "next")
    assert held(tmp_path, 44, "slower") == ("SLOWER", 5)


def test_a_verdict_against_one_result_knows_the_nights_from_history_or_says_that_it_does_not(tmp_path: Path) -> None:
    write(tmp_path, Nights(count=20, shift=99, launches=8, noise=0.03))

    def against(results: Path) -> tuple[str, list[str]]:
        one, other = (read_campaign(results / f"00{night}-tcp") for night in (12, 19))  # 3 % apart, unchanged
        found = RegressionGate(one, ("slower",), 0.02).judge_campaign(other)[0].comparisons[0]
        return found.verdict, found.caveats

    assert against(tmp_path) == ("INCONCLUSIVE", [])
    for folder in sorted(tmp_path.iterdir()):
        if folder.name[:4] not in ("0012", "0019"):
            shutil.rmtree(folder)
    assert against(tmp_path) == ("SLOWER", [ONE_NIGHT])


def test_a_verdict_against_one_result_needs_no_scipy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra of the package, of which only ``--against history`` says that it needs it."""
    write(tmp_path, Nights(count=20, shift=99, launches=8))
    for name in ("scipy", "scipy.stats"):
        monkeypatch.setitem(sys.modules, name, None)
    one, other = (read_campaign(tmp_path / f"00{night}-tcp") for night in (12, 19))
    document, _ = RegressionGate(one, ("slower",), 0.02).judge_campaign(other)
    assert len(document.comparisons) == len(METRICS)


def test_the_noise_from_night_to_night_is_no_loss(tmp_path: Path) -> None:
    """Launches of one night agree far better with each other than nights do."""
    write(
        tmp_path, Nights(count=20, shift=99, launches=5, noise=0.03)
    )  # the last one is 3 % slower than the median night
    document, status = gate(tmp_path, "slower").judge_campaign(read_campaign(tmp_path / "0019-tcp"))
    assert document is not None
    assert (document.comparisons[0].verdict, document.comparisons[0].reason, status) == (
        "INCONCLUSIVE",
        "within-noise",
        0,
    )
    assert document.comparisons[0].noise_floor == pytest.approx(0.065, abs=0.02)
    page = io.StringIO()
    print_comparison(document, metric="throughput", details=False, file=page, width=1000)
    assert (
        "INCONCLUSIVE: the difference is no larger than what 19 results of the level can tell from noise; "
        in page.getvalue()
    )
    said = page.getvalue() + gate_summary(document, metric_name="throughput", fail_on=["slower"])
    assert "launches of each config" not in said
    assert "more launches" not in said


def test_the_first_results_have_nothing_to_be_held_against(tmp_path: Path) -> None:
    write(tmp_path, Nights(count=3, shift=99))
    gates = ["slower"], ["inconclusive"], ["not-faster"], []
    found = [gate(tmp_path, *on).judge_campaign(read_campaign(tmp_path / "0002-tcp")) for on in gates]
    why = f"nothing was compared: 3 earlier results of this merge are needed, and {tmp_path} has 2"
    assert [(document.notes, status) for document, status in found] == [([why], 5)] * 4
    assert [gate_summary(document, metric_name="throughput", fail_on=["slower"]) for document, _ in found] == [""] * 4
    assert found[0][0].error == Failure("nothing-compared", f"{why}; --allow-no-baseline lets this pass")


def test_the_first_results_pass_if_that_is_meant(tmp_path: Path) -> None:
    write(tmp_path, Nights(count=3, shift=99))
    for on in (["slower"], ["inconclusive"], []):
        allowed = gate(tmp_path, *on, allow_no_baseline=True)
        document, status = allowed.judge_campaign(read_campaign(tmp_path / "0002-tcp"))
        assert (document.error, status) == (None, 0)
        said = gate_summary(document, metric_name="throughput", fail_on=on)
        assert said == f"{document.notes[0]}; this passes, because of --allow-no-baseline"


def test_a_result_is_not_held_against_itself(tmp_path: Path) -> None:
    write(tmp_path, Nights(count=20, shift=99))
    document, _ = gate(tmp_path).judge_campaign(read_campaign(tmp_path / "0019-tcp"))
    assert document is not None
    assert document.comparisons[0].level_of == 19
    assert document.results[0].path == str(tmp_path / "0018-tcp")
    assert document.comparisons[0].baseline_value.launches == 19 * 3


def test_several_configs_are_refused() -> None:
    with pytest.raises(UsageError, match="takes one config"):
        RegressionGate.from_options(RunOptions(against="history"), choice_count=2, run_count=2)
