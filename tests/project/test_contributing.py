"""What people who change the project meet first: CI, hooks, templates, and the development container."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from merge_bench.cli import cli
from tests.project.scripts import ROOT

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
TEMPLATES = sorted((ROOT / ".github").rglob("*.md"))
RUN_TESTS = (ROOT / "run-tests.sh").read_text()


def test_the_workflow_runs_what_the_project_runs_and_writes_nothing() -> None:
    (job,) = WORKFLOW["jobs"].values()
    assert job["steps"][-1]["run"] == ".ci/run"
    assert (ROOT / ".ci/run").stat().st_mode & 0o100
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "permissions" not in job
    assert 0 < job["timeout-minutes"] <= 90
    assert [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step] == ["actions/checkout"]
    assert set(WORKFLOW[True]) == {"push", "pull_request"}  # YAML reads `on` as true


def test_hooks_are_local_and_the_same_commands_as_in_run_tests() -> None:
    (repository,) = HOOKS["repos"]
    assert repository["repo"] == "local"
    hooks = repository["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert {hook["id"] for hook in hooks} == {"ruff-check", "ruff-format", "mypy", "import-contracts", "shellcheck"}
    for hook in hooks:
        command = re.sub(r"^\.venv/bin/(\S+)", r'"$bin/\1"', hook["entry"])
        assert f"{command} " in RUN_TESTS.replace("\n", " \n"), command


def test_the_hook_of_scripts_takes_all_that_run_tests_checks() -> None:
    (pattern,) = (hook["files"] for hook in HOOKS["repos"][0]["hooks"] if hook["id"] == "shellcheck")
    assert "-- '*.sh' .ci/run" in RUN_TESTS
    assert all(re.search(pattern, name) for name in ("run-tests.sh", "cluster/locks/update.sh", ".ci/run"))
    assert not any(re.search(pattern, name) for name in ("README.md", "x.ci/run", "configs/tcp.cfg"))


def _devcontainer() -> dict[str, Any]:
    text = (ROOT / ".devcontainer/devcontainer.json").read_text()
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*", "", text, flags=re.MULTILINE))
    return found


def test_the_development_container_is_a_stage_of_the_recipe() -> None:
    build = _devcontainer()["build"]
    recipe = (ROOT / ".devcontainer" / build["dockerfile"]).resolve()
    assert recipe == ROOT / "cluster/Containerfile"
    assert (ROOT / ".devcontainer" / build["context"]).resolve() == ROOT
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", recipe.read_text(), re.MULTILINE)
    assert stages == [("${BASE}", build["target"]), (build["target"], "")]


def test_the_development_container_makes_the_environment_of_the_tests() -> None:
    words = shlex.split(_devcontainer()["postCreateCommand"])
    assert words[:2] == ["bash", "-c"]
    assert words[2].startswith("source cluster/bootstrap.sh && ")
    line = words[2].partition("&& ")[2]
    assert line == 'ensure_venv "$(choose_stack auto)" dev'
    assert {"stack=$(choose_stack auto)", 'ensure_venv "$stack" dev'} <= set(RUN_TESTS.splitlines())


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_name_commands_and_files_that_exist(path: Path) -> None:
    text = path.read_text()
    for words in re.findall(r"python -m merge_bench (\w[\w -]*?)`", text):
        command, *options = words.split()
        found = cli.get_command(click.Context(cli), command)
        assert found is not None
        assert set(options) <= {option for parameter in found.params for option in parameter.opts}
    for name in re.findall(r"[\w./-]+\.(?:md|sh)\b", text):
        assert (ROOT / name).is_file(), name
    if path.parent.name == "ISSUE_TEMPLATE":
        head = yaml.safe_load(text.split("---\n")[1])
        assert {"name", "about"} <= set(head)
