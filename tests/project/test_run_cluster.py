"""run-cluster.sh: its options, and the command that it starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.project.scripts import ROOT, Miniature, call, command, run


def test_help_names_every_option() -> None:
    done = run([ROOT / "run-cluster.sh", "--help"])
    for option in ("--setup-only", "--stack cpu|cu12|cu13", "--ucx auto|wheel|system", "CONFIG"):
        assert option in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.cfg"], "no config 'nowhere.cfg'"),
        (["--stack", "cu11"], "'cu11'"),
        (["--ucx=mine"], "'mine'"),
        (["--stack"], "--stack needs a value"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = run([ROOT / "run-cluster.sh", *arguments], cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def front_door(tmp_path: Path) -> Path:
    """A repository whose .venv is current and whose Python prints how it was started."""
    root = Miniature(tmp_path).root
    (root / "configs").mkdir()
    for name in ("default.cfg", "optimized.cfg"):
        (root / "configs" / name).touch()
    show = 'if [[ $1 == -I ]]; then echo 3.11; else printf "%s|" "$MERGE_BENCH_RESULTS" "$@"; fi'
    command(root / ".venv/bin", "python", show)
    complete = 'wanted_stamp cpu >"$VENV_STAMP"; checksum "$ROOT/pyproject.toml" >"$VENV/.merge-bench-project"'
    assert call(complete, root).returncode == 0
    return root


def started(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    results, *arguments = done.stdout.split("|")[:-1]
    assert arguments[:4] == ["-P", "-m", "merge_bench", "run"]
    return [results, *arguments[4:]]


def test_configs_are_found_from_anywhere_and_options_go_on(front_door: Path, tmp_path: Path) -> None:
    script, results, configs = front_door / "run-cluster.sh", str(front_door / "results"), front_door / "configs"
    cwd = tmp_path / "elsewhere"
    cwd.mkdir()
    (tmp_path / "link.sh").symlink_to(script)

    def go(*arguments: str, program: Path = script, **environment: str) -> list[str]:
        return started(run([program, *arguments], environment, cwd=cwd))

    assert go() == [results, "--config", str(configs / "default.cfg")]
    assert go("optimized.cfg", "--chunk", "25e6", program=tmp_path / "link.sh") == [
        results,
        "--config",
        str(configs / "optimized.cfg"),
        "--chunk",
        "25e6",
    ]
    assert go("optimized") == [results, "--config", str(configs / "optimized.cfg")]
    default = [results, "--config", str(configs / "default.cfg")]
    assert go("--on", "a b", "--ucx", "wheel") == [*default, "--on", "a b", "--ucx", "wheel"]
    assert go("--ucx=system", "--stack", "cpu") == [*default, "--ucx", "system"]
    assert go("optimized", "--trust-config") == [results, "--config", str(configs / "optimized.cfg"), "--trust-config"]
    assert go("--configs", "a,b") == [results, "--configs", "a,b"]
    (cwd / "optimized.cfg").touch()
    assert go("optimized.cfg", MERGE_BENCH_RESULTS="/mine") == ["/mine", "--config", "optimized.cfg"]
    assert go("optimized") == [results, "--config", "optimized.cfg"]

    unknown = run([script, "fast.cfg"], cwd=cwd)
    assert unknown.returncode == 2
    assert "configs/ contains: default.cfg optimized.cfg." in unknown.stderr


def test_a_config_is_never_executed(front_door: Path) -> None:
    (front_door / "configs/evil.cfg").write_text(f"touch '{front_door}/executed'\n$(touch '{front_door}/executed')\n")
    run([front_door / "run-cluster.sh", "evil.cfg"])
    assert not (front_door / "executed").exists()
