"""Reading a tuning space: what is right is read, what is wrong is one sentence, and the shipped one is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.config.shipped import SPACE
from merge_bench.errors import UsageError
from merge_bench.tune.space import (
    CONDITIONS,
    OPTIONS,
    Setting,
    SettingValue,
    TuningSpace,
    read_tuning_space,
    ucx_version_fulfils,
)
from tests.tune.factorials import space_of, value

ROOT = Path(__file__).resolve().parents[2]
GOOD = """
[[setting]]
name = "mutex"
requires = ["one-host", "no-gpu"]
conflicts = "rails=2"
ucx = [">=1.16", "<1.30"]
risk = "none"
source = "UCX"
values = [{ label = "y", set = { UCX_USE_MT_MUTEX = "y" } }]
[[setting]]
name = "rails"
values = [{ label = "2", set = { UCX_MAX_RNDV_RAILS = "2", UCX_B = "3" } }, { label = "4k", set = { UCX_B = "4" } }]
"""
VALUE = '[[setting]]\nname = "a"\nvalues = [{ label = "y", set = { UCX_A = "y" } }]\n'


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "space.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_space_is_read_as_it_stands(tmp_path: Path) -> None:
    space = read_tuning_space(write(tmp_path, GOOD))
    mutex, rails = space.settings
    assert (mutex.requires, mutex.conflicts, mutex.releases) == (
        ("one-host", "no-gpu"),
        ("rails=2",),
        (">=1.16", "<1.30"),
    )
    assert (mutex.risk, mutex.source, rails.risk) == ("none", "UCX", None)
    assert [value.value_id for value in space.values] == ["mutex=y", "rails=2", "rails=4k"]
    assert rails.values[0].variables == (("UCX_B", "3"), ("UCX_MAX_RNDV_RAILS", "2"))
    assert len(space.sha256) == 64


def test_conflicts_go_both_ways_and_values_of_a_setting_exclude_each_other(tmp_path: Path) -> None:
    space = read_tuning_space(write(tmp_path, GOOD))
    mutex, two, four = space.values
    assert space.conflicting_value_id(mutex, [two]) == "rails=2"
    assert space.conflicting_value_id(two, [mutex]) == "mutex=y"
    assert space.conflicting_value_id(mutex, [four]) is None
    assert space.conflicting_value_id(two, [four]) == "rails=4k"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("setting = [", "Invalid"),
        (b"\xff", "codec can't decode"),
        ("", r"the file must contain \[\[setting\]\] tables and nothing else"),
        ("[[setting]]\n[other]\na = 1", r"the file must contain \[\[setting\]\] tables and nothing else"),
        ("setting = [1]", "setting None: Expected `object`, got `int`"),
        ('[[setting]]\nname = "A b"', "setting 'A b': .*`\\$.name`"),
        ('[[setting]]\nname = "a"', "setting 'a': Object missing required field `values`"),
        ('[[setting]]\nname = "a"\nvalue = 1', "setting 'a': Object contains unknown field `value`"),
        ('[[setting]]\nname = "a"\nvalues = []', r"setting 'a': .* length >= 1 - at `\$.values`"),
        ('[[setting]]\nname = "a"\nvalues = [1]', r"setting 'a': .*`\$.values\[0\]`"),
        ('[[setting]]\nname = "a"\nvalues = [{ label = "y" }]', "missing required field `set`"),
        ('[[setting]]\nname = "a"\nvalues = [{ label = "a b", set = { UCX_A = "1" } }]', r"`\$.values\[0\].label`"),
        ('[[setting]]\nname = "a"\nvalues = [{ label = "x+y", set = { UCX_A = "1" } }]', r"`\$.values\[0\].label`"),
        ('[[setting]]\nname = "a"\nvalues = [{ label = 2, set = { UCX_A = "1" } }]', r"`\$.values\[0\].label`"),
        ('[[setting]]\nname = "a"\nvalues = [{ label = "y", set = {} }]', r"length >= 1 - at `\$.values\[0\].set`"),
        ('[[setting]]\nname = "a"\nvalues = [{ label = "y", set = { UCX_A = 1 } }]', "Expected `str`, got `int`"),
        ('[[setting]]\nname = "a"\nvalues = [{ label = "y", set = { UCX_A = "" } }]', r"`\$.values\[0\].set\[...\]`"),
        ('[[setting]]\nname = "a"\nvalues = [{ label = "y", set = { UCX_A = "1\\n2" } }]', r"values\[0\].set\[...\]`"),
        ('[[setting]]\nname = "a"\nvalues = [{ label = "y", set = { ucx_a = "1" } }]', r"key.* `\$.values\[0\].set`"),
        (VALUE + 'requires = ["moon"]', r"'moon' - at `\$.requires\[0\]`"),
        (VALUE + "requires = 3", r"got `int` - at `\$.requires`"),
        (VALUE + 'ucx = ["=1.2"]', r"at `\$.ucx\[0\]`"),
        (VALUE + "risk = 3", r"got `int` - at `\$.risk`"),
        (VALUE + 'conflicts = ["b"]', "a conflicts with b, which is not in the tuning space"),
        (VALUE + VALUE, "a occurs twice"),
        (VALUE.replace("UCX_A", "MERGE_BENCH_CHUNK"), "cannot set MERGE_BENCH_CHUNK"),
        (VALUE.replace("UCX_A", "MERGE_BENCH_VERIFY"), "cannot set MERGE_BENCH_VERIFY"),
        (VALUE.replace("UCX_A", "MERGE_BENCH_MESSAGE_SIZE"), "MERGE_BENCH_MESSAGE_SIZE=y: "),
        (VALUE.replace("UCX_A", "MERGE_BENCH_ENGINE"), "MERGE_BENCH_ENGINE=y: 'y' is not one of auto, native"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_that_names_the_file(
    tmp_path: Path, text: str | bytes, says: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=says) as refused:
        read_tuning_space(path)
    assert str(refused.value).startswith(f"--space {path}: ")
    assert "\n" not in str(refused.value)


def test_a_label_cannot_stand_twice(tmp_path: Path) -> None:
    twice = '[[setting]]\nname = "a"\nvalues = [{ label = "y", set = { A = "1" } }, { label = "y", set = { A = "2" } }]'
    with pytest.raises(UsageError, match="a=y occurs twice"):
        read_tuning_space(write(tmp_path, twice))


def test_a_space_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.toml: No such file"):
        read_tuning_space(tmp_path / "nowhere.toml")


def test_only_takes_settings_that_are_there() -> None:
    space = space_of("abc")
    assert [setting.name for setting in space.restricted_to_names(["c", "a"]).settings] == ["a", "c"]
    with pytest.raises(UsageError, match="the tuning space has no setting x; its settings are a, b, c"):
        space.restricted_to_names(["x"])
    two = TuningSpace(
        (Setting("a", (value("a"), SettingValue("a", "n", (("UCX_A", "n"),)))), *space.settings[1:]), "0" * 64
    )
    assert [each.value_id for each in two.restricted_to_names(["a=n", "c"]).values] == ["a=n", "c=y"]
    with pytest.raises(UsageError, match="the tuning space has no a=x; it has a=y, a=n"):
        two.restricted_to_names(["a=x"])


@pytest.mark.parametrize(
    ("conditions", "version", "so"),
    [
        ([">=1.16"], "1.16.0", True),
        ([">=1.16"], "1.9.0", False),
        (["<1.20"], "1.20.1", False),
        (["<1.20"], "1.19", True),
        ([">=1.16", "<1.20"], "1.18.0", True),
        ([], "1.2", True),
        ([">=1.16"], "unknown", False),
        ([">=1.9"], "2.0.0", True),
    ],
)
def test_releases_are_numbers_not_texts(conditions: list[str], version: str, so: bool) -> None:
    assert ucx_version_fulfils(conditions, version) is so


def test_the_shipped_space_is_read_and_says_where_each_setting_is_from() -> None:
    space = read_tuning_space(SPACE)
    assert len(space.settings) > 15
    assert all(setting.source for setting in space.settings)


def test_every_condition_and_option_is_documented() -> None:
    text = (ROOT / "docs" / "tune.md").read_text()
    assert not [name for name in CONDITIONS | OPTIONS if f"`{name}`" not in text]


@pytest.mark.parametrize(
    ("name", "words"), [("LD_LIBRARY_PATH", "libraries"), ("UCX_MODULE_DIR", "load"), ("MINE", "not a known setting")]
)
def test_a_space_brings_code_only_where_it_is_trusted(tmp_path: Path, name: str, words: str) -> None:
    text = f'[[setting]]\nname = "s"\nvalues = [{{ label = "a", set = {{ {name} = "/x" }} }}]\n'
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=rf"space\.toml: s=a: {name} .*{words}.*--trust-config"):
        read_tuning_space(path)
    assert read_tuning_space(path, trusted=True).values[0].variables == ((name, "/x"),)
