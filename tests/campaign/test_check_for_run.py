"""`check` refuses what `run` refuses, in the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.campaign.planned_launches import check_config_for_run, plan_runs
from merge_bench.config.check import ConfigCheckResult
from merge_bench.config.reader import read_config
from merge_bench.config.ucx_choice import undo_ucx_choice
from merge_bench.errors import UsageError
from tests.conftest import gpu_present
from tests.helpers.plans import given
from tests.helpers.runs import command


def both(path: Path, text: str, *, trusted: bool = False, other_hosts: bool = False) -> tuple[ConfigCheckResult, str]:
    """What `check` finds, and why `run` refuses the config."""
    path.write_text(text)
    checked = check_config_for_run(read_config(path, {}), "wheel", trusted=trusted, other_hosts=other_hosts)
    with undo_ucx_choice(), pytest.raises(UsageError) as refused:
        plan_runs(str(path), given(trust_config=trusted or None))
    return checked, str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        "EXCHANGE=dask PIPELINE=on",
        "EXCHANGE=dask RUNTIME_FILTER=on",
        "EXCHANGE=dask ENGINE=native",
        "ENGINE=cudf RUNTIME_FILTER=on",
        "LEFT=a.parquet",
        "LEFT=a.parquet RIGHT=b.parquet ON=k CHUNK=1e5,2e5",
        "WORKLOAD=tables",
        "WORKLOAD=tpch CHUNK=1e5,2e5",
        "ON=k",
        "LAUNCHES=2 BLOCKS=2",
        "REQUIRE_TRANSPORT=foo",
        "REQUIRE_TRANSPORT=posix WORKERS=1",
        "REQUIRE_TRANSPORT=posix WORKERS=2,1",
        "REQUIRE_TRANSPORT=posix EXCHANGE=dask",
        "LAUNCHER=ssh",
        "LAUNCHER=local HOSTS=hosts",
        "LAUNCHER=slurm PROTOCOL=tcp",
    ],
)
def test_options_that_never_work_together_are_errors(tmp_path: Path, options: str) -> None:
    checked, refused = both(tmp_path / "a.cfg", "".join(f"MERGE_BENCH_{each}\n" for each in options.split()))
    assert checked.error_messages == (refused,)
    assert not checked.ok


@pytest.mark.parametrize(
    "options",
    [
        "INTERFACE=nosuch0",
        "HOSTS=nowhere",
        "LAUNCHER=slurm",
        "CHUNK=1e12",
        "CHUNK=1e3 WORKERS=100000",
        "LEFT=no.parquet RIGHT=no.parquet ON=k",
    ],
)
@pytest.mark.parametrize("other_hosts", [False, True])
def test_what_only_this_machine_lacks_is_an_error_unless_the_config_is_for_others(
    tmp_path: Path, options: str, other_hosts: bool
) -> None:
    text = "".join(f"MERGE_BENCH_{each}\n" for each in options.split())
    checked, refused = both(tmp_path / "a.cfg", text, other_hosts=other_hosts)
    said = f"this machine cannot run this config: {refused[:40]}"  # the rest may hold free memory
    assert checked.ok == other_hosts
    assert [each.startswith(said) for each in checked.error_messages] == ([] if other_hosts else [True])
    assert [each.startswith(said) for each in checked.warnings[-1:]] == ([True] if other_hosts else [])


@pytest.mark.skipif(Path("/sys/class/infiniband").exists(), reason="there is InfiniBand")
def test_transports_that_this_machine_lacks_are_refused_by_both(tmp_path: Path) -> None:
    checked, refused = both(tmp_path / "a.cfg", "UCX_TLS=rc\n")
    assert refused in checked.error_messages[0]
    assert "--other-hosts" in checked.error_messages[0]


@pytest.mark.parametrize(
    "text", ["UCX_TLS=tcp,self\nUCX_NET_DEVICES=127.0.0.1\n", "UCX_TLS=self\n", "NUMBA_NUM_THREADS=0\n"]
)
def test_devices_and_variables_that_end_workers_are_refused_by_both(tmp_path: Path, text: str) -> None:
    checked, refused = both(tmp_path / "a.cfg", text)
    assert refused in checked.error_messages[0]
    checked, refused = both(tmp_path / "a.cfg", text, other_hosts=True)
    assert checked.ok
    assert checked.warnings == (f"this machine cannot run this config: {refused}",)


@pytest.mark.skipif(gpu_present(), reason="there is a GPU") if gpu_present() else lambda test: test
def test_an_engine_for_gpus_is_no_error_for_other_hosts(tmp_path: Path) -> None:
    checked, refused = both(tmp_path / "a.cfg", "MERGE_BENCH_ENGINE=cudf\n", other_hosts=True)
    assert checked.ok
    assert checked.warnings == (f"this machine cannot run this config: {refused}",)


def test_running_clusters_are_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.cfg"
    path.write_text("MERGE_BENCH_SCHEDULER_ADDRESS=tcp://127.0.0.1:9\n")
    checked = check_config_for_run(read_config(path, {}), "wheel", trusted=True)
    assert checked.ok
    assert checked.warnings == ()
    checked, refused = both(path, path.read_text() + "MERGE_BENCH_INTERFACE=lo\n", trusted=True)
    assert checked.error_messages == (refused,)


def test_an_option_that_is_wrong_is_named_once(tmp_path: Path) -> None:
    checked, _ = both(tmp_path / "a.cfg", "MERGE_BENCH_CHUNK=many\nCHUNK_SIZE=lots\nPYTHONPATH=/x\n")
    assert [each.split(":")[1] for each in checked.error_messages] == ["1", "3"]


def test_the_command_ends_with_status_2_and_its_document_says_why(tmp_path: Path) -> None:
    path = tmp_path / "a.cfg"
    path.write_text("MERGE_BENCH_EXCHANGE=dask\nMERGE_BENCH_PIPELINE=on\n")
    finished = command(tmp_path, path, verb=("check",))
    assert finished.status == 2
    assert not finished.document["ok"]
    assert "--pipeline on needs --exchange ucx" in finished.document["errors"][0]


def test_a_run_warns_of_conflicts_by_the_codes_of_check(tmp_path: Path) -> None:
    path = tmp_path / "tcp.cfg"
    path.write_text("UCX_TLS=tcp,self\n")
    checked = check_config_for_run(read_config(path, {}), "wheel")
    with undo_ucx_choice():
        (prepared,) = plan_runs(str(path), given(ucx="wheel"))
    codes = [each.code for each in checked.conflicts]
    assert "no-shared-memory" in codes
    assert [each.code for each in prepared.warnings if each.code in codes] == codes


def test_variables_of_a_job_that_is_gone_are_named_with_what_to_unset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "gone"))
    path = tmp_path / "a.cfg"
    path.write_text("")
    (warning,) = check_config_for_run(read_config(path, {}), "wheel").warnings
    assert warning.endswith("unset PBS_NODEFILE, or add --launcher local")


@pytest.mark.parametrize(("exchange", "states"), [("ucx,dask", ["known"]), ("ocx", ["invalid"])])
def test_a_sweep_of_exchanges_and_a_wrong_one_are_settings_like_others(
    tmp_path: Path, exchange: str, states: list[str]
) -> None:
    path = tmp_path / "a.cfg"
    path.write_text(f"MERGE_BENCH_EXCHANGE={exchange}\n")
    checked = check_config_for_run(read_config(path, {}), "wheel")
    assert [each.state for each in checked.variables if each.source == "config"] == states
    assert checked.ok == (states == ["known"])
