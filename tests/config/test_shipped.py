"""The shipped configs: listed, shown, copied, and the same files in a checkout as in the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from merge_bench.cli import cli
from merge_bench.config.shipped import FOLDER, find_shipped_file, shipped_config_names, shipped_files
from merge_bench.errors import UsageError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configs(*words: str) -> Result:
    return CliRunner().invoke(cli, ["configs", *words], standalone_mode=False)


def test_there_is_one_copy_and_it_is_configs_of_the_repository() -> None:
    assert FOLDER == CONFIGS
    assert shipped_config_names() == sorted(path.name for path in CONFIGS.glob("*.cfg"))
    assert {path.name for path in CONFIGS.iterdir()} == {each.name for each in shipped_files()}


def test_the_list_names_every_file_with_its_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # without releases of UCX
    lines = dict(line.split(maxsplit=1) for line in configs().output.splitlines())
    assert lines["tcp.cfg"] == "everything goes over TCP."
    assert set(lines) == {*shipped_config_names(), "space.toml"}
    document = json.loads(configs("--json").output)
    assert [each["name"] for each in document["configs"]] == shipped_config_names()
    assert all(each["about"] == lines[each["name"]] for each in document["configs"])
    assert Path(document["space"]["path"]) == CONFIGS / "space.toml"


@pytest.mark.parametrize("name", ["tcp.cfg", "tcp"])
def test_show_prints_the_shipped_file_whatever_lies_here(empty: Path, name: str) -> None:
    (empty / "tcp.cfg").write_text("# mine\n")
    assert configs("show", name).output == (CONFIGS / "tcp.cfg").read_text()


def test_copies_can_be_changed_and_are_not_overwritten_unasked(empty: Path) -> None:
    (empty / "folder").mkdir()
    copies = [(("optimized",), "optimized.cfg"), (("tcp", "mine.cfg"), "mine.cfg")]
    copies += [(("space.toml", "folder"), "folder/space.toml")]
    for words, written in copies:
        assert configs("copy", *words).output == f"{written}\n"
        assert (empty / written).read_text() == find_shipped_file(words[0]).read_text()
    (empty / "mine.cfg").write_text("# mine\n")
    refused = configs("copy", "tcp", "mine.cfg")
    assert refused.exit_code == UsageError.exit_status
    assert (empty / "mine.cfg").read_text() == "# mine\n"
    assert configs("copy", "tcp", "mine.cfg", "--force").output == "mine.cfg\n"
    assert (empty / "mine.cfg").read_text() == (CONFIGS / "tcp.cfg").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("show", "nothing"),
        ("show", "../pyproject.toml"),
        ("show", str(CONFIGS / "tcp.cfg")),
        ("copy", "nothing"),
        ("copy", "tcp", "no-folder/mine.cfg"),
        ("copy", "tcp", str(CONFIGS), "--force"),
    ],
)
def test_mistakes_are_refused(empty: Path, words: tuple[str, ...]) -> None:
    assert configs(*words).exit_code == UsageError.exit_status
    assert list(empty.iterdir()) == []
    assert (CONFIGS / "tcp.cfg").read_text().startswith("# tcp.cfg")
