"""What a job may contain: everything that could name a path, a command or code is refused with one sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from merge_bench.config.options import OPTIONS
from merge_bench.config.reader import read_config
from merge_bench.config.shipped import FOLDER, shipped_config_names
from merge_bench.config.variables import variables_that_run_code
from merge_bench.errors import UsageError
from merge_bench.probe import probes
from merge_bench.service.documents import JobRequest
from merge_bench.service.job_rules import (
    REFUSED,
    TABLES,
    TEXT,
    JobRules,
    check_job_settings,
    find_settings_file_name,
    read_config_settings,
    settings_file_text,
)
from tests.helpers.examples import examples
from tests.helpers.ucx_wheels import put_into_cache


def words(rules: JobRules, command: str = "run", **given: Any) -> list[str]:
    return rules.command_arguments(JobRequest(command=command, **given))


@pytest.fixture
def rules(tmp_path: Path) -> JobRules:
    (tmp_path / "tables/sub").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/rows.parquet").touch()
    (tmp_path / "tables/sub/rows.parquet").touch()
    (tmp_path / "tables/link").symlink_to(tmp_path / "secret")
    (tmp_path / "results/20260101T000000Z-a-1").mkdir(parents=True)
    (tmp_path / "results/20260101T000000Z-a-1/records.jsonl").touch()
    return JobRules(tmp_path / "results", (tmp_path / "tables",))


def test_a_job_names_only_a_ucx_that_the_service_has(
    rules: JobRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    put_into_cache(tmp_path / "cache", "1.19.0")
    assert words(rules, options={"ucx": ["1.19.0", "wheel"]}) == ["run", "--ucx=1.19.0,wheel"]
    for refused in ("1.21.0", "/opt/ucx", ["wheel", str(tmp_path)]):
        with pytest.raises(UsageError, match=r"ucx of a job is one of auto, wheel, system, 1\.19\.0, not "):
            words(rules, options={"ucx": refused})


def test_options_become_one_word_each(rules: JobRules) -> None:
    given = {"chunk": ["1e4", 20000], "iterations": 1, "verify": "full", "check-link": True, "pipeline": None}
    assert words(rules, options=given) == [
        "run",
        "--chunk=1e4,20000",
        "--iterations=1",
        "--verify=full",
        "--check-link",
    ]
    assert words(rules, "probe p2p", options={"sizes": "8,1M", "repetitions": 2}, configs=["tcp"]) == [
        "probe",
        "p2p",
        f"--config={FOLDER}/tcp.cfg",
        "--sizes=8,1M",
        "--launches=2",
    ]
    assert words(rules, "tune", configs=["tcp.cfg"], options={"budget": "5m"})[1:] == [
        f"{FOLDER}/tcp.cfg",
        "--budget=5m",
    ]
    assert words(rules, configs=["tcp", "default.cfg"])[1:] == [f"--configs={FOLDER}/tcp.cfg,{FOLDER}/default.cfg"]
    assert words(rules, settings={"UCX_TLS": "tcp"}) == ["run", "--config=job-2286e30f.cfg"]


def test_a_config_of_a_client_keeps_its_name_whatever_it_sets(rules: JobRules) -> None:
    for settings in ({"UCX_TLS": "tcp"}, {"UCX_TLS": "sm"}, {}):
        found = words(rules, settings=settings, name="mine")
        assert found == ["run", "--config=mine.cfg"]
        assert find_settings_file_name(found) == "mine.cfg"
        assert find_settings_file_name(words(rules, "tune", settings=settings, name="mine")) == "mine.cfg"
    assert find_settings_file_name(words(rules, settings={"UCX_TLS": "tcp"})) == "job-2286e30f.cfg"
    assert find_settings_file_name(words(rules, configs=["tcp"], options={"left": "sub/rows.parquet"})) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-x", "a/b", "/etc/passwd", "a b", "ä", "a\nb", "a,b", "a=b", "x" * 61]
)
def test_a_name_that_is_no_name_of_a_file_is_refused(rules: JobRules, name: str) -> None:
    with pytest.raises(UsageError, match="rename it"):
        words(rules, settings={"UCX_TLS": "tcp"}, name=name)


@pytest.mark.parametrize("name", ["optimized", "Optimized", "default"])
def test_no_config_of_a_client_pretends_to_be_a_shipped_one(rules: JobRules, name: str) -> None:
    with pytest.raises(UsageError, match="is a shipped config with other settings"):
        words(rules, settings={"UCX_TLS": "tcp"}, name=name)
    same = read_config_settings(FOLDER / "optimized.cfg")
    assert words(rules, settings=same, name="optimized") == ["run", "--config=optimized.cfg"]
    with pytest.raises(UsageError, match="either configs or settings"):
        words(rules, configs=["tcp"], name="tcp")


@pytest.mark.parametrize("key", [*REFUSED, "ssh-config", "scheduler-address", "trust-config"])
@pytest.mark.parametrize("command", ["run", "tune", "probe mpi"])
def test_options_that_reach_beyond_the_job_are_refused(rules: JobRules, command: str, key: str) -> None:
    for value in (True, False, None, "x", 1):
        with pytest.raises(UsageError, match="a job cannot have the option"):
            words(rules, command, options={key: value})


def test_every_option_with_free_text_was_decided_about(rules: JobRules) -> None:
    """A new option that takes any text is refused until it is listed."""
    every = [("run", option) for option in OPTIONS]
    every += [
        (f"probe {name}", option) for name, kind in probes().items() for option in kind.options.declared_options()
    ]
    accepted = set()
    for command, option in every:
        try:
            words(rules, command, options={option.key: "/etc/passwd"})
        except UsageError:
            continue
        accepted.add(option.key)
    assert accepted <= TEXT
    assert not TEXT & (set(REFUSED) | TABLES)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"chunk": "1e6 --results=/etc"}, "chunk: "),
        ({"chunk": "-1"}, "chunk: "),
        ({"on": "http://127.0.0.1:5007"}, "on names key columns"),
        ({"on": ["id", "https://evil.example"]}, "on names key columns"),
        ({"chunk": True}, "chunk needs a number or text"),
        ({"chunk": False}, "chunk needs a number or text"),
        ({"chunk": [True]}, "chunk needs a number or text"),
        ({"chunk": [None]}, "chunk needs a number or text"),
        ({"on": "a\nb"}, "on can contain only printable characters"),
        ({"on": "a\0b"}, "on can contain only printable characters"),
        ({"on": "\udcff"}, "on can contain only printable characters"),
        ({"chunk": ["1" * 600, "2" * 600]}, "at most 1000"),
        ({"check_link": "yes"}, "check_link must be true or false"),
        ({"nothing": None}, "run has no option"),
        ({"iteration": 1}, "did you mean iterations"),
        ({"--results": "x"}, "run has no option"),
        ({"workers": 10**6}, "workers is at most 256"),
        ({"engine": "/tmp/engine.py"}, "engine: "),
        ({"budget": "5m"}, "run has no option"),
    ],
)
def test_wrong_values_are_refused(rules: JobRules, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as found:
        words(rules, options=options)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "command", ["", "serve", "dashboard", "run ", "probe", "probe show", "probe  p2p", "probe --help", "-c"]
)
def test_only_three_commands_are_jobs(rules: JobRules, command: str) -> None:
    with pytest.raises(UsageError, match="the command of a job is one of run, tune, probe"):
        words(rules, command)


@pytest.mark.parametrize("name", ["/etc/passwd", "../tcp.cfg", "space.toml", "", "--help", "tcp.cfg\0", "./tcp.cfg"])
def test_only_shipped_configs_are_used(rules: JobRules, name: str) -> None:
    with pytest.raises(UsageError, match="no shipped config"):
        words(rules, configs=[name])


def test_configs_and_settings_exclude_each_other_and_tune_takes_one(rules: JobRules) -> None:
    with pytest.raises(UsageError, match="either configs or settings"):
        words(rules, configs=["tcp.cfg"], settings={"UCX_TLS": "tcp"})
    with pytest.raises(UsageError, match="tune begins with one config"):
        words(rules, "tune", configs=["tcp.cfg", "default.cfg"])


def test_tables_are_read_below_the_folders_of_the_operator_only(rules: JobRules, tmp_path: Path) -> None:
    inside = str(tmp_path / "tables/sub/rows.parquet")
    for given in ("sub/rows.parquet", inside, "./sub/../sub/rows.parquet"):
        assert words(rules, options={"left": given})[1] == f"--left={inside}"
    outside = ["../secret/rows.parquet", "link/rows.parquet", str(tmp_path / "secret"), "/etc", "no", "x" * 900]
    for given in outside:
        with pytest.raises(UsageError, match=r"left must be in one of the service's folders of tables \("):
            words(rules, options={"left": given})
    with pytest.raises(UsageError, match="this service has none"):
        words(JobRules(tmp_path), options={"right": inside})


def test_other_settings_are_another_config(rules: JobRules) -> None:
    """A history is that of one config: settings of others do not move its level."""
    one = words(rules, settings={"UCX_TLS": "tcp", "UCX_LOG_LEVEL": "info"})
    assert one == words(rules, settings={"UCX_LOG_LEVEL": "info", "UCX_TLS": "tcp"})
    assert one != words(rules, settings={"UCX_LOG_LEVEL": "info", "UCX_TLS": "sm,tcp"})


def test_against_is_the_name_of_a_result(rules: JobRules) -> None:
    name = "20260101T000000Z-a-1"
    assert words(rules, options={"against": name})[1].endswith(f"/results/{name}")
    assert words(rules, options={"against": "history"})[1] == "--against=history"
    for given in ("..", "../results/" + name, ".service", "nothing", f"{name}/records.jsonl", "/etc"):
        with pytest.raises(UsageError, match="against must be history, or the name of a result"):
            words(rules, options={"against": given})


@pytest.mark.parametrize(
    "name",
    [
        "UCX_MODULE_DIR",
        "UCX_CONFIG_DIR",
        "UCX_LOG_FILE",
        "UCX_GDB_COMMAND",
        "UCX_ERROR_MAIL_TO",
        "UCX_POSIX_DIR",
        "UCX_PROTO_INFO_DIR",
        "UCX_STATS_DEST",
        "UCX_NO_SUCH_SETTING",
        "DASK_DISTRIBUTED__WORKER__PRELOAD",
        "PATH",
        "PYTHONPATH",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "HOME",
        "NUMBA_CACHE_DIR",
        "MERGE_BENCH_HOSTS",
        "MERGE_BENCH_SSH_CONFIG",
        "MERGE_BENCH_SCHEDULER_ADDRESS",
        "MERGE_BENCH_RESULTS",
        "MERGE_BENCH_PROTOCOL",
        "MERGE_BENCH_INSECURE",
        "MERGE_BENCH_LAUNCHER",
        "MERGE_BENCH_UCX",
        "MERGE_BENCH_JOB",
        "MERGE_BENCH_TOKEN",
        "MERGE_BENCH_LEFT",
        "ucx_tls",
        "UCX_TLS ",
        "",
    ],
)
def test_settings_outside_the_list_are_refused(name: str) -> None:
    for value in ("stdout", "1", "tcp"):
        with pytest.raises(UsageError, match=re.escape(name or repr(name))):
            check_job_settings({name: value})


@pytest.mark.parametrize(
    "value", ["/tmp/x", "$HOME", "`id`", "a'b", 'a"b', "a\nb", "a\\b", "a;b|c", "a&b", "<x", "é", "\0"]
)
def test_values_of_settings_hold_no_path_and_nothing_of_a_shell(value: str) -> None:
    with pytest.raises(UsageError, match="UCX_TLS"):
        check_job_settings({"UCX_TLS": value})


def test_settings_that_a_job_may_have_are_those_of_a_config(tmp_path: Path) -> None:
    given = {
        "UCX_TLS": "^posix",
        "UCX_NET_DEVICES": "mlx5_0:1,eth0",
        "MERGE_BENCH_CHUNK": "1e4",
        "UCX_RNDV_THRESH": "8k",
    }
    check_job_settings(given)
    (tmp_path / "job.cfg").write_text(settings_file_text(given))
    found = read_config(tmp_path / "job.cfg", {})
    assert {each.name: each.value for each in found.variables} == given
    assert variables_that_run_code(found) == []
    with pytest.raises(UsageError, match="MERGE_BENCH_CHUNK: "):
        check_job_settings({"MERGE_BENCH_CHUNK": "nothing"})


@examples(100)
@hypothesis.given(st.text(max_size=40), st.sampled_from(["run", "tune", *(f"probe {name}" for name in probes())]))
def test_no_text_becomes_a_word_of_its_own(text: str, command: str) -> None:
    rules = JobRules(Path("/nonexistent"))
    for key in ("chunk", "on", "sizes", "only", "left", "against", "engine", text):
        found, refusal = [], ""
        try:
            found = words(rules, command, options={key: text})
        except UsageError as error:
            refusal = str(error)
        assert "\n" not in refusal
        if refusal:
            continue
        assert len(found) == len(command.split()) + 1
        assert found[-1].startswith("--")
        assert "=" in found[-1]
    assert shipped_config_names()


def test_a_config_that_brings_code_is_refused(rules: JobRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies among the shipped configs, such as one of this site, and whatever the environment says."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "site.cfg").write_text("UCX_TLS=tcp\nPYTHONPATH=/some/folder\n")
    monkeypatch.setattr("merge_bench.config.shipped.FOLDER", tmp_path / "configs")
    monkeypatch.setenv("MERGE_BENCH_TRUST_CONFIG", "1")
    with pytest.raises(UsageError, match=r"site\.cfg:2: PYTHONPATH"):
        words(rules, configs=["site.cfg"])
