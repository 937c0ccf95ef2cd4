"""How commands are declared: what they require, and how their exit status leaves the process."""

from __future__ import annotations

import json
import re
import sys

import click
import pytest
from click.testing import CliRunner

from merge_bench import cli
from merge_bench.errors import RunFailed


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["submit", "--launcher", "slurm", "--time", "10:00"], ["--nodes"]),
        (["submit", "--nodes", "1"], ["--launcher", "--time"]),
        (["submit"], ["--launcher", "--nodes", "--time"]),
        (["predict", "result", "--hosts", "1"], ["--workers"]),
    ],
)
def test_required_options_that_are_missing_are_named_all_at_once(words: list[str], option: list[str]) -> None:
    done = CliRunner().invoke(cli.cli, words)
    assert done.exit_code == 2
    assert [word for word in re.findall(r"--[a-z]+", done.stderr) if word != "--help"] == option


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (3, 3), (5, 5)])
def test_what_a_command_returns_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, returned: int | None, status: int
) -> None:
    monkeypatch.setitem(cli.cli.commands, "run", click.Command("run", callback=lambda: returned))
    monkeypatch.setattr(sys, "argv", ["merge-bench"])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert (leaving.value.code or 0) == status


def test_an_error_is_a_message_a_document_and_a_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(**_: object) -> None:
        raise RunFailed("it broke")

    command = click.Command("run", params=[click.Option(["--json"], is_flag=True)], callback=fails)
    monkeypatch.setitem(cli.cli.commands, "run", command)
    monkeypatch.setattr(sys, "argv", ["merge-bench", "--json"])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert leaving.value.code == RunFailed.exit_status
    out, err = capsys.readouterr()
    assert err == "merge_bench: it broke\n"
    error = {"code": RunFailed.code, "message": "it broke", "host": None, "rank": None}
    assert json.loads(out) == {"error": error}


@pytest.mark.parametrize(
    ("words", "key", "values"),
    [
        (["--fail-on", "slower", "--fail-on", "inconclusive"], "fail_on", ("slower", "inconclusive")),
        (["--fail-on=slower,inconclusive", "--fail-on", "slower"], "fail_on", ("slower", "inconclusive")),
        (["--configs", "a.cfg", "--configs", "b.cfg"], "configs", ("a.cfg", "b.cfg")),
        (["--require-transport", "rc,dc", "--require-transport", "tcp"], "require_transport", ("rc", "dc", "tcp")),
        ([], "fail_on", None),
        ([], "require_transport", None),
    ],
)
def test_an_option_that_takes_a_list_can_be_repeated(words: list[str], key: str, values: object) -> None:
    context = cli.cli.commands["run"].make_context("run", words)
    assert context.params[key] == values


def test_the_settings_of_a_tuning_can_be_repeated() -> None:
    context = cli.cli.commands["tune"].make_context("tune", ["--only", "a,b", "--only", "c=4m"])
    assert context.params["only"] == ("a", "b", "c=4m")
