"""States, conflicts and sources, as `check` shows them."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from merge_bench.campaign import options_of_run
from merge_bench.config import check
from merge_bench.config.check import STATES, ConfigCheckResult, EffectiveSettings, check_config, find_conflicts
from merge_bench.config.options import RunOptions
from merge_bench.config.reader import ConfigFile, read_config
from merge_bench.config.shipped import find_config_file
from merge_bench.config.ucx_info import InstalledUcx, SettingCatalogue
from merge_bench.config.variables import UCXX_OVERRIDES
from merge_bench.report.host_and_config import print_config_check

CONFIGS = Path(__file__).parents[2] / "configs"
Make = Callable[[str], ConfigFile]

EVERY_STATE = {
    "UCX_RNDV_SCHEME=auto": "known",
    "UCX_SM_BW=1GBps": "inherited",
    "UCX_MAX_EAGER_LANES=1": "alias",
    "UCX_TCP_MAX_SHORT=8": "deprecated",
    "UCX_RC_TM_ENABLE=y": "module-absent",
    "UCX_RNDV_SCHMEE=am": "unknown",
    "UCX_USE_MT_MUTEX=maybe": "invalid",
    "UCXPY_NON_BLOCKING_MODE=1": "translated",
    "JOB_DIR=/scratch": "no-effect",
    "SCHEME=auto": "helper",
    "LD_LIBRARY_PATH=/site/lib": "brings-code",
}
USES = "\nUCX_RNDV_SCHEME=$SCHEME"


def states(result: ConfigCheckResult) -> dict[str, str]:
    return {each.name: each.state for each in result.variables if each.source == "config"}


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with Ethernet and InfiniBand; gives the folder that describes the adapter."""
    for device in ("net/eth0", "net/lo", "infiniband/mlx5_0"):
        (tmp_path / "sys" / device).mkdir(parents=True)
    monkeypatch.setattr(check, "SYSFS", tmp_path / "sys")
    return tmp_path / "sys" / "infiniband" / "mlx5_0"


def codes(result: ConfigCheckResult) -> set[str]:
    return {each.code for each in result.conflicts}


@pytest.mark.usefixtures("wheel")
def test_each_state_occurs(config_of: Make) -> None:
    result = check_config(config_of("\n".join(EVERY_STATE) + USES), {}, ucx_origin="wheel")
    assert states(result) == {line.partition("=")[0]: state for line, state in EVERY_STATE.items()}
    assert set(EVERY_STATE.values()) == set(STATES)
    assert [each.line for each in result.variables[:11]] == [*range(2, 12), 12]
    assert len(result.error_messages) == 3


@pytest.mark.parametrize(
    ("line", "state", "words"),
    [
        ("MERGE_BENCH_CHUNK=25e6", "known", "--chunk"),
        ("MERGE_BENCH_CHUNK=some", "invalid", "is not a count"),
        ("MERGE_BENCH_CHUNCK=1", "unknown", "did you mean MERGE_BENCH_CHUNK"),
        ("MERGE_BENCH_JSON=1", "invalid", "only on the command line"),
        ("MERGE_BENCH_ENGINE=polars", "known", "--engine"),
        ("MERGE_BENCH_ENGINE=spark", "invalid", "'spark' is not one of auto, native"),
        ("CHUNK_SIZE=1_000_000", "translated", "read as MERGE_BENCH_CHUNK=1_000_000"),
        ("CHUNK_SIZE=many", "invalid", "read as MERGE_BENCH_CHUNK"),
        ("MERGE_BENCH_CHUNKS=1", "unknown", "has no such option; did you mean MERGE_BENCH_CHUNK"),
        ("MERGE_BENCH_XYZZY=1", "unknown", "has no such option"),
        ("CHUNKSIZE=1", "unknown", "did you mean CHUNK_SIZE"),
        ("UXC_RNDV_SCHEME=am", "unknown", "did you mean UCX_RNDV_SCHEME"),
        ("UCXPY_PROGRESS_MODE=polling", "known", "--protocol ucx"),
        ("UCXPY_PROGRESS_MODE=pooling", "invalid", "thread-polling"),
        ("UCXPY_CONNECT_TIMEOUT=soon", "invalid", "seconds"),
        ("UCXPY_PROGRES_MODE=polling", "unknown", "did you mean UCXPY_PROGRESS_MODE"),
        ("UCX_TLS=tcp,foo", "invalid", "no UCX release has a transport 'foo'"),
        ("UCX_TLS=^posx", "invalid", "did you mean posix"),
        ("UCX_TLS=\\rc_mlx5,ud:aux,sm", "known", ""),
        ("UCX_TLS='tcp, sm, self'", "invalid", "did you mean UCX_TLS=tcp,sm,self?"),
        ("UCX_TLS=' tcp,self'", "invalid", "did you mean UCX_TLS=tcp,self?"),
        ("UCX_TLS='tcp self'", "invalid", "did you mean UCX_TLS=tcp,self?"),
        ("UCX_TLS='^ib, sm'", "invalid", "did you mean UCX_TLS=^ib,sm?"),
        ("UCX_TLS=TCP,self", "invalid", "no UCX release has a transport 'TCP'; did you mean tcp"),
        ("UCX_TLS=", "invalid", "the list is empty"),
        ("UCX_TLS=^", "invalid", "the list is empty"),
        ("UCX_TLS=tcp,all", "invalid", "did you mean UCX_TLS=all?"),
        ("UCX_TLS=tcp,,self", "known", ""),
        ("UCX_NET_DEVICES=", "invalid", "leave UCX_NET_DEVICES out"),
        ("UCX_NET_DEVICES=' lo'", "invalid", "did you mean UCX_NET_DEVICES=lo?"),
        ("UCX_SHM_DEVICES='memory, other'", "invalid", "did you mean UCX_SHM_DEVICES=memory,other?"),
        ("UCX_SOCKADDR_TLS_PRIORITY='tcp, sockcm'", "invalid", "did you mean UCX_SOCKADDR_TLS_PRIORITY=tcp,sockcm?"),
        ("UCX_SELF_ALLOC='thp, heap'", "invalid", "did you mean UCX_SELF_ALLOC=thp,heap?"),
        ("UCX_PROFILE_MODE=", "known", ""),
        ("CUDA_VISIBLE_DEVICES=0", "known", "passed to"),
        (
            "DASK_UCX__INFINIBAND=True",
            "no-effect",
            "retired, nothing reads it; write DASK_DISTRIBUTED_UCXX__INFINIBAND",
        ),
        ("DASK_UCX__NET_DEVICES=ib0", "no-effect", "set UCX_NET_DEVICES"),
        ("DASK_DISTRIBUTED__COMM__UCX__REUSE_ENDPOINTS=True", "no-effect", "retired"),
        ("DASK_DISTRIBUTED_UCXX__INFINIBAND=True", "known", "passed to"),
        ("MY_HELPER=1", "no-effect", "no known library reads this variable"),
    ],
)
@pytest.mark.usefixtures("wheel")
def test_a_line_and_its_state(config_of: Make, line: str, state: str, words: str) -> None:
    result = check_config(config_of(line), {}, ucx_origin="wheel", known_options=options_of_run())
    assert result.variables[0].state == state
    assert words in result.variables[0].message
    assert result.ok == (state not in ("unknown", "invalid"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("UCX_UNIFIED_MODE=y\nUCX_RNDV_SCHEME=am", "unified-mode-with-am"),
        ("UCX_RNDV_SCHEME=am", "am-scheme-with-protocol-v2"),
        ("UCX_RNDV_SCHEME=get_zcopy\nUCX_RNDV_THRESH=inf", "rendezvous-off"),
        ("UCX_TLS=tcp,self", "no-shared-memory"),
        ("UCX_TLS=^sm", "no-shared-memory"),
        ("UCX_POSIX_SEG_SIZE=64k", "segments-too-long"),
        ("UCX_MM_SEG_SIZE=1mb", "segments-too-long"),
        ("UCX_SYSV_SEG_SIZE=65536", "segments-too-long"),
        ("MERGE_BENCH_ERROR_HANDLING=peer", "error-handling-drops-shared-memory"),
        ("MERGE_BENCH_PROTOCOL=ucx", "dask-comm-without-shared-memory"),
        ("UCX_TLS=sm,tcp,cuda_ipc", "cuda-without-cuda-copy"),
        ("UCX_TLS=sm,knem", "transport-unavailable"),
        ("UCX_MAX_RNDV_LANES=4", "alias-loses"),
        ("UCX_NET_DEVICES=nonesuch0", "no-such-device"),
        ("UCX_NET_DEVICES=eth0", "rdma-excluded"),
        ("UCXPY_PROGRESS_MODE=polling\nUCXPY_ENABLE_DELAYED_SUBMISSION=1", "delayed-submission-without-thread"),
    ],
)
@pytest.mark.usefixtures("wheel", "adapter")
def test_a_conflict_is_a_warning_with_its_reason(config_of: Make, text: str, code: str) -> None:
    # Trusted, because --protocol ucx in a config opens ports.
    result = check_config(config_of(text), {}, ucx_origin="wheel", trusted=True)
    assert code in codes(result)
    assert result.ok
    conflict = next(each for each in result.conflicts if each.code == code)
    assert conflict.message.endswith(".")
    assert conflict.documented


@pytest.mark.parametrize(
    ("value", "state"),
    [("nonesuch0", "no-effect"), ("nonesuch0,nonesuch1:1", "no-effect"), ("nonesuch0,lo", "known"), ("^x", "known")],
)
@pytest.mark.usefixtures("wheel")
def test_devices_that_this_host_has_not_are_no_known_setting(config_of: Make, value: str, state: str) -> None:
    result = check_config(config_of(f"UCX_NET_DEVICES={value}"), {}, ucx_origin="wheel")
    found = result.variables[0]
    assert (found.state, found.message.startswith("no such device here: nonesuch0")) == (state, state == "no-effect")
    assert ("no-such-device" in codes(result)) == ("nonesuch0" in value)


@pytest.mark.parametrize(
    "text",
    [
        "UCX_UNIFIED_MODE=y",
        "UCX_TLS=^tcp",
        "UCX_TLS=all\nUCX_RNDV_THRESH=inf",
        "MERGE_BENCH_ERROR_HANDLING=peer\nUCX_SYSV_ERROR_HANDLING=y",
        "MERGE_BENCH_PROTOCOL=ucx\nUCX_MM_ERROR_HANDLING=y",
        "UCX_POSIX_SEG_SIZE=32k\nUCX_SYSV_SEG_SIZE=65535b",
        "UCX_MAX_RNDV_LANES=1",
        "UCX_MAX_RNDV_RAILS=4",
        "UCX_RNDV_FRAG_MEM_TYPES=host",
        "UCX_NET_DEVICES=^lo",
        "UCX_NET_DEVICES=eth0,mlx5_0:1",
        "UCXPY_PROGRESS_MODE=thread-polling\nUCXPY_ENABLE_DELAYED_SUBMISSION=1",
    ],
)
@pytest.mark.usefixtures("wheel", "adapter")
def test_settings_that_go_together_are_left_alone(config_of: Make, text: str) -> None:
    found = codes(check_config(config_of(text), {}, ucx_origin="wheel"))
    assert found == set()


@pytest.mark.usefixtures("wheel", "adapter")
def test_options_of_the_command_line_and_devices_of_the_launcher(config_of: Make) -> None:
    chosen = {"UCX_NET_DEVICES": "lo"}
    file = config_of("MERGE_BENCH_ERROR_HANDLING=none")
    assert codes(check_config(file, {}, ucx_origin="wheel", launcher_settings=chosen)) == set()
    found = check_config(file, {}, ucx_origin="wheel", options=RunOptions(error_handling="peer", protocol="ucx"))
    assert codes(found) == {"error-handling-drops-shared-memory", "dask-comm-without-shared-memory"}


@pytest.mark.parametrize(
    ("release", "transports", "devices", "warned"),
    [
        ("1.20.1", "^sm", "lo", True),
        ("1.20.1", "tcp,self", "lo", True),
        ("1.20.1", "all", "lo", False),
        ("1.20.1", "^tcp", "lo", False),
        ("1.20.1", "^sm", "eth0", False),
        ("1.19.0", "^sm", "lo", False),
        ("1.21.0", "^sm", "lo", False),
    ],
)
def test_a_release_that_cannot_connect_over_loopback(
    release: str, transports: str, devices: str, warned: bool, wheel: InstalledUcx
) -> None:
    settings = {"UCX_TLS": transports, "UCX_NET_DEVICES": devices}
    catalogue = SettingCatalogue(dataclasses.replace(wheel, version=release))
    found = find_conflicts(EffectiveSettings(settings, frozenset(), catalogue))
    assert ("loopback-unreachable" in {each.code for each in found}) == warned


def test_a_ucx_that_ucxx_refuses_is_named(system: InstalledUcx, config_of: Make) -> None:
    found = codes(check_config(config_of("UCX_RC_TM_ENABLE=y"), {}, ucx_origin="system"))
    assert ("ucx-too-old" in found) == system.version.startswith(
        ("1.12", "1.13", "1.14", "1.15", "1.16", "1.17", "1.18")
    )


def test_where_each_effective_value_comes_from(config_of: Make) -> None:
    text = "UCX_RNDV_THRESH=1024\nUCXPY_NON_BLOCKING_MODE=1\n"
    environ = {"UCX_RNDV_THRESH": "1", "UCX_MAX_RNDV_RAILS": "4", "UCXPY_PROGRESS_MODE": "thread", "OTHER": "x"}
    result = check_config(config_of(text), environ, launcher_settings={"UCX_NET_DEVICES": "lo"})
    sources = {(each.name, each.value): each.source for each in result.variables}
    assert sources[("UCX_RNDV_THRESH", "1024")] == "config"
    assert sources[("UCX_MAX_RNDV_RAILS", "4")] == "environment"
    assert sources[("UCX_NET_DEVICES", "lo")] == "launcher"
    assert sources[("UCX_MEMTYPE_CACHE", "n")] == "UCXX"
    assert sources[("UCX_TLS", "all")] == "UCX default"
    assert [each.name for each in result.variables].count("UCX_RNDV_THRESH") == 1
    assert "UCXPY_PROGRESS_MODE" not in {each.name for each in result.variables}


def test_the_environment_may_hold_the_unknown_but_not_the_invalid(config_of: Make) -> None:
    assert check_config(config_of(""), {"UCX_FOO_BAR": "1"}).ok
    result = check_config(config_of(""), {"UCX_RNDV_SCHEME": "zzz"}, ucx_origin="wheel")
    assert not result.ok
    assert result.error_messages[0].startswith("environment: UCX_RNDV_SCHEME=zzz: expected [auto")


def test_blanks_in_lists_of_the_environment_are_found_too(config_of: Make) -> None:
    result = check_config(config_of(""), {"UCX_TLS": "self, tcp", "UCX_NET_DEVICES": ""}, ucx_origin="wheel")
    assert [sentence.partition(":")[0] for sentence in result.error_messages] == ["environment", "environment"]
    assert "did you mean UCX_TLS=self,tcp?" in result.error_messages[1]


def test_blanks_in_lists_are_found_without_any_ucx(config_of: Make) -> None:
    result = check_config(config_of("UCX_TLS='self, tcp'\n"), {"PATH": "/nowhere"}, ucx_origin="system")
    assert not result.ok


def test_excluding_with_a_blank_gives_no_false_warning_of_shared_memory(config_of: Make) -> None:
    assert "no-shared-memory" not in codes(check_config(config_of("UCX_TLS='^ib, sm'"), {}, ucx_origin="wheel"))


def test_without_any_ucx_names_are_checked_and_that_is_said(config_of: Make) -> None:
    result = check_config(
        config_of("UCX_RNDV_SCHMEE=am\nUCX_RNDV_SCHEME=zzz"), {"PATH": "/nowhere"}, ucx_origin="system"
    )
    assert result.ucx is None
    assert states(result) == {"UCX_RNDV_SCHMEE": "unknown", "UCX_RNDV_SCHEME": "known"}
    assert "not their values" in result.warnings[0]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.cfg")), ids=lambda path: path.stem)
@pytest.mark.parametrize("which", ["wheel", "system"])
def test_each_shipped_config_passes(
    path: Path, which: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    installed: InstalledUcx = request.getfixturevalue(which)
    result = check_config(read_config(path, {}), {}, ucx_origin=which)
    if path.stem == "base-ucx" and SettingCatalogue(installed).major_and_minor_numbers < (1, 19):
        # It holds the defaults of the releases that UCXX takes; an older UCX does not know some of them.
        assert not result.ok
        return
    print_config_check(result, json_output=True)
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is True
    assert document["warnings"] == []
    unexplained = {"alias-loses", "unified-mode-with-am", "rendezvous-off", "no-such-device", "cuda-without-cuda-copy"}
    assert not unexplained & {each["code"] for each in document["conflicts"]}


def test_several_rails_need_an_adapter(config_of: Make, adapter: Path) -> None:
    rails, one = config_of("UCX_MAX_RNDV_RAILS=2\n"), config_of("UCX_MAX_RNDV_RAILS=1\n")
    assert "rails-without-adapter" not in codes(check_config(rails, {}))
    shutil.rmtree(adapter)
    assert "rails-without-adapter" in codes(check_config(rails, {}))
    assert "rails-without-adapter" not in codes(check_config(one, {}))


def test_the_shipped_set() -> None:
    names = {"default", "base-ucx", "optimized", "tcp", "nthu-2022-v100", "nthu-2022-dgx-a100", "infiniband"}
    assert names <= {path.stem for path in CONFIGS.glob("*.cfg")}
    for name in names:
        text = find_config_file(name, CONFIGS).read_text()
        assert text.startswith(f"# {name}.cfg: ")
        assert "# For:" in text
        assert "# Source:" in text or "measured with" in text


def test_the_shipped_configs_say_what_was_published() -> None:
    v100 = read_config(CONFIGS / "nthu-2022-v100.cfg", {}).variable_values
    assert v100 == {
        "UCX_RC_TM_ENABLE": "y",
        "UCX_DC_TM_ENABLE": "y",
        "UCX_USE_MT_MUTEX": "y",
        "UCXPY_NON_BLOCKING_MODE": "1",
        "UCX_RNDV_SCHEME": "am",
        "UCX_IB_GPU_DIRECT_RDMA": "y",
        "UCX_RNDV_THRESH": "1024",
        "UCX_TCP_TX_SEG_SIZE": "64k",
        "UCX_TCP_RX_SEG_SIZE": "512k",
    }
    a100 = read_config(CONFIGS / "nthu-2022-dgx-a100.cfg", {}).variable_values
    assert a100 == {name: value for name, value in v100.items() if name != "UCX_RNDV_SCHEME"}
    assert read_config(CONFIGS / "default.cfg", {}).variables == ()
    assert set(read_config(CONFIGS / "base-ucx.cfg", {}).variable_values) == set(UCXX_OVERRIDES)


def test_base_ucx_is_what_ucx_does_by_default(wheel: InstalledUcx) -> None:
    for name, value in read_config(CONFIGS / "base-ucx.cfg", {}).variable_values.items():
        default = wheel.settings[name].default
        assert value in (default, default.removeprefix("intra:").partition(",inter:")[0])


def test_a_misspelt_name_is_an_error_with_a_suggestion(config_of: Make, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of("# a\nUCX_RNDV_SCHMEE=am\n")
    result = check_config(config, {})
    assert not result.ok
    print_config_check(result)
    shown = capsys.readouterr().out
    assert f"{config.path}:2: UCX_RNDV_SCHMEE=am" in shown.replace("\n", "")
    assert "did you mean UCX_RNDV_SCHEME?" in shown
    assert " ".join(shown.split()).count("did you mean") == 1
    print_config_check(result, json_output=True)
    document = json.loads(capsys.readouterr().out)
    assert set(document) >= {"ok", "variables", "conflicts"}
    assert document["errors"] == list(result.error_messages)
    assert set(document["variables"][0]) == {"name", "value", "line", "state", "message", "source"}


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("UCX_RNDV_SCHEME=get_zcopy", "ok: nothing to mend"),
        ("UCX_TLS=tcp", "ok: 1 warning"),
        ("MY_HELPER=x\nUCX_TLS=tcp", "ok: 1 warning, 1 setting with a remark"),
    ],
)
def test_the_last_line_says_that_a_config_is_fine(config_of: Make, text: str, last: str) -> None:
    shown = io.StringIO()
    print_config_check(check_config(config_of(text), {}, ucx_origin="wheel"), file=shown)
    assert shown.getvalue().splitlines()[-1] == last


def test_a_config_with_an_error_is_not_called_fine(config_of: Make, capsys: pytest.CaptureFixture[str]) -> None:
    print_config_check(check_config(config_of("UCX_RNDV_SCHMEE=am"), {}, ucx_origin="wheel"))
    assert "\nok" not in capsys.readouterr().out


def test_each_line_below_the_table_begins_with_a_code_and_a_colon(config_of: Make) -> None:
    shown = io.StringIO()
    result = check_config(config_of("UCX_RNDV_SCHMEE=am\nUCX_TLS=tcp"), {}, ucx_origin="wheel")
    print_config_check(dataclasses.replace(result, warnings=("a sentence",)), file=shown)
    codes = [line.partition(": ")[0] for line in shown.getvalue().splitlines() if re.match(r"[a-z-]+: ", line)]
    assert codes == [*(conflict.code for conflict in result.conflicts), "warning", "error"]


def test_the_table_shows_text_as_it_is(config_of: Make) -> None:
    shown = io.StringIO()
    result = check_config(config_of("MY_HELPER='[red]x[/red]'\nUCX_TLS=tcp"), {}, ucx_origin="wheel")
    print_config_check(result, file=shown)
    assert "MY_HELPER=[red]x[/red]" in shown.getvalue()
    assert "no-shared-memory" in shown.getvalue()
