"""Metrics of a command: from options to what is looked for, and from output to numbers."""

from __future__ import annotations

import json

import pytest

from merge_bench.command import metrics
from merge_bench.command.metrics import CommandOutput, MetricOptions, find_metric_value, make_metrics
from merge_bench.errors import LaunchFailed, UsageError
from merge_bench.records.recorded_plan import CommandMetric


def made(*texts: str, **more: object) -> list[CommandMetric]:
    return make_metrics(MetricOptions(texts, **more), "program --size 8")


def value(source: str, out: str, *, err: str = "", file: str | None = None, **more: str) -> float:
    metric = CommandMetric(name="speed", source=source, **more)
    return find_metric_value(metric, CommandOutput(out, err, file))


def code(source: str, out: str, **more: str) -> str:
    with pytest.raises(LaunchFailed) as failed:
        value(source, out, **more)
    return failed.value.code


# -- from options


def test_without_options_the_wall_clock_is_the_only_metric() -> None:
    assert made() == [CommandMetric(name="wall", unit="s", better="less")]


def test_the_first_metric_comes_first_and_the_wall_clock_last() -> None:
    both = made("speed=re:at (.*) GB", "lag=json:stats.lag", units=["speed=GB/s", "lag=us"])
    assert [(each.name, each.better) for each in both] == [("speed", "more"), ("lag", "less"), ("wall", "less")]


def test_a_path_names_its_metric_by_its_last_key() -> None:
    assert made("json:runs[*].rate", better=["more"])[0].name == "rate"


def test_an_expression_may_contain_commas_and_equal_signs() -> None:
    metric = made(r"speed=re:x{1,3}=(\d+)", units=["GB/s"])[0]
    assert metric.source == r"re:x{1,3}=(\d+)"


def test_options_of_the_only_metric_need_no_name() -> None:
    metric = made("speed=re:(.*)", units=["images"], better=["more"], picks=["median"])[0]
    assert (metric.unit, metric.better, metric.pick) == ("images", "more", "median")


def test_a_metric_can_be_that_of_a_preset_under_another_name() -> None:
    metric = made("bus=nccl-tests")[0]
    assert (metric.name, metric.unit, metric.better) == ("bus", "GB/s", "more")


@pytest.mark.parametrize(
    ("texts", "more"),
    [
        (["speed=re:("], {}),
        (["re:(.*)"], {"better": ["more"]}),  # without a name
        (["speed=nccltests"], {}),
        (["speed"], {}),
        (["speed=json:"], {"better": ["more"]}),
        (["speed=json:a..b"], {"better": ["more"]}),
        (["speed=json:a[x]"], {"better": ["more"]}),
        (["wall=re:(.*)"], {"better": ["more"]}),
        (["speed=re:a", "speed=re:b"], {"better": ["speed=more"]}),
        (["speed=re:(.*)"], {}),  # more or less?
        (["speed=re:(.*)"], {"units": ["images"]}),
        (["speed=re:(.*)"], {"better": ["speed=faster"]}),
        (["speed=re:(.*)"], {"better": ["more"], "picks": ["mean"]}),
        (["speed=re:(.*)", "lag=re:(.*)"], {"better": ["more"]}),  # of which one?
        (["speed=re:(.*)"], {"better": ["more"], "units": ["other=GB/s"]}),
        ([], {"units": ["GB/s"]}),
        ([], {"preset": "hpl"}),
    ],
)
def test_wrong_options_are_refused(texts: list[str], more: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        made(*texts, **more)


@pytest.mark.parametrize("check", ["re:(", "PASSED", "command:", "command:  ", "command: grep 'a"])
def test_wrong_checks_are_refused(check: str) -> None:
    with pytest.raises(UsageError):
        metrics.parse_check(check)


# -- from output


@pytest.mark.parametrize(("pick", "expected"), [("last", 2.0), ("median", 3.0), ("min", 2.0), ("max", 7.0)])
def test_which_of_several_values_counts(pick: str, expected: float) -> None:
    assert value(r"re:^rate (\d+)", "rate 3\nrate 7\nrate 2\n", pick=pick) == expected


def test_the_group_called_value_counts_before_the_first_one() -> None:
    assert value(r"re:(rate|speed) (?P<value>\d+)", "speed 5") == 5.0


def test_without_a_group_the_whole_match_counts() -> None:
    assert value(r"re:\d+$", "took 12") == 12.0


def test_numbers_may_have_commas_between_thousands() -> None:
    assert value("re:rate (.*)", "rate 1,234,567.5") == 1234567.5


@pytest.mark.parametrize(
    ("printed", "unit", "expected"),
    [
        ("512.0 MiB/s", "GiB/s", 0.5),
        ("2 GB/s", "MB/s", 2000.0),
        ("3.5 GiB/s", "GiB/s", 3.5),
        ("20 ms", "s", 0.02),
        ("1.5 us", "ns", 1500.0),
    ],
)
def test_a_printed_unit_is_converted(printed: str, unit: str, expected: float) -> None:
    assert value(r"re:(?P<value>\S+) (?P<unit>\S+)", printed, unit=unit) == pytest.approx(expected)


def test_a_unit_of_another_kind_is_no_value() -> None:
    assert code(r"re:(?P<value>\S+) (?P<unit>\S+)", "5 ms", unit="GB/s") == "metric-missing"


def test_standard_error_counts_if_nothing_is_on_standard_output() -> None:
    assert value(r"re:rate (\d+)", "no", err="rate 4") == 4.0
    assert value(r"re:rate (\d+)", "rate 3", err="rate 4") == 3.0


def test_with_a_metric_file_only_the_file_counts() -> None:
    assert value(r"re:rate (\d+)", "rate 3", file="rate 9") == 9.0


def test_json_as_a_whole_and_in_lines() -> None:
    document = {"summary": {"rate": 3.5}, "runs": [{"rate": 1}, {"rate": "2"}]}
    assert value("json:summary.rate", json.dumps(document, indent=2)) == 3.5
    assert value("json:runs[*].rate", json.dumps(document), pick="max") == 2.0
    assert value("json:runs[0].rate", f"starting\n{json.dumps(document)}\ndone {{\n") == 1.0


@pytest.mark.parametrize(
    ("source", "out"),
    [
        ("re:rate (.*)", "nothing"),
        ("re:rate (.*)", "rate fast"),
        ("re:rate (.*)", "rate nan"),
        ("re:rate (.*)", "rate 0"),
        ("re:rate (.*)", "rate -3"),
        ("re:rate (.*)", "rate inf"),
        ("json:rate", "{}"),
        ("json:rate", '{"rate": true}'),
        ("json:rate[3]", '{"rate": [1]}'),
        ("json:rate", "no json"),
    ],
)
def test_what_is_no_number_above_zero_is_missing(source: str, out: str) -> None:
    assert code(source, out) == "metric-missing"


def test_colours_and_progress_bars_are_no_part_of_the_output() -> None:
    printed = metrics.clean_output(b"10%\r50%\r\x1b[1;32mrate\x1b[0m 5\r\nend\xff")
    assert printed == "10%\n50%\nrate 5\nend\ufffd"
    assert value(r"re:^rate (\d+)$", printed) == 5.0
