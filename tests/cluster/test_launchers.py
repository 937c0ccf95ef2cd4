"""The folder of launchers: what its files declare is what the program offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.cluster.base import LauncherKind
from merge_bench.cluster.launchers import launcher_choices, launchers_by_name
from tests.helpers.members import run_with

DOCS = Path(__file__).parents[2] / "docs"
ELSEWHERE = """
from merge_bench.cluster.base import BatchSystem, LauncherKind
from merge_bench.cluster.hosts import HostSpec

LAUNCHER = LauncherKind(
    name="elsewhere",
    help="Hosts that are elsewhere.",
    auto="elsewhere inside ELSEWHERE",
    inside=lambda environ: "ELSEWHERE" in environ,
    hosts=lambda values, environ: (HostSpec(environ["ELSEWHERE"], slots=2),),
    reach=lambda host, command, settings: ("reach", host.name, *command),
    batch=BatchSystem("ELSE", "esub", "else.job", "# {{ batch.file }}\\n", "HERE"),
)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    return tmp_path


def merge_bench(folder: Path, *words: str, **environment: str) -> str:
    return run_with("merge_bench.cluster.launchers", folder, *words, **environment).stdout


def test_one_file_more_is_one_launcher_more(folder: Path) -> None:
    shown = " ".join(merge_bench(folder, "run", "--help").split())
    assert "|".join([*launcher_choices(), "elsewhere"]) in shown
    assert "several nodes, elsewhere inside ELSEWHERE, else local." in shown
    job = merge_bench(folder, "submit", "--launcher", "elsewhere", "--nodes", "1", "--time", "5:00")
    assert "\n# else.job\n" in job
    assert job.endswith('cd "$HERE"\n./run-cluster.sh optimized.cfg --launcher elsewhere\n')


def test_it_is_chosen_by_the_environment_and_reaches_its_hosts(folder: Path) -> None:
    shown = merge_bench(folder, "run", "--dry-run", "--engine", "polars", ELSEWHERE="h7").splitlines()
    assert [line for line in shown if line.startswith("#")] == [
        "# agent on h7",
        "# scheduler on h7",
        "# worker-0 on h7, with the environment of scheduler on h7",
        "# worker-1 on h7, with the environment of scheduler on h7",
    ]
    assert shown[1].startswith("reach h7 ")


@pytest.mark.parametrize("kind", launchers_by_name().values(), ids=lambda kind: kind.name)
def test_every_launcher_is_described(kind: LauncherKind) -> None:
    text = (DOCS / "first-cluster.md").read_text(encoding="utf-8")
    assert f"| `{kind.name}` | {kind.help} |" in text.splitlines()
    assert f"[`{kind.name}`](#" in text


def test_each_can_be_made_in_one_way() -> None:
    assert all((kind.make is None) == (kind.reach is not None) for kind in launchers_by_name().values())
    assert (
        next(kind.name for kind in launchers_by_name().values() if kind.starts_here) == "local"
    )  # what auto falls back to
