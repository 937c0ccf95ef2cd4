"""Command line > config > environment > default, with the source of each value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from merge_bench.campaign import options_of_run
from merge_bench.cli.common import SectionedHelpCommand, add_options
from merge_bench.config.options import OPTIONS, RunOptions, resolve_options
from merge_bench.config.reader import ConfigFile, read_config
from merge_bench.errors import UsageError


def config(folder: Path, text: str) -> ConfigFile:
    path = folder / "a.cfg"
    path.write_text(text)
    return read_config(path, {})


def on_the_command_line(*arguments: str) -> RunOptions:
    """What a command gets for `arguments`."""
    given: list[RunOptions] = []

    @click.command(cls=SectionedHelpCommand)
    @add_options("options", RunOptions)
    def run(options: RunOptions) -> None:
        given.append(options)

    result = CliRunner().invoke(run, list(arguments))
    assert result.exit_code == 0, result.output
    return given[0]


def test_each_place_outranks_the_next(tmp_path: Path) -> None:
    file = config(tmp_path, "MERGE_BENCH_CHUNK=2e6\nMERGE_BENCH_WORKERS=3\n")
    environ = {
        "MERGE_BENCH_CHUNK": "3e6",
        "MERGE_BENCH_WORKERS": "4",
        "MERGE_BENCH_SEED": "5",
        "MERGE_BENCH_WARMUP": "",
    }
    found = resolve_options(on_the_command_line("--chunk", "1_000"), file, environ)
    assert (found.chunk, found.value_source("chunk")) == (1000, "command line")
    assert (found.workers, found.value_source("workers")) == (3, f"config {tmp_path}/a.cfg:2")
    assert (found.seed, found.value_source("seed")) == (5, "environment MERGE_BENCH_SEED")
    assert (found.warmup, found.value_source("warmup")) == (1, "default")


def test_every_option_has_a_value_and_a_source() -> None:
    found = resolve_options(RunOptions(), None, {})
    assert {found.value_source(option.key) for option in OPTIONS} == {"default"}
    assert all(getattr(found, option.key) == option.default for option in OPTIONS if option.key != "workload")


def test_a_default_given_on_the_command_line_outranks_the_config(tmp_path: Path) -> None:
    file = config(tmp_path, "MERGE_BENCH_SKEW=zipf:1.2\nMERGE_BENCH_WORKLOAD=tpch\n")
    found = resolve_options(on_the_command_line("--skew", "none", "--workload", "auto"), file, {})
    assert (found.skew, found.workload) == (0.0, "synthetic")


@pytest.mark.parametrize(
    ("arguments", "iterations"),
    [
        ((), 100),
        (("--chunk", "2e6"), 100),
        (("--chunk", "2_000_001"), 10),
        (("--chunk", "25e6", "--iterations", "7"), 7),
        (("--workload", "tpch"), 10),
    ],
)
def test_the_rule_for_iterations(arguments: tuple[str, ...], iterations: int) -> None:
    assert resolve_options(on_the_command_line(*arguments), None, {}).timed_iteration_count == iterations


def test_tables_are_the_workload_where_tables_are_given() -> None:
    found = resolve_options(on_the_command_line("--left", "a", "--right", "b", "--on", "k,l"), None, {})
    assert (found.workload, found.on) == ("tables", ("k", "l"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("MERGE_BENCH_CHUNK=abc", r"a\.cfg:1: MERGE_BENCH_CHUNK: 'abc' is not a count"),
        ("CHUNK_SIZE=0", r"a\.cfg:1: MERGE_BENCH_CHUNK: must be at least 1, not 0"),
        ("\nMERGE_BENCH_CHUNCK=1", r"a\.cfg:2: MERGE_BENCH_CHUNCK: .*did you mean MERGE_BENCH_CHUNK"),
        ("MERGE_BENCH_JSON=1", r"a\.cfg:1: MERGE_BENCH_JSON: --json can be set only on the command line"),
        ("MERGE_BENCH_LEFT=x", r"--left \(config .*a\.cfg:1\) also needs --right"),
        ("MERGE_BENCH_WORKERS=", r"a\.cfg:1: MERGE_BENCH_WORKERS: "),
    ],
)
def test_a_wrong_config_names_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve_options(RunOptions(), config(tmp_path, text), {})


def test_a_wrong_environment_names_the_variable() -> None:
    with pytest.raises(UsageError, match="environment variable MERGE_BENCH_VERIFY: 'x' is not one of every, ends"):
        resolve_options(RunOptions(), None, {"MERGE_BENCH_VERIFY": "x"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--scheduler-address a --scheduler-file b", "--scheduler-address and --scheduler-file cannot be combined"),
        ("--on k --left-on k --right-on k", "--on and --left-on cannot be combined"),
        ("--left-on a,b --right-on c --left l --right r", "--left-on has 2 columns, but --right-on has 1"),
        ("--left a --right b", "--left needs --on"),
        ("--left a --right b --on k --workload tpch", "--left cannot be combined with --workload tpch"),
        ("--workload tables", "--workload tables needs --left and --right"),
        ("--on https://bench.example", "take the address of a service as --service"),
    ],
)
def test_options_that_contradict_each_other(arguments: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve_options(on_the_command_line(*arguments.split()), None, {})


def test_a_contradiction_names_the_variable_and_the_line_that_set_a_value(tmp_path: Path) -> None:
    path = tmp_path / "my.cfg"
    path.write_text("\nMERGE_BENCH_RIGHT_ON=c\n")
    options = on_the_command_line("--left", "l", "--right", "r")
    with pytest.raises(UsageError) as caught:
        resolve_options(options, read_config(path, {}), {"MERGE_BENCH_LEFT_ON": "a,b"})
    sentence, sources = str(caught.value).removesuffix(")").split(" (")
    assert sentence == "--left-on has 2 columns, but --right-on has 1"
    assert sources.split(", ") == [
        "--left-on is from environment MERGE_BENCH_LEFT_ON",
        f"--right-on is from config {path}:2",
    ]


def test_the_variable_of_key_columns_takes_no_address_of_a_service() -> None:
    with pytest.raises(UsageError, match=r"environment MERGE_BENCH_ON.* MERGE_BENCH_SERVICE"):
        resolve_options(RunOptions(), None, {"MERGE_BENCH_ON": "https://bench.example"})


@pytest.mark.parametrize(
    ("name", "good", "value", "bad"),
    [
        ("chunk", "25M", 25_000_000, "0"),
        ("frac-match", "0.5", 0.5, "1.1"),
        ("frac-match", "1", 1.0, "nan"),
        ("skew", "zipf:1.2", 1.2, "zipf:0"),
        ("rmm-pool-size", "30GB", 30_000_000_000, "-1"),
        ("timeout", "500ms", 0.5, "0"),
        ("timeout", "10:00", 600.0, "9" * 400),
        ("require-transport", "rc,cuda_ipc", ("rc", "cuda_ipc"), "rc,,x"),
        ("interface", "ib0", "ib0", "eth0; ls"),
        ("engine", "CUDF", "cudf", "spark"),
        ("scale", "0.1", 0.1, "0"),
        ("link-rounds", "0", 0, "-1"),
        ("allow-unknown", "yes", True, "perhaps"),
        ("error-handling", "peer", "peer", "on"),
    ],
)
def test_values_as_people_write_them(name: str, good: str, value: object, bad: str) -> None:
    option = next(option for option in options_of_run() if option.command_line_name == name)
    assert option.parse(good) == value
    with pytest.raises(ValueError, match=r"."):
        option.parse(bad)


def test_click_refuses_a_wrong_value_with_the_options_own_sentence() -> None:
    @click.command()
    @add_options("options", RunOptions)
    def run(options: RunOptions) -> None:
        pass

    result = CliRunner().invoke(run, ["--chunk", "lots"])
    assert result.exit_code == 2
    assert "Invalid value for '--chunk': 'lots' is not a count; write it like 25e6" in result.output


def test_the_help_lists_every_option_by_section() -> None:
    @click.command(cls=SectionedHelpCommand)
    @add_options("options", RunOptions)
    def run(options: RunOptions) -> None:
        pass

    text = CliRunner().invoke(run, ["--help"]).output
    assert all(f"--{option.command_line_name}" in text for option in OPTIONS)
    assert all(f"{option.section}:" in text for option in OPTIONS)


@settings(deadline=None)
@given(st.sampled_from(OPTIONS), st.text(max_size=12))
def test_any_text_is_read_or_refused_with_a_sentence(option: Any, text: str) -> None:
    try:
        found: object = resolve_options(RunOptions(), None, {option.environment_variable: text})
    except UsageError as error:
        found = str(error)
    assert isinstance(found, RunOptions | str)


def test_all_wrong_options_of_a_config_are_reported(tmp_path: Path) -> None:
    file = config(tmp_path, "MERGE_BENCH_ENGIN=native\nMERGE_BENCH_WORKERS=2\nMERGE_BENCH_CHUNK=many\n")
    with pytest.raises(UsageError) as caught:
        resolve_options(RunOptions(), file, {})
    first, second = str(caught.value).splitlines()
    assert f"{file.path}:1: MERGE_BENCH_ENGIN: " in first
    assert f"{file.path}:3: MERGE_BENCH_CHUNK: 'many' is not a count" in second
