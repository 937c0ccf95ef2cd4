"""What a worker notes for a timeline, how much of it it keeps, and what decides whether it does."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from merge_bench.campaign import recording
from merge_bench.errors import UsageError
from merge_bench.merge import worker
from merge_bench.merge.timeline_recording import (
    MOST_SHARE,
    TimelineCost,
    TimelineKeeper,
    TimelineNotes,
    decide_timeline_recording,
    largest_timeline_share,
    measure_note_seconds,
)
from merge_bench.merge.worker import WorkerTimelines
from merge_bench.records.schema import TimelineLine
from merge_bench.records.timeline import MessageBatch, Span, WorkerTimeline
from tests.merge.test_pipelined_merger import plan
from tests.merge.test_steps import Plugin


def spans(count: int) -> WorkerTimeline:
    return WorkerTimeline(rank=0, spans=[Span(name="join", begin=at, end=at + 1) for at in range(count)])


def test_a_batch_lasts_from_its_first_message_posted_to_its_last_one_complete() -> None:
    notes = TimelineNotes()
    notes.note_message_posted((1, 2, False), 10.0, 100)
    notes.note_message_posted((1, 2, False), 11.0, 50)
    notes.note_message_posted((1, 2, True), 10.5, 7)
    notes.note_message_completed((1, 2, False), 12.0)
    notes.note_message_completed((1, 2, True), 12.5)
    notes.note_message_completed((1, 2, False), 14.0)
    found = notes.make_timeline(3, ["left", "right"])
    same: dict[str, Any] = {"side": "right", "piece": 1, "peer": 2}
    assert found.batches == [
        MessageBatch(**same, received=False, bytes=150, begin=10.0, end=14.0),
        MessageBatch(**same, received=True, bytes=7, begin=10.5, end=12.5),
    ]
    assert notes.count == 3  # what it costs depends on messages, not on batches


def test_a_note_costs_less_than_a_message() -> None:
    assert 0 < measure_note_seconds() < 100e-6


class Clock:
    """A microsecond passes each time that it is read, and 10 ms at some of its readings: others had the core."""

    def __init__(self, *interrupted: int) -> None:
        self.interrupted, self.readings, self.now = interrupted, 0, 0.0

    def __call__(self) -> float:
        self.readings += 1
        self.now += 1e-2 if self.readings in self.interrupted else 1e-6
        return self.now


def test_a_trial_that_was_interrupted_does_not_count() -> None:
    interrupted = Clock(100, 1800)
    assert measure_note_seconds(interrupted) == pytest.approx(measure_note_seconds(Clock()), rel=1e-6)
    assert interrupted.now > 2e-2


def test_iterations_are_kept_evenly_up_to_the_most_events() -> None:
    kept = TimelineKeeper(workers=2, most=200)
    for index in range(50):
        if kept.wants_iteration(index):
            kept.keep_iteration(index, spans(10))
    assert list(kept.iterations) == list(range(0, 50, 8))  # 100 events a worker: 10 iterations, and half of that again
    assert kept.stride == 8


def test_an_iteration_with_too_many_events_is_not_kept() -> None:
    kept = TimelineKeeper(workers=4, most=100)
    kept.keep_iteration(0, spans(26))
    assert not kept.iterations
    kept.keep_iteration(0, spans(25))
    assert list(kept.iterations) == [0]


def test_rounds_of_the_link_measurement_count_as_events() -> None:
    kept = TimelineKeeper(workers=1, most=100)
    for index in range(10):
        kept.keep_iteration(index, spans(10))
    for _ in range(20):
        kept.keep_link_round(spans(1))
    assert len(kept.rounds) == 20
    assert sum(each.event_count for each in [*kept.iterations.values(), *kept.rounds]) <= 100
    assert list(kept.iterations) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("kept", [0, 1])
def test_no_timeline_is_recorded_where_no_iteration_was_kept(kept: int) -> None:
    timelines = WorkerTimelines(unix_seconds=0.0, iterations={index: spans(3) for index in range(kept)}, rounds=[])
    lines: list[TimelineLine] = []
    files: list[str] = []
    writer = SimpleNamespace(write=lines.append, write_file_beside_records=lambda name, _: files.append(name))
    session: Any = SimpleNamespace(
        launch=0,
        plan=plan(timeline="on"),
        writer=writer,
        workers=SimpleNamespace(run_on_all_workers=lambda step: [timelines]),
        descriptions=[SimpleNamespace(rank=0, host="node0")],
    )
    recording.record_timeline(session, decide_timeline_recording("on", []), None)
    (line,) = lines
    assert (line.recorded, line.because) == ((True, "asked for") if kept else (False, "too many events"))
    assert files == [line.file] * kept
    assert line.events == 3 * kept


def cost(share: float) -> TimelineCost:
    return TimelineCost(notes=100, note_seconds=1e-6, iteration_seconds=100e-6 / share)


@pytest.mark.parametrize(
    ("asked", "share", "recorded", "because"),
    [
        ("auto", 0.009, True, "cheap"),
        ("auto", 0.011, False, "expensive"),
        ("on", 0.5, True, "asked for"),
        ("off", 0.0001, False, "asked for"),
    ],
)
def test_what_notes_cost_decides(asked: str, share: float, recorded: bool, because: str) -> None:
    found = decide_timeline_recording(asked, [cost(share / 9), cost(share)])
    assert (found.recorded, found.because, found.notes) == (recorded, because, 100)
    assert found.share == pytest.approx(share)  # that of the worker for which it is most


def test_before_the_first_iteration_auto_records() -> None:
    values = ("auto", "on", "off")
    assert [decide_timeline_recording(value, []).recorded for value in values] == [True, True, False]
    shares = [largest_timeline_share(value, decide_timeline_recording(value, [])) for value in values]
    assert shares == [MOST_SHARE, math.inf, None]


def test_dask_has_no_timeline() -> None:
    assert plan(exchange="dask").timeline == "off"
    with pytest.raises(UsageError, match="--timeline on needs --exchange ucx"):
        plan(exchange="dask", timeline="on")


@pytest.mark.parametrize(("most", "kept"), [(0.01, None), (math.inf, [0, 1, 2])])
def test_a_worker_stops_to_note_once_that_takes_too_much(most: float, kept: list[int] | None) -> None:
    """An iteration of 10 ms with 99 notes of 1 µs, then shorter ones."""
    plugin: Any = Plugin(0.01)
    noted: list[bool] = []

    def merge() -> Any:
        notes = plugin.merger.notes
        noted.append(notes is not None)
        for at in range(99 if notes else 0):
            notes.add_span("join", at, at + 1)
        measured = plugin.merge_once()
        plugin.seconds = 0.005
        return measured

    plugin.merger.merge, plugin.merger.piece_sides = merge, []
    plugin.launch_state = SimpleNamespace(rank=0, plan=SimpleNamespace(workers=1), timelines=None)
    found = worker.run_iterations_on_plugin(
        plugin,
        0,
        3,
        warmup=False,
        verify=False,
        timeline_share=most,
        measure_note_cost=lambda: 1e-6,
        clock=lambda: plugin.now,
    )
    assert found == TimelineCost(99, 1e-6, 0.005)
    assert noted == [True, True, kept is not None]
    assert (plugin.launch_state.timelines and list(plugin.launch_state.timelines.iterations)) == kept
    assert plugin.merger.notes is None
