"""Every option and variable that takes a path, with every kind of bad name: one sentence with the name, status 2."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merge_bench import cli
from merge_bench.cli.common import ParsedValue
from merge_bench.config import parsers
from merge_bench.config.options import OPTIONS
from tests.campaign.importing.texts import text
from tests.helpers.mutations import CAMPAIGNS
from tests.helpers.rights import without_passing_over_permissions

PATHS = (parsers.parse_path, parsers.parse_paths, parsers.parse_result)
MEANS_A_PATH = re.compile(r"FILE|DIR|PATH|FOLDER|CFG|CONFIG|RESULT|DEST|BASELINE")
NO_PATHS = {("submit", "[CONFIG] [OPTION]...")}  # passed on to the job as they are

LEXICAL = ("too long", "no such user", "nul", "empty", "loop")
"""Names that no file can have here, refused before anything else; a loop of links is none either."""


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Bad names by what is wrong with them, in a folder that is the working folder."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "file").write_text("text\n")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "fifo")
    shut = folder / "shut"
    (shut / "inside").mkdir(parents=True)
    (shut / "inside" / "records.jsonl").write_text("{}\n")
    if os.getuid() == 0:
        os.chown(shut, 65534, 65534)
    shut.chmod(0o700 if os.getuid() == 0 else 0)
    yield {
        "missing": str(folder / "none" / "x"),
        "too long": "x" * 300,
        "no such user": "~nosuchuser42/x",
        "below a file": str(folder / "file" / "x"),
        "loop": str(folder / "loop"),
        "shut": str(shut / "inside"),
        "fifo": str(folder / "fifo"),
        "device": "/dev/zero",
        "not UTF-8": str(folder / "none\udcff" / "x"),
        "nul": "a\0b",
        "empty": "",
    }
    shut.chmod(0o700)


def commands(
    group: click.Group = cli.cli, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*above, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))


COMMANDS = dict(commands())


def path_parameters(command: click.Command) -> list[click.Parameter]:
    return [each for each in command.params if isinstance(each.type, ParsedValue) and each.type.parse in PATHS]


def test_every_parameter_that_means_a_path_has_the_type_of_paths() -> None:
    for words, command in COMMANDS.items():
        for each in command.params:
            metavar = each.metavar or ""
            if MEANS_A_PATH.search(metavar) and (words[0], metavar) not in NO_PATHS:
                assert each in path_parameters(command), (words, each.name)


STORED = str(CAMPAIGNS / "sweep")
BEFORE = {
    ("run",): ["--chunk", "1e4", "--dry-run"],
    ("tune",): ["--dry-run"],
    ("exec",): ["--dry-run"],
    ("bisect",): ["--ucx", "1.19.0,1.22.0", "--dry-run"],
    ("report",): [],
    ("predict",): ["--workers", "4"],
    ("serve",): ["--check"],
    ("import",): [],
    ("jobs", "list"): ["--service", "http://127.0.0.1:1"],
    ("jobs", "show"): ["1", "--service", "http://127.0.0.1:1"],
    ("jobs", "cancel"): ["1", "--service", "http://127.0.0.1:1"],
    ("dashboard",): ["--no-open", "--port", "0"],
    ("configs", "copy"): ["default.cfg"],
}
TOGETHER = {
    "left": ["--right", "whole.parquet", "--on", "id"],
    "right": ["--left", "whole.parquet", "--on", "id"],
    "tls_cert": ["--tls-key", __file__],
    "tls_key": ["--tls-cert", __file__],
}
"""What an option needs beside it."""


def words_for(words: tuple[str, ...], parameter: click.Parameter, name: str, results: Path) -> list[str]:
    measures = words[0] == "probe" and words[1:] != ("show",)
    before = ["--dry-run"] if measures else BEFORE.get(words, [])
    given = [*words, *before, *TOGETHER.get(parameter.name or "", [])]
    if isinstance(parameter, click.Argument):
        return [*given, "--", name] if "--" not in given else [*given, name]
    if words in (("exec",), ("bisect",)):  # what comes after the command's name is the command's own
        metric = ["--metric", "speed=re:(.*)", "--better", "more"]
        return [*given, *metric, parameter.opts[0], name, "true"]
    whole = {"report": [STORED], "predict": [STORED], "export": [STORED]}
    if words == ("probe", "show"):
        given.append(str(CAMPAIGNS / "p2p"))
    if words == ("import",):
        (results / "printed.txt").write_text(text())
        given.append(str(results / "printed.txt"))
        return [*given, parameter.opts[0], name]
    return [*given, *whole.get(words[0], []), parameter.opts[0], name]


def accepted(words: tuple[str, ...], parameter: click.Parameter, what: str) -> bool:
    """Whether the name is good there, or what it names is not looked at."""
    if what in LEXICAL:
        return False
    if parameter.name == "results" and words[0] in ("run", "tune", "probe", "exec", "bisect"):
        return True  # `import` shows what making a results folder says
    if parameter.name == "metric_file":
        return True  # the command writes it
    if what in ("missing", "not UTF-8"):
        return parameter.name in ("results", "figures", "write_result")  # is made
    if what in ("fifo", "device"):  # is written to
        return parameter.name in ("output", "markdown", "plots", "csv_file", "destination")
    return False


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[object, str]:
    monkeypatch.setattr(sys, "argv", ["merge-bench", *words])
    with pytest.raises(SystemExit) as ended, without_passing_over_permissions():
        cli.main()
    said = capsys.readouterr().err
    if table := os.environ.get("TABLE_OF_NAMES"):
        with open(table, "a", encoding="utf-8", errors="backslashreplace") as file:
            print(ended.value.code, words, said.strip()[-200:], sep=" | ", file=file)
    return ended.value.code, said


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [words for words, command in COMMANDS.items() if path_parameters(command)], ids=" ".join
)
def test_every_path_option(
    names: Mapping[str, str],
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": [1]}), "whole.parquet")
    wrong = []
    for parameter in path_parameters(COMMANDS[words]):
        for what, name in names.items():
            if accepted(words, parameter, what):
                continue
            status, said = call(monkeypatch, capsys, words_for(words, parameter, name, tmp_path))
            shown = name[-6:].encode("utf-8", "surrogateescape").decode("utf-8", "replace").split("/")[-1]
            expected = (2, 3) if words == ("serve",) else (2,)  # 3: what `--check` finds
            if status not in expected or "Traceback" in said or (shown and what != "nul" and shown not in said):
                wrong.append((parameter.name, what, status, said[-300:]))
    assert not wrong, "\n".join(map(str, wrong))


VARIABLES = [option.environment_variable for option in OPTIONS if option.in_config and option.parse in PATHS]


@pytest.mark.slow
@pytest.mark.parametrize("variable", VARIABLES)
def test_every_variable_with_a_path(
    names: Mapping[str, str],
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": [1]}), "whole.parquet")
    key = variable.removeprefix("MERGE_BENCH_").lower()
    results = variable.endswith("_RESULTS")
    for what, name in names.items():
        if what in ("nul", "empty") or (results and what not in LEXICAL):  # the environment cannot have it
            continue
        monkeypatch.setenv(variable, name)
        status, said = call(monkeypatch, capsys, ["run", "--chunk", "1e4", "--dry-run", *TOGETHER.get(key, [])])
        assert (status, "Traceback" in said) == (2, False), (what, said)
        assert name.rpartition("/")[2][-6:].encode("ascii", "backslashreplace").decode() in said or "no such" in said
