"""Whether `tune -- COMMAND` finds a planted better setting of 17, and none for a command that ignores UCX.

    python -m benchmarks.command_tuning --output FILE.json
    python -m benchmarks.command_tuning --only planted --budget 3m

`planted`: ucx_perftest between two test hosts (network namespaces, needs root), from a baseline with segments of
1 KiB, so that one setting of the space is better: larger ones. `ignored`: `noise.sh`, whose time has noise of its own
and depends on no setting. Both use the same space and budget. Exit status: 0 the planted setting was found and
confirmed, and nothing else; 1 not so; 2 wrong usage; 3 a tuning failed, or it was interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.command_false_alarms import SCRIPT
from benchmarks.goal.bench import SETTINGS, scratch, two_hosts
from benchmarks.processes import options, run_merge_bench, surroundings
from merge_bench.cli.common import ParsedValue
from merge_bench.config.parsers import parse_positive_duration
from merge_bench.records.reader import read_campaign

SCHEMA = 1
CASES = ("planted", "ignored")
PLANTED = "tcp-segments"
"""The setting with two better values."""
BASELINE = "UCX_TLS=tcp,self\nUCX_TCP_TX_SEG_SIZE=1k\nUCX_TCP_RX_SEG_SIZE=1k\n"
SPACE = """
[[setting]]
name = "rendezvous-scheme"
values = [
    { label = "get_zcopy", set = { UCX_RNDV_SCHEME = "get_zcopy" } },
    { label = "put_zcopy", set = { UCX_RNDV_SCHEME = "put_zcopy" } },
    { label = "am", set = { UCX_RNDV_SCHEME = "am" } },
]
[[setting]]
name = "rendezvous-threshold"
values = [
    { label = "1k", set = { UCX_RNDV_THRESH = "1024" } },
    { label = "64k", set = { UCX_RNDV_THRESH = "65536" } },
    { label = "1m", set = { UCX_RNDV_THRESH = "1048576" } },
]
[[setting]]
name = "zero-copy-threshold"
values = [{ label = "16k", set = { UCX_ZCOPY_THRESH = "16384" } }]
[[setting]]
name = "tcp-segments"
values = [
    { label = "report", set = { UCX_TCP_TX_SEG_SIZE = "64k", UCX_TCP_RX_SEG_SIZE = "512k" } },
    { label = "large", set = { UCX_TCP_TX_SEG_SIZE = "256k", UCX_TCP_RX_SEG_SIZE = "256k" } },
]
[[setting]]
name = "tcp-buffers"
values = [{ label = "grow-16", set = { UCX_TCP_TX_BUFS_GROW = "16", UCX_TCP_RX_BUFS_GROW = "16" } }]
[[setting]]
name = "tcp-socket-buffers"
values = [{ label = "4m", set = { UCX_TCP_SNDBUF = "4m", UCX_TCP_RCVBUF = "4m" } }]
[[setting]]
name = "tcp-vectors"
values = [{ label = "64k", set = { UCX_TCP_SENDV_THRESH = "64k" } }]
[[setting]]
name = "tcp-polls"
values = [{ label = "64", set = { UCX_TCP_MAX_POLL = "64" } }]
[[setting]]
name = "tcp-put"
values = [{ label = "n", set = { UCX_TCP_PUT_ENABLE = "n" } }]
[[setting]]
name = "keepalive"
values = [{ label = "off", set = { UCX_KEEPALIVE_INTERVAL = "inf" } }]
[[setting]]
name = "mutex"
values = [{ label = "y", set = { UCX_USE_MT_MUTEX = "y" } }]
[[setting]]
name = "unified-mode"
conflicts = ["rendezvous-scheme=am"]
values = [{ label = "y", set = { UCX_UNIFIED_MODE = "y" } }]
"""
PERFTEST = command.ROOT / "tests/hosts/perftest.sh"
TEST = ("-t", "tag_bw", "-s", "262144", "-n", "50")
HEADINGS = ("case", "settings", "launches", "found", "times as fast", "95 %", "minutes", "as expected")
DURATION = ParsedValue("DURATION", parse_positive_duration)


def tune_planted(folder: Path, budget: float, seed: int) -> dict[str, Any]:
    """Tune ucx_perftest between two test hosts."""
    with two_hosts() as hosts:
        words = [str(PERFTEST), str(hosts.ssh_config), "node2", "node1", *TEST]
        return _tune(folder, ["--preset", "ucx_perftest"], words, budget, seed, hosts)


def tune_ignored(folder: Path, budget: float, seed: int) -> dict[str, Any]:
    """Tune a script that ignores UCX."""
    metric = ["--metric", r"time=re:^time: ([\d.]+) s$", "--unit", "s"]
    return _tune(folder, metric, [str(SCRIPT), "normal", str(seed), "{launch}", "none"], budget, seed)


def _tune(
    folder: Path, metric: Sequence[str], words: Sequence[str], budget: float, seed: int, hosts: Any = None
) -> dict[str, Any]:
    """What a tuning of the command `words` found, and in how many seconds.

    Raises RunFailed if it did not end well.
    """
    space, baseline = folder / "space.toml", folder / "small-segments.cfg"
    space.write_text(SPACE)
    baseline.write_text(BASELINE)
    given = options(
        results=folder / "results",
        space=space,
        output=folder / "tuned.cfg",
        budget=f"{budget:g}s",
        timeout="30s",
        seed=seed,
    )
    document, ended = run_merge_bench(
        [*given, *metric, "--", *words],
        surroundings(*SETTINGS),
        folder / "tune",
        2 * budget + 120.0,
        verb=("tune", str(baseline)),
        hosts=hosts,
    )
    launches = len(read_campaign(document["records"]).launches)
    return {"launches": launches, "seconds": ended.seconds, **summarize(document)}


MEASURES: Mapping[str, Callable[[Path, float, int], dict[str, Any]]] = {
    "planted": tune_planted,
    "ignored": tune_ignored,
}


def summarize(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of the document of ``tune --json``: the winner with its confirmed ratio, and the confirmation."""
    winner = document["winner"]
    confirmed: dict[str, Any] = next(
        (line for line in document["confirmed"] if winner and line["config"] == winner["config"]), {}
    )
    return {
        "settings": len(document["singles"]),
        "winner": winner["settings"] if winner else [],
        **{name: confirmed.get(name) for name in ("ratio", "low", "high")},
        "confirmed": document["confirmed"],
        "stopped": document["stopped"],
    }


def is_expected(case: str, found: Mapping[str, Any]) -> bool:
    """Whether a tuning found what is there: the planted setting, or nothing."""
    planted = any(setting.startswith(f"{PLANTED}=") for setting in found["winner"])
    return planted if case == "planted" else not found["winner"]


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """What each tuning found, as a table in Markdown."""
    rows = []
    for case, one in found.items():
        ratio = ("", "")
        if one["ratio"] is not None:
            ratio = (f"{one['ratio']:.3f}", f"{one['low']:.3f} to {one['high']:.3f}")
        settings = " ".join(one["winner"]) or "nothing"
        expected = "yes" if is_expected(case, one) else "no"
        rows.append(
            (case, str(one["settings"]), str(one["launches"]), settings, *ratio, f"{one['seconds'] / 60:.1f}", expected)
        )
    return command.table(HEADINGS, rows, text=(0, 3, 7))


@click.command(context_settings=command.CONTEXT)
@command.option("--budget", DURATION, "10m", "Limit on the time of the launches of each tuning.")
@command.option("--only", command.NAMES, None, f"Cases: {', '.join(CASES)}.")
@command.SEED
@command.OUTPUT
def tuning(budget: float, only: Sequence[str] | None, seed: int, output: Path | None) -> None:
    """Tune both commands."""
    wanted = command.chosen(only, CASES)
    found: dict[str, dict[str, Any]] = {}
    document = command.head(SCHEMA, budget=budget, found=found)

    def measure() -> None:
        for case in (each for each in CASES if each in wanted):
            with scratch(seed=seed) as bench:
                found[case] = MEASURES[case](bench.folder, budget, seed)
            command.write(output, document)

    status = command.until_interrupted(measure)
    click.echo(table(found))
    click.echo(f"Processor: {document['hardware']['cpu_model']}")
    sys.exit(status or (0 if all(is_expected(*each) for each in found.items()) else 1))


if __name__ == "__main__":
    command.run(tuning, "command_tuning")
