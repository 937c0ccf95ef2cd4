"""Progress: on a terminal one line, elsewhere a line each half minute."""

from __future__ import annotations

import io
import math
import re
import threading

import pytest
from rich.console import Console

from merge_bench.campaign import LabelledProgress, ProgressDisplay
from merge_bench.view.progress import LogProgress, TerminalProgress, make_progress, remaining_seconds, time_left_text
from tests.view.report.test_text import Terminal


def lines_of(file: io.StringIO) -> list[str]:
    """What a terminal showed, one line after the other, without colours and movements of the cursor."""
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue()).replace("\r", "\n")
    return [line for line in plain.splitlines() if line.strip()]


def drive(progress: ProgressDisplay) -> None:
    progress.show_phase("launching")
    progress.show_phase("iterations")
    progress.show_iteration(0, 4, 0.123, 5 * 2**30)
    progress.close()
    progress.close()


def test_a_pipe_stays_silent_for_half_a_minute() -> None:
    file = io.StringIO()
    progress = make_progress(file)
    assert isinstance(progress, LogProgress)
    drive(progress)
    assert file.getvalue() == ""


def test_a_pipe_then_gets_what_goes_on_and_what_is_left() -> None:
    class Lines(io.StringIO):
        written = threading.Event()

        def flush(self) -> None:
            self.written.set()

    file, now = Lines(), [20.0]
    progress = LogProgress(file, silence_seconds=0.01, clock=lambda: now[0])
    progress.show_phase("merging")
    progress.rest, now[0] = 90.0, 50.0
    progress.show_iteration(0, 3, 0.1, None)
    file.written.clear()
    assert file.written.wait(10.0)
    progress.close()
    ends = file.getvalue()
    assert " merging, 1 of 3 iterations, 2.5 minutes left\n" in ends  # 30 s for one, two are left, then 90 s
    progress.show_phase("verifying")
    assert file.getvalue() == ends


def test_the_time_left_is_that_of_the_campaign() -> None:
    assert time_left_text(10.0, 110.0) == "2 minutes left"
    assert time_left_text(10.0, None) == "10 seconds left of this launch"
    assert time_left_text(0.0, 0.0) == time_left_text(0.0, None) == ""


def test_quiet_is_silent_on_a_terminal_too() -> None:
    file = Terminal()
    drive(make_progress(file, quiet=True))
    assert file.getvalue() == ""


def test_a_terminal_shows_phase_speed_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    file = Terminal()
    assert isinstance(make_progress(file), TerminalProgress)
    now = [0.0]
    progress = TerminalProgress(Console(file=file, width=100), clock=lambda: now[0])
    progress.show_phase("launching")
    now[0] = 10.0
    progress.show_phase("iterations")
    now[0] = 12.0
    progress.show_iteration(0, 4, 0.123, 5 * 2**30)
    progress.close()
    last = lines_of(file)[-1]
    assert "iterations" in last
    assert "1/4  123.00 ms  5.00 GiB/s  6 seconds left" in last  # 2 s for one, three are left


@pytest.mark.parametrize(("done", "of", "shown"), [(1317, 100_000, "1,318/100,000  "), (3, 4, "4/4  100.00 ms  -")])
def test_iterations_have_separators_and_an_unknown_throughput_is_a_dash(
    monkeypatch: pytest.MonkeyPatch, done: int, of: int, shown: str
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    file = Terminal()
    progress = TerminalProgress(Console(file=file, width=120))
    progress.show_iteration(done, of, 0.1, None)
    progress.close()
    assert shown in file.getvalue()


def test_remaining_time_goes_on_as_before() -> None:
    assert remaining_seconds(10.0, 4, 10) == 15.0
    assert remaining_seconds(10.0, 10, 10) == 0.0
    assert math.isnan(remaining_seconds(1.0, 0, 10))


def test_a_label_says_which_launch_of_a_campaign_it_is() -> None:
    said: list[str] = []

    class Said(ProgressDisplay):
        def show_phase(self, text: str) -> None:
            said.append(text)

    LabelledProgress(Said(), "3/8 tcp").show_phase("merging")
    assert said == ["3/8 tcp: merging"]


@pytest.mark.parametrize(("width", "bar"), [(80, False), (120, True)])
def test_the_whole_line_fits_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int, bar: bool) -> None:
    """It was cut at 80 columns."""
    monkeypatch.setenv("TERM", "xterm-256color")
    file = Terminal()
    progress = TerminalProgress(Console(file=file, width=width))
    progress.show_phase("search, launch 37, 1:52/5:00, rendezvous-scheme=put_zcopy: measuring the copy rate of memory")
    progress.show_iteration(18, 20, 0.588, 5 * 2**30)
    progress.close()
    shown = lines_of(file)
    assert max(map(len, shown)) <= width
    (last,) = {line for line in shown if "19/20" in line}
    assert last.startswith("search, launch 37, 1:52/5:00, rendezvous-scheme=")
    assert last.rstrip().endswith("left")
    assert ("━" in last, "588.00 ms" in last) == (bar, bar)


def test_the_clock_of_the_line_goes_on_over_all_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step began at 0:00:00 again, and the clock stood still once the iterations of a launch were over."""
    monkeypatch.setenv("TERM", "xterm-256color")
    file, now = Terminal(), [20.0]
    progress = TerminalProgress(Console(file=file, width=80), clock=lambda: now[0])
    progress.show_phase("launching")
    now[0] = 70.0
    progress.show_phase("search, launch 37")
    for index in (18, 19):
        progress.show_iteration(index, 20, 0.588, 5 * 2**30)
    now[0] = 132.0
    progress.close()
    last = lines_of(file)[-1]
    assert "20/20" in last
    assert "0:01:52" in last
