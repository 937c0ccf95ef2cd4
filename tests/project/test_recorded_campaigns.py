"""Campaigns that were recorded once read the same for ever: each document that the commands make of them is kept.

`tests/data/campaigns` has one small real campaign of each kind, with the documents made from it when it was recorded.
After an intended change to documents, run `python -m tests.project.test_recorded_campaigns` and read the diff.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from merge_bench import api
from merge_bench.cli import cli
from merge_bench.records.reader import read_campaign
from merge_bench.report.page import read_ucx_defaults
from merge_bench.report.page.build import PublishedReferences, build_report
from merge_bench.view import markdown

DATA = Path(__file__).resolve().parents[1] / "data" / "campaigns"
MERGES = ("run", "baseline", "sweep", "tables", "one-sender", "gpu", "import", "failed", "interrupted")
PROBES = ("p2p", "mpi", "reduce-scatter")
COMMANDS: Mapping[tuple[str, str], Sequence[str]] = {
    ("sweep", "comparison.json"): ("compare", "sweep", "--json"),
    ("sweep", "comparison.md"): ("compare", "sweep", "--markdown"),
    ("run", "forecast.json"): (
        "predict",
        "run",
        "--workers",
        "8",
        "--hosts",
        "2",
        "--link",
        "nic=12.5GB/s,2us",
        "--json",
    ),
    **{(kind, "rows.json"): ("probe", "show", kind, "--json") for kind in PROBES},
    **{(kind, "rows.txt"): ("probe", "show", kind) for kind in PROBES},
}
KINDS = (*MERGES, *PROBES, "tune")
MADE = [
    *((kind, "document.json") for kind in KINDS),
    *((kind, "frames.json") for kind in KINDS),
    *((kind, "report.md") for kind in KINDS),
    *COMMANDS,
]


def made(kind: str, name: str) -> str:
    """A document of one campaign, as text; the working folder must be `DATA`, since documents name their records."""
    if name == "document.json":
        return json.dumps(api.load(kind).document)
    if name == "frames.json":
        result = api.load(kind)
        frames = {
            each: getattr(result, each)("polars").to_dicts()
            for each in ("iterations", "workers", "pairs", "launches", "probes")
        }
        return json.dumps(frames, default=str)
    if name == "report.md" and kind in MERGES:  # without the page: tests/view/html_report has those of merges
        campaigns = [read_campaign(kind)]
        return markdown.render_report(build_report(campaigns, PublishedReferences(), read_ucx_defaults(campaigns)), {})
    if name == "report.md":
        with tempfile.TemporaryDirectory() as folder:
            page, text = Path(folder) / "report.html", Path(folder) / "report.md"
            invoked("report", kind, "--output", str(page), "--markdown", str(text))
            return text.read_text()
    return invoked(*COMMANDS[kind, name])


def invoked(*words: str) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def same(found: Any, kept: Any) -> bool:
    """Equal; numbers but for what another order of adding up changes."""
    if isinstance(kept, Mapping):
        return isinstance(found, Mapping) and list(found) == list(kept) and all(same(found[k], kept[k]) for k in kept)
    if isinstance(kept, list):
        return isinstance(found, list) and len(found) == len(kept) and all(map(same, found, kept))
    if isinstance(kept, float):
        return isinstance(found, float | int) and found == pytest.approx(kept, rel=1e-9)
    return type(found) is type(kept) and found == kept


@pytest.mark.parametrize(("kind", "name"), MADE)
def test_it_reads_the_same(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    kept = (DATA / kind / name).read_text()
    found = made(kind, name)
    if name.endswith(".json"):
        assert same(json.loads(found), json.loads(kept))
    else:
        assert found == kept


if __name__ == "__main__":
    os.chdir(DATA)
    for kind, name in MADE:
        text = made(kind, name)
        if name.endswith(".json"):
            text = json.dumps(json.loads(text), indent=1) + "\n"
        Path(kind, name).write_text(text)
        print(f"{kind}/{name}: {len(text)} characters")
