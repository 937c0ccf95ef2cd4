"""The folder of probes: what its files declare is what `probe` offers, measures and shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from merge_bench.probe import probes
from merge_bench.probe.shared import ProbeKind
from merge_bench.records.reader import read_campaign
from tests.helpers.members import run_with

DOCS = Path(__file__).parents[2] / "docs"
CLOCK = """
from merge_bench.config import parsers
from dataclasses import dataclass

from merge_bench.config.option import Options, value_option
from merge_bench.probe.shared import Probe, ProbeKind
from merge_bench.probe.shared import TIME


class Clock(Probe):
    name, device_memory = "clock", False

    def __init__(self, times):
        self.times = times

    def describe(self):
        return {"times": self.times}

    def prepare(self, prepared):
        return prepared

    def launch(self, job, writer, progress, index):
        from merge_bench.campaign.launch import record_launch_outcome
        from merge_bench.records.schema import Cluster, LaunchLine, ProbeLine, Worker

        with record_launch_outcome(job, writer, index, self) as outcome:
            workers = [Worker(rank=rank, host="h", pid=1, name=f"w-{rank}") for rank in range(2)]
            writer.write(
                LaunchLine(
                    launch=index, config=job.config, plan=job.plan, block=job.block, workers=workers, data_bytes=0,
                    rows=0, cluster=Cluster(launcher="none", protocol=None),
                )
            )
            writer.write(
                ProbeLine(
                    launch=index, probe=self.name, test="clock_lat", method="made up", placement="one-host",
                    ranks=[0, 1], size=8, iterations=self.times, seconds=2e-6,
                )
            )

        return outcome.status

    def find_process_failure(self, error):
        return None

    def end_processes(self, *, succeeded):
        pass


@dataclass(frozen=True, kw_only=True)
class ClockOptions(Options):
    times: int | None = value_option(parsers.count_parser(1), None, "N", help="How often.")


PROBE = ProbeKind(
    name="clock",
    help="Mean time of reading a clock.",
    options=ClockOptions,
    make=lambda options, run: Clock(options.times),
    latency=TIME,
)
"""


@pytest.mark.slow
def test_one_file_more_is_one_probe_more(tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "clock.py").write_text(CLOCK)

    def printed(*words: str) -> str:
        return run_with("merge_bench.probe", folder, "probe", *words).stdout

    assert "Mean time of reading a clock." in printed("--help")
    options = printed("clock", "--help")
    assert "--times N" in options
    assert "--baseline CFG" in options
    measure = ("clock", "--times", "5", "--repetitions", "2", "--results", str(tmp_path), "--json")
    document = json.loads(printed(*measure))
    assert [(row["probe"], row["seconds"], row["size"], row["launches"]) for row in document["rows"]] == [
        ("clock", 2e-6, 8, 2)
    ]
    assert [launch.line.block for launch in read_campaign(document["records"]).launches if launch.line] == [0, 1]
    assert "Mean time of an operation" in printed("show", document["records"])


@pytest.mark.parametrize("probe", probes().values(), ids=lambda probe: probe.name)
def test_every_probe_and_option_is_described(probe: ProbeKind[Any]) -> None:
    text = (DOCS / "probe.md").read_text(encoding="utf-8")
    assert f"| `probe {probe.name}` | " in text
    assert [option.name for option in probe.options.table() if f"`--{option.name}" not in text] == []
