"""Campaigns for the views: interleaved configs, tuning, network measurements, and what somebody hostile would leave."""

from __future__ import annotations

from pathlib import Path

import msgspec

from merge_bench.records import schema as s
from merge_bench.records.writer import CampaignWriter
from tests.helpers.synthetic_campaigns import Script, iteration, plan, write_head, write_launch, write_start
from tests.probe.samples import EVIL

BLOCKS = 8


def interleaved(results: Path, faster: float = 1.3) -> Path:
    """Two configs in eight blocks; `tuned` is `faster` times as fast as `default`, whatever the block."""
    shape = plan(launches=BLOCKS)
    with CampaignWriter.create(results, "default") as writer:
        write_head(writer, [("default", 0), ("tuned", 0)], [shape])
        for block in range(BLOCKS):
            for place, (config, speed) in enumerate((("default", 1.0), ("tuned", faster))):
                walls = tuple(wall * (1 + 0.01 * block) / speed for wall in (0.10, 0.11, 0.12))
                write_launch(writer, Script(index=2 * block + place, config=config, plan=shape, walls=walls))
        writer.write(s.CampaignEndLine(status=0))
    return writer.folder


def tuning(results: Path, *, end: int | None = 0, winner: str = "tls-sm+rails-2", name: str = "default") -> Path:
    """A tuning that found two settings, and confirmed them at two sizes; `end` None: it goes on."""
    small, large = plan(tune={"strategy": "race"}), plan(tune={"strategy": "race"}, rows_per_chunk=25_000_000)
    steps = [
        ("screen", "default again", "default", 0, None, 1.001, 0.99, 1.01, "kept", "the noise floor"),
        ("screen", "tls-sm", "default", 0, "tls=sm", 1.32, 1.28, 1.36, "kept", "clearly faster"),
        ("screen", "rails-2", "default", 0, "rails=2", 1.08, 1.04, 1.12, "kept", "clearly faster"),
        ("screen", "eager-1M", "default", 0, "eager=1M", 0.91, 0.88, 0.95, "dropped", "slower"),
        ("screen", "huge", "default", 0, "huge=1", None, None, None, "failed", "it died: out of memory"),
        ("combine", winner, "tls-sm", 0, "rails=2", 1.05, 1.02, 1.08, "kept", "faster together"),
        ("ablate", "rails-2", winner, 0, "tls=sm", 0.78, 0.75, 0.81, "kept", "slower without it"),
        ("ablate", "tls-sm", winner, 0, "rails=2", 0.95, 0.93, 0.97, "kept", "slower without it"),
        ("confirm", winner, "default", 0, None, 1.38, 1.33, 1.44, "accepted", "clearly faster"),
        ("confirm", winner, "default", 1, None, 1.21, 1.15, 1.27, "accepted", "clearly faster"),
    ]
    with CampaignWriter.create(results, name) as writer:
        head = s.CampaignLine(
            campaign_id=writer.campaign_id,
            argv=["/opt/merge_bench/__main__.py", "tune"],
            version="0.1",
            seed=7,
            plans=[small, large],
            configs=[s.Config(name="default")],
            time=1_700_000_000.0,
            runs=[s.RunKey(config="default", plan=0), s.RunKey(config="default", plan=1)],
        )
        writer.write(head)
        write_launch(writer, Script(config="default", plan=small))
        added = {"tls-sm": ["tls=sm"], "rails-2": ["rails=2"], winner: ["tls=sm", "rails=2"]}
        values = {"tls=sm": ("UCX_TLS", "sm"), "rails=2": ("UCX_MAX_RNDV_RAILS", "2")}
        for config, settings in added.items():
            variables = dict(values[setting] for setting in settings)
            writer.write(s.AddedConfigLine(config=s.Config(name=config, variables=variables), settings=settings))
        for number, (phase, config, against, size, setting, ratio, low, high, decision, reason) in enumerate(steps):
            writer.write(
                s.TuningStepLine(
                    phase=phase,
                    config=config,
                    against=against,
                    plan=size,
                    setting=setting,
                    ratio=ratio,
                    low=low,
                    high=high,
                    launches=6,
                    decision=decision,
                    reason=reason,
                    time=head.time + 60.0 * (number + 1),
                )
            )
        if end is not None:
            writer.write(s.CampaignEndLine(status=end))
    return writer.folder


def probing(results: Path, configs: tuple[str, ...] = ("tcp", "optimized")) -> Path:
    """Latency and bandwidth of tag messages on one host and between two, three launches a config."""
    shape = {"probe": "p2p", "workers": 2, "launches": 3}
    with CampaignWriter.create(results, "p2p") as writer:
        write_head(writer, [(config, 0) for config in configs], [shape])
        for launch in range(3 * len(configs)):
            config = configs[launch % len(configs)]
            _write_probes(writer, Script(index=launch, config=config, plan=plan()), 1.0 + launch % len(configs))
        writer.write(s.CampaignEndLine(status=0))
    return writer.folder


def _write_probes(writer: CampaignWriter, script: Script, speed: float) -> None:
    write_start(writer, script)
    for placement, factor in (("one-host", 1.0), ("two-hosts", 4.0)):
        for power in range(3, 23, 2):
            size = 1 << power
            micros = factor * (1.0 + size / 4096 + 0.01 * script.index) / speed
            common = {
                "launch": script.index,
                "probe": "p2p",
                "method": "ucx_perftest",
                "placement": placement,
                "ranks": [0, 1],
                "hosts": ["node0", "node0"],
                "size": size,
                "iterations": 100,
                "requested": {"UCX_TLS": "sm,tcp"},
                "selected": ["sysv/memory"],
                "as_requested": True,
            }
            writer.write(s.ProbeLine(test="tag_lat", seconds=micros * 1e-6, **common))
            rate = size / micros * 1e6
            writer.write(s.ProbeLine(test="tag_bw", bandwidth_bytes_per_second=rate, **common))
    writer.write(s.LaunchEndLine(launch=script.index, status=0, seconds=3.0))


def hostile(results: Path) -> Path:
    """A campaign in which every name, message and remedy is an attack on a page."""
    shape = plan(launches=2, engine=EVIL, rows_per_chunk=EVIL)
    with CampaignWriter.create(results, "evil") as writer:
        write_head(writer, [(EVIL, 0), (f"{EVIL} 2", 0)], [shape])
        for index in range(4):
            script = Script(index=index, config=EVIL if index % 2 else f"{EVIL} 2", plan=plan(launches=2))
            _write_evil_launch(writer, script)
        writer.write(s.WarningLine(code=EVIL, message=EVIL, remedy=EVIL))
        writer.write(s.FailureLine(launch=3, code=EVIL, message=EVIL, host=EVIL, log_tail=EVIL))
        writer.write(s.CampaignEndLine(status=3))
    return writer.folder


def _write_evil_launch(writer: CampaignWriter, script: Script) -> None:
    line = s.LaunchLine(
        launch=script.index,
        config=script.config,
        plan=0,
        block=script.index // 2,
        cluster=s.Cluster(launcher=EVIL, protocol=EVIL, scheduler="javascript:alert(1)"),
        data_bytes=64_000_000,
        workers=[s.Worker(rank=r, host=EVIL, pid=1, name=EVIL, environment={EVIL: EVIL}) for r in range(2)],
        rows=4,
    )
    writer.write(line)
    for index in range(3):
        writer.write(iteration(script, index, 0.1))
    pairs = [s.WorkerPairLanes(from_rank=a, to_rank=1 - a, placement=EVIL, transports=[EVIL]) for a in range(2)]
    writer.write(s.LanesLine(launch=script.index, pairs=pairs))
    writer.write(s.LaunchEndLine(launch=script.index, status=0, seconds=1.0))


def broken(results: Path) -> None:
    """Folders as crashes, full disks and other programs leave them."""
    contents = {
        "empty": b"",
        "half": b'{"schema":1,"kind":"campai',
        "foreign": b"GIF89a\n\x00\xff\n",
        "array": b"[1,2,3]\n",
        "newer": b'{"schema":99,"kind":"campaign"}\n',
        "deep": b"[" * 100_000 + b"\n",
        "<script>alert(1)<\\script>": b"<script>alert(1)</script>\n",
    }
    for name, content in contents.items():
        (results / name).mkdir(parents=True)
        (results / name / "records.jsonl").write_bytes(content)
    whole = (interleaved(results) / "records.jsonl").read_bytes().splitlines(keepends=True)
    (results / "damaged").mkdir()
    (results / "damaged" / "records.jsonl").write_bytes(b"".join([*whole[:9], b"{]\n", *whole[9:]]))
    (results / "cut").mkdir()
    (results / "cut" / "records.jsonl").write_bytes(b"".join(whole)[:-200])
    huge = msgspec.json.decode(whole[0]) | {"time": 1e300}
    (results / "never").mkdir()
    (results / "never" / "records.jsonl").write_bytes(msgspec.json.encode(huge) + b"\n")
