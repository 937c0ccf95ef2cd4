"""The catalogue against two real installations, and against what it ships."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from merge_bench.config import ucx_info
from merge_bench.config.ucx_info import (
    InstalledUcx,
    SettingCatalogue,
    find_invalid_values,
    find_ucx_info,
    parse_ucx_settings,
    read_installed_ucx,
    read_released_setting_names,
)
from merge_bench.config.ucx_releases import find_or_install_release
from merge_bench.errors import UsageError

SAMPLE = """\
#
# UCP context configuration
#

#
# Communication scheme in RNDV protocol.
#  am        - use active message scheme in RNDV protocol.
#
# syntax:    [auto|am]
#
UCX_RNDV_SCHEME=auto

#
# Overhead
#
# syntax:    <y|n>
# inherits:  UCX_MM_X, UCX_SM_X
#
# UCX_POSIX_X=n

#
# The configuration parameter replaced by: UCX_Y
#
# syntax:    N/A
#
UCX_OLD (deprecated)

#
# syntax:    unsigned integer
# alias of:  UCX_B
#
UCX_A=2
"""


def test_devices_and_log_lines_are_no_settings() -> None:
    devices = "#      Device: mlx5_0:1\n" * 20_000  # quadratic work in these would take minutes
    log = "[1.2] [node1:1:0] parser.c:2359 UCX  INFO  UCX_* env variables: UCX_HANDLE_ERRORS=none UCX_TLS=tcp\n"
    assert list(parse_ucx_settings(devices + log + SAMPLE + log)) == list(parse_ucx_settings(SAMPLE))


def test_the_print_of_ucx_info_is_read() -> None:
    found = parse_ucx_settings(SAMPLE)
    assert list(found) == ["UCX_RNDV_SCHEME", "UCX_POSIX_X", "UCX_OLD", "UCX_A"]
    assert found["UCX_RNDV_SCHEME"].syntax == "[auto|am]"
    assert found["UCX_RNDV_SCHEME"].default == "auto"
    assert found["UCX_RNDV_SCHEME"].doc.startswith("Communication scheme")
    assert found["UCX_POSIX_X"].inherits == ("UCX_MM_X", "UCX_SM_X")
    assert found["UCX_OLD"].deprecated
    assert found["UCX_A"].alias_of == "UCX_B"


@pytest.mark.parametrize("which", ["wheel", "system"])
def test_an_installation_is_in_the_shipped_list(which: str, request: pytest.FixtureRequest) -> None:
    installed: InstalledUcx = request.getfixturevalue(which)
    catalogue = SettingCatalogue(installed)
    assert len(installed.settings) > 200
    assert {"tcp", "self"} <= set(installed.transports)
    if catalogue.major_and_minor_numbers > (1, 22):
        pytest.skip(f"UCX {installed.version} is newer than the shipped list")
    _, shipped = read_released_setting_names()
    missing = set(installed.settings) - set(shipped)
    assert not missing
    listed = SettingCatalogue(replace(installed, settings={}))  # finds names in the shipped list only
    for name, setting in installed.settings.items():
        meaning = listed.find_setting_meaning(name)
        assert meaning.kind == "module-absent" or "was built without" in meaning.message  # this release has it
        assert set(setting.inherits) <= set(shipped[name].inherits)


@pytest.mark.ucx_releases
@pytest.mark.parametrize("version", ["1.19.0", "1.20.1", "1.21.0", "1.22.0"])
def test_the_shipped_list_agrees_with_each_release(version: str) -> None:
    try:
        release = find_or_install_release(version)
    except UsageError as error:
        pytest.skip(f"needs releases of UCX: {error}")
    installed = read_installed_ucx(find_ucx_info(str(release.folder)))
    assert (installed.version, installed.info.origin) == (version, "wheel")
    assert not set(installed.settings) - set(read_released_setting_names()[1])
    newest = {"UCX_RMA_PPLN_ENABLE", "UCX_RECOVERY_RETRIES", "UCX_PRINT_TRANSPORT_TABLES", "UCX_TCP_USER_TIMEOUT"}
    catalogue = SettingCatalogue(installed)
    kinds = {catalogue.find_setting_meaning(name).kind for name in newest}
    assert kinds == ({"known"} if version == "1.22.0" else {"no-effect"})
    gdr_copy = catalogue.find_setting_meaning("UCX_GDR_COPY_USE_PCIE")
    assert gdr_copy.kind == ("module-absent" if version == "1.22.0" else "no-effect")


@pytest.mark.parametrize("which", ["wheel", "system"])
def test_no_module_that_is_loaded_is_called_absent(which: str, request: pytest.FixtureRequest) -> None:
    catalogue = SettingCatalogue(request.getfixturevalue(which))
    assert catalogue.installed is not None
    for name in {*catalogue.installed.settings, *catalogue.inheriting_names_by_parent}:
        assert catalogue.find_setting_meaning(name).kind in ("known", "inherited", "alias", "deprecated")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("UCX_RNDV_SCHEME", "known", ""),
        ("UCX_CONFIG_DIR", "known", ""),
        ("UCX_SM_BW", "inherited", "sets UCX_SYSV_BW"),
        ("UCX_MAX_RNDV_LANES", "alias", "another name of UCX_MAX_RNDV_RAILS"),
        ("UCX_MEM_CUDA_RELOC", "deprecated", "UCX_MEM_CUDA_HOOK_MODE"),
        ("UCX_MAX_SHORT", "deprecated", "replaced by"),
        ("UCX_RC_TM_ENABLE", "module-absent", "sets UCX_DC_MLX5_TM_ENABLE, UCX_RC_MLX5_TM_ENABLE; belongs to"),
        ("UCX_DC_MLX5_TM_ENABLE", "module-absent", "InfiniBand"),
        ("UCX_STATS_DEST", "module-absent", "built with statistics"),
        ("UCX_RNDV_SCHMEE", "unknown", "did you mean UCX_RNDV_SCHEME?"),
        ("UCX_ZZZ_ZZZ", "unknown", "no UCX setting has a similar name"),
    ],
)
def test_names_to_the_wheel(wheel: InstalledUcx, name: str, kind: str, words: str) -> None:
    if wheel.transports.keys() & {"rc_mlx5", "rc_verbs"}:
        pytest.skip("this wheel has InfiniBand")
    finding = SettingCatalogue(wheel).find_setting_meaning(name)
    assert finding.kind == kind
    assert words in finding.message


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("UCX_RC_TM_ENABLE", "inherited", "sets UCX_DC_MLX5_TM_ENABLE, UCX_RC_MLX5_TM_ENABLE"),
        ("UCX_DC_MLX5_TM_ENABLE", "known", ""),
        ("UCX_MM_RX_GROW_FACTOR", "no-effect", "needs UCX 1.14 or newer; this UCX is 1.13"),
    ],
)
def test_names_to_debians_1_13(system: InstalledUcx, name: str, kind: str, words: str) -> None:
    if not system.version.startswith("1.13."):
        pytest.skip(f"the system's UCX is {system.version}")
    finding = SettingCatalogue(system).find_setting_meaning(name)
    assert finding.kind == kind
    assert words in finding.message


def test_names_that_a_release_dropped_have_no_effect(wheel: InstalledUcx) -> None:
    catalogue = SettingCatalogue(wheel)
    for name, last in [("UCX_RCACHE_ADDR_ALIGN", "1.16"), ("UCX_IB_REG_METHODS", "1.15")]:
        finding = catalogue.find_setting_meaning(name)
        assert finding.kind == "no-effect"
        assert f"UCX removed this setting after {last}" in finding.message


def test_without_a_library_names_are_still_known() -> None:
    catalogue = SettingCatalogue(None)
    assert catalogue.find_setting_meaning("UCX_RC_TM_ENABLE").kind == "known"
    assert catalogue.find_setting_meaning("UCX_RNDV_SCHMEE").kind == "unknown"


# What UCX takes, in forms that what it prints does not show, and what it refuses.
GOOD = {
    "UCX_RNDV_SCHEME": "AM",
    "UCX_RNDV_THRESH": "inf",
    "UCX_TCP_TX_SEG_SIZE": "64kb",
    "UCX_TCP_RX_SEG_SIZE": "512K",
    "UCX_USE_MT_MUTEX": "yes",
    "UCX_UNIFIED_MODE": "0",
    "UCX_MEMTYPE_CACHE": "try",
    "UCX_MAX_RNDV_LANES": "4",
    "UCX_SM_BW": "12GBps",
    "UCX_TLS": "^tcp",
    "UCX_NUM_EPS": "auto",
    "UCX_LOG_LEVEL": "info",
    "UCX_HANDLE_ERRORS": "bt,freeze",
}
BAD = {
    "UCX_RNDV_SCHEME": ("zzz", "get_zcopy|put_zcopy"),
    "UCX_TCP_TX_SEG_SIZE": ("", "memory units"),
    "UCX_UNIFIED_MODE": ("perhaps", "<y|n>"),
    "UCX_SM_BW": ("fast", "bandwidth value"),
    "UCX_MAX_RNDV_LANES": ("many", "unsigned integer"),
    "UCX_LOG_LEVEL": ("loud", "DEBUG"),
    "UCX_HANDLE_ERRORS": ("bt,panic", "freeze"),
}


@pytest.mark.parametrize("which", ["wheel", "system"])
def test_values_are_judged_by_the_library_itself(which: str, request: pytest.FixtureRequest) -> None:
    installed: InstalledUcx = request.getfixturevalue(which)
    catalogue = SettingCatalogue(installed)
    syntaxes = {name: catalogue.find_setting_meaning(name).syntax for name in (*GOOD, *BAD)}
    assert find_invalid_values(installed, GOOD, syntaxes) == {}
    mixed = GOOD | {name: value for name, (value, _) in BAD.items()}
    refused = find_invalid_values(installed, mixed, syntaxes)
    assert set(refused) == set(BAD)
    for name, (_, allowed) in BAD.items():
        assert allowed in refused[name]


def test_of_a_config_only_typed_values_reach_the_process(wheel: InstalledUcx, tmp_path: Path) -> None:
    program = tmp_path / "ucx_info"
    program.write_text(f'#!/bin/sh\nenv >> "{tmp_path}/passed"\nexec "{wheel.info.program}" "$@"\n')
    program.chmod(0o755)
    installed = replace(wheel, info=replace(wheel.info, program=program))
    values = {
        "UCX_LOG_FILE": "/tmp/written",
        "UCX_MODULE_DIR": "/tmp/evil",
        "UCX_GDB_COMMAND": "touch /tmp/evil",
        "UCX_ERROR_MAIL_TO": "someone",
        "UCX_MEMTRACK_LIMIT": "1",
        "UCX_TLS": "tcp",
        "UCX_RNDV_SCHEME": "am",
    }
    catalogue = SettingCatalogue(installed)
    assert (
        find_invalid_values(installed, values, {name: catalogue.find_setting_meaning(name).syntax for name in values})
        == {}
    )
    passed = (tmp_path / "passed").read_text().splitlines()
    assert [line for line in passed if line.partition("=")[0] in values] == ["UCX_RNDV_SCHEME=am"]


def test_a_program_that_is_no_ucx_info_is_one_sentence() -> None:
    for program in ("/bin/true", "/nowhere/ucx_info"):
        with pytest.raises(UsageError, match=r"did not print its settings|cannot be run"):
            ucx_info.read_installed_ucx(ucx_info.UcxInfoProgram(Path(program), "system"))
    with pytest.raises(UsageError, match=r"ucx_info is missing: the system's ucx_info is not on PATH; .* --ucx wheel"):
        find_ucx_info("system", {"PATH": "/nowhere"})
