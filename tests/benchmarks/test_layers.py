"""What `benchmarks.layers` makes of the rates that it measures, and that it measures each layer once a block."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import layers
from benchmarks.layers import LAYERS, Setting, rows, table

RATES = {
    "hardware": [100e6] * 6,
    "ucx_perftest": [90e6, 80e6, 90e6, 90e6, 90e6, 90e6],
    "mpi": [80e6] * 6,
    "data plane": [45e6, 80e6, 45e6, 45e6, 45e6, 45e6],
    "merge": [40e6] * 6,
    "dask p2p": [4e6] * 6,
}


def test_a_layer_has_its_share_of_the_hardware_and_its_loss_against_the_layer_above_by_block() -> None:
    found = {row["layer"]: row for row in rows(RATES)}
    assert [row["share"] for row in found.values()] == pytest.approx([1.0, 0.9, 0.8, 0.45, 0.4, 0.04])
    losses = {name: row["loss"] for name, row in found.items()}
    assert losses.pop("hardware") is None
    assert losses == pytest.approx(
        {"ucx_perftest": 0.1, "mpi": 1 / 9, "data plane": 0.5, "merge": 1 / 9, "dask p2p": 0.9}
    )
    assert (found["data plane"]["low"], found["data plane"]["high"]) == (45e6, 80e6)  # of six blocks: all of them


def test_few_blocks_have_no_interval_and_layers_that_were_not_measured_no_row() -> None:
    found = rows({"ucx_perftest": [90e6], "hardware": []})
    assert [(row["layer"], row["low"], row["share"], row["loss"]) for row in found] == [
        ("ucx_perftest", None, None, None)
    ]
    assert "| 90 |" in table(found)


def test_a_worker_receives_what_others_hold_of_both_frames() -> None:
    assert Setting(4, 1_000_000, 5, None).received == 2 * 1_000_000 * 16 * 3 // 4


def test_every_layer_is_measured_once_in_each_block_and_kept_at_once(monkeypatch: Any, tmp_path: Path) -> None:
    class Known(layers.Measurer):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.layers = {name: functools.partial(self.rate, name) for name in self.layers}

        def rate(self, name: str) -> float:
            self.copied = 100e6
            kept = json.loads(output.read_text())["rates"] if output.exists() else {}
            seen.append((name, sum(map(len, kept.values()))))
            return 50e6

    seen: list[tuple[str, int]] = []
    output = tmp_path / "layers.json"
    monkeypatch.setattr(layers, "Measurer", Known)
    ended = CliRunner().invoke(layers.layers, ["--blocks", "2", "--output", str(output)])
    assert ended.exit_code == 0, ended.output
    names = sorted(layer.name for layer in LAYERS if layer.name != "hardware")
    assert sorted(name for name, _ in seen[:5]) == sorted(name for name, _ in seen[5:]) == names
    assert [kept for _, kept in seen] == sorted({kept for _, kept in seen})  # each is on the disk before the next
    assert {name: len(values) for name, values in json.loads(output.read_text())["rates"].items()} == dict.fromkeys(
        [layer.name for layer in LAYERS], 2
    )
    shown = CliRunner().invoke(layers.layers, ["--show", str(output)])
    assert "| data plane |" in shown.output
    assert "50.0%" in shown.output
