"""What else the report holds: verdicts, tuning, network measurements, the command, the environment."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from merge_bench.host.description import Gpu, Hardware, NetworkInterface, UcxDescription
from merge_bench.records import schema as s
from merge_bench.report.page.build import shell_command_line
from merge_bench.view.content import CodeBlock, NamedValues
from merge_bench.view.plot import BoxMarks, HeatMapCells, PointMarks, WhiskerMarks
from tests.helpers.charts import bars_of, rows_of
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign
from tests.probe.samples import published as published_row
from tests.probe.samples import write_campaign as write_probe
from tests.view.html_report.samples import add, change, report_of, two_configs
from tests.view.html_report.test_results import drawings, lines, section, tables


def test_verdicts_come_with_figure_1(tmp_path: Path) -> None:
    report = report_of(two_configs(tmp_path))
    (verdicts,) = tables(report, "Comparison")
    assert verdicts[1][:3] == ("tcp against default · 1,000,000 rows per chunk, 2 workers", "SLOWER", "0.500")
    assert not drawings(report, "Comparison")  # the conclusion has it
    (chart,) = drawings(report, "Conclusion")
    assert bars_of(chart) == pytest.approx({("default", "default"): 1.0, ("tcp", "tcp"): 0.5}, abs=1e-3)
    bar, *_, points = chart.groups[1].marks
    assert isinstance(bar, BoxMarks)
    assert isinstance(points, PointMarks)
    assert bar.details["remark"] == ["SLOWER"]
    assert list(points.details["of"]) == [f"block {number}" for number in range(6)]
    metrics, differences = tables(report, "Comparison in detail")
    assert [row[0] for row in metrics[1:4]] == ["throughput (GiB/s)", "bandwidth (GiB/s)", "wall (ms)"]
    assert differences[1] == ("config", "UCX_TLS", "default", "tcp")


def test_one_run_is_compared_with_nothing(tmp_path: Path) -> None:
    assert "Comparison" not in [each.title for each in report_of(write_campaign(tmp_path)).sections]


def test_results_that_cannot_be_compared_say_why_and_stand_beside_each_other(tmp_path: Path) -> None:
    report = report_of(
        two_configs(tmp_path / "a"), write_campaign(tmp_path / "b", Script(plan=Script().plan | {"workers": 4}))
    )
    (why,) = lines(report, "Comparison")
    assert why == "Not compared: A: default and B: optimized differ in workers (2 and 4)"
    ((_, verdict),) = tables(report, "Comparison within A")
    assert verdict[1] == "SLOWER"
    assert [row[0] for row in tables(report, "Results")[0][1:]] == [
        "1,000,000 rows per chunk, 2 workers",
        "1,000,000 rows per chunk, 4 workers",
    ]


def test_a_run_has_its_workers_phases_and_pairs(tmp_path: Path) -> None:
    report = report_of(write_campaign(tmp_path, Script(plan=plan(4))))
    title = "optimized"
    bandwidth, pairs = drawings(report, title)
    (phases,) = drawings(report, "Conclusion")
    assert rows_of(bandwidth) == rows_of(phases) == rows_of(pairs) == [f"{rank} node0" for rank in range(4)]
    assert isinstance(pairs.groups[0].marks[0], HeatMapCells)
    headings = [table[0] for table in tables(report, title)]
    assert ("Rank", "Host", "Left (GiB/s)", "Right (GiB/s)", "Mean (GiB/s)") in [heading[:5] for heading in headings]


def test_pairs_of_few_workers_are_a_table(tmp_path: Path) -> None:
    report, title = report_of(write_campaign(tmp_path)), "optimized"
    assert [chart.title for chart in drawings(report, title)] == ["Bandwidth of each worker"]
    assert [("0", "·", "0.373"), ("1", "0.373", "·")] in [table[1:] for table in tables(report, title)]


def test_tuning_shows_its_steps_and_what_was_found(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    config = {"name": "mutex=y", "path": None, "variables": {"UCX_USE_MT_MUTEX": "y z"}}
    add(folder, kind="config", config=config, settings=["mutex=y"])
    step = {"kind": "tune", "config": "mutex=y", "against": "optimized", "setting": "mutex=y", "reason": "a gain"}
    step |= {"ratio": 1.1, "low": 1.05, "high": 1.2, "launches": 6}
    add(folder, **step, phase="screen", decision="kept")
    add(folder, **step, phase="confirm", decision="accepted")
    report = report_of(folder)
    assert tables(report, "Tuning")[0][1][:3] == ("mutex=y", "1.100", "1.050 to 1.200")
    (screen,) = drawings(report, "Tuning")
    (confirm,) = drawings(report, "Conclusion")
    interval, _ = screen.groups[0].marks
    assert isinstance(interval, WhiskerMarks)
    assert (*interval.start, *interval.end) == (1.05, 1.2)
    assert (screen.title, confirm.title) == (
        "Tuning, each alone, 1,000,000 rows per chunk: speed-up by setting",
        "Tuning, confirmation on new launches, 1,000,000 rows per chunk: speed-up by setting",
    )
    assert CodeBlock("UCX_USE_MT_MUTEX='y z'") in section(report, "Conclusion").blocks


def test_a_network_measurement_that_measured_nothing_is_an_alarm(tmp_path: Path) -> None:
    first, *_ = (write_probe(tmp_path) / "records.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_text(first)
    report = report_of(tmp_path)
    assert (report.state, report.alarm) == ("Nothing was measured", True)


def test_network_measurements_are_shown_as_probe_shows_them(tmp_path: Path) -> None:
    report = report_of(write_probe(tmp_path), rows=(published_row(),))
    assert report.verified == "Network measurements: p2p"
    assert report.state == "Least latency, one way: 1.00 µs at 8 B (tag_lat, tuned, one host)"
    table = tables(report, "Network")[0]
    assert table[1][:3] == ("8", "2.00", "1.00")
    (panel,) = drawings(report, "Conclusion")
    assert [group.label for group in panel.groups] == [
        "default",
        "tuned",
        "their cluster (published: a report)",
    ]


def test_warnings_of_network_measurements_stand_in_the_conclusion(tmp_path: Path) -> None:
    caution = ("rdma-unused", "eth0 has no RDMA device", "--interface ib0")
    said = lines(report_of(write_probe(tmp_path, launches=2, warning=caution)), "Conclusion")
    assert [line for line in said if "RDMA" in line] == ["rdma-unused: eth0 has no RDMA device"]
    assert "→ --interface ib0" in said


def test_merges_and_network_measurements_go_together(tmp_path: Path) -> None:
    titles = [each.title for each in report_of(two_configs(tmp_path), write_probe(tmp_path)).sections]
    assert {"Results", "Network", "Environment of A", "Environment of B"} <= set(titles)


@pytest.mark.parametrize("program", ["/opt/x/merge_bench/__main__.py", "/usr/bin/merge-bench"])
def test_the_command_can_be_pasted_into_a_shell(program: str) -> None:
    argv = [program, "run", "--chunk", "1e6", "--results", "a b; rm -rf $HOME", "--config", "it's.cfg"]
    said = shell_command_line(argv)
    assert shlex.split(said) == ["python", "-m", "merge_bench", *argv[1:]]


def test_another_program_keeps_its_name() -> None:
    assert shell_command_line(["/x/bin/dask", "merge-bench", "--chunk", "5"]) == "dask merge-bench --chunk 5"


def machine(worker: s.Worker) -> s.Worker:
    held = {"UCX_TLS": "sm,tcp", "UCX_RNDV_THRESH": "8K", "UCX_KEEPALIVE_NUM_EPS": "128"}
    return s.Worker(
        rank=worker.rank,
        host=worker.host,
        pid=1,
        name="w",
        environment={"UCX_TLS": "sm,tcp"},
        versions={"polars": "2.1.0"},
        ucx=UcxDescription(version="1.21.0", origin="wheel", config=held),
        hardware=Hardware(
            cpu_model="EPYC",
            cores_online=2,
            memory_bytes=2**33,
            kernel="6.18",
            infiniband=["mlx5_0"],
            interfaces={
                "eth0": NetworkInterface(up=True, megabits_per_second=1000, mtu=1500),
                "eth1": NetworkInterface(up=False),
            },
            gpus=[Gpu(name="H200", index=0)],
        ),
    )


def test_the_environment_names_hosts_devices_packages_and_ucx(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(machine=machine))
    report = report_of(folder, defaults={"UCX_TLS": "all", "UCX_RNDV_THRESH": "auto", "UCX_KEEPALIVE_NUM_EPS": "128"})
    hosts, devices, settings = tables(report, "Environment")
    assert hosts[1] == ("node0", "0, 1", "EPYC", "2", "-", "8.00", "6.18", "-", "-")
    assert [row[1:] for row in devices[1:]] == [
        ("network eth0", "1,000 Mbit/s, MTU 1500"),
        ("InfiniBand", "mlx5_0"),
        ("GPU", "index 0, name H200"),
    ]
    assert settings[1:] == [("UCX_TLS", "sm,tcp", "all"), ("UCX_RNDV_THRESH", "8K", "auto")]
    facts = [block.rows for block in section(report, "Environment").blocks if isinstance(block, NamedValues)]
    assert (("polars", "2.1.0"),) in facts
    assert section(report, "Environment").folded


def test_without_that_ucx_the_settings_that_were_set_are_named(tmp_path: Path) -> None:
    report = report_of(write_campaign(tmp_path, Script(machine=machine)))
    assert tables(report, "Environment")[2][1:] == [("UCX_TLS", "sm,tcp")]
    assert any("this machine has no UCX of that version" in line for line in lines(report, "Environment"))


def test_the_state_of_the_program_is_told(tmp_path: Path) -> None:
    folder = change(two_configs(tmp_path), "campaign", git={"commit": "abc123", "dirty": True}, version="9.9")
    assert "merge_bench 9.9, commit abc123, with local changes." in lines(
        report_of(folder), "How to repeat the measurement"
    )
