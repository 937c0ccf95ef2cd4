"""A tuning between two hosts whose link has a known rate: every setting is judged, no more claimed than was seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from merge_bench.campaign.recording import ENVIRONMENT_DIFFERS
from tests.hosts.conftest import Run
from tests.hosts.make_hosts import Hosts

pytestmark = [pytest.mark.soak, pytest.mark.cluster]

SETTINGS = {"message-size=1m", "rendezvous-scheme=get_zcopy"}
SPACE = """
[[setting]]
name = "message-size"
requires = ["data-plane", "several-hosts"]
values = [{ label = "1m", set = { MERGE_BENCH_MESSAGE_SIZE = "1MiB" } }]
[[setting]]
name = "rendezvous-scheme"
values = [{ label = "get_zcopy", set = { UCX_RNDV_SCHEME = "get_zcopy" } }]
[[setting]]
name = "transports"
requires = ["one-host"]
values = [{ label = "sysv", set = { UCX_TLS = "sysv,cma,self" } }]
"""


def test_a_tuning_between_two_hosts_judges_every_setting(
    hosts: Hosts, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host in hosts.hosts:  # not the processors are measured here
        assert host.namespaces is not None
        os.setpriority(os.PRIO_PROCESS, host.namespaces.pid, -19)
    space, output = tmp_path / "space.toml", tmp_path / "tuned.cfg"
    space.write_text(SPACE)
    outcome = Run(
        hosts,
        results,
        "--hosts",
        str(hosts.write_hosts(["node1", "node2"], "pair.txt")),
        "--space",
        str(space),
        "--output",
        str(output),
        "--chunk",
        "4e6",
        "--iterations",
        "3",
        "--most-blocks",
        "4",
        "--confirm",
        "6",
        "--timeout",
        "60",
        "--start-timeout",
        "120",
        command=("tune", "default.cfg"),
    ).finish(1800)
    document = outcome.document
    assert outcome.status == 0, outcome.errors
    assert {line["setting"] for line in document["singles"]} == SETTINGS
    assert {line["decision"] for line in document["singles"]} <= {"kept", "dropped", "failed"}
    assert [each["value"] for each in document["pruned"]] == ["transports=sysv"]
    assert output.exists() == (document["winner"] is not None) == (document["config"] == str(output))
    warned = [warning.code for launch in outcome.campaign.launches for warning in launch.warnings]
    assert ENVIRONMENT_DIFFERS not in warned  # every worker has the settings of its config, and the launcher's
    accepted = [line for line in document["confirmed"] if line["decision"] == "accepted"]
    assert bool(accepted) == output.exists()
    for line in accepted:
        assert line["low"] > 1
    with capsys.disabled():
        for line in (*document["singles"], *document["combined"], *document["confirmed"]):
            interval = "" if line["low"] is None else f" ({line['low']:.3f} to {line['high']:.3f})"
            ratio = "not measured" if line["ratio"] is None else f"{line['ratio']:.3f}"
            print(f"\n{line['phase']} {line['config']}: {ratio}{interval}", end="")
            print(f", {line['launches']} blocks: {line['decision']}, {line['reason']}", end="")
        print(f"\nfound: {(document['winner'] or {}).get('settings', 'nothing')}")
