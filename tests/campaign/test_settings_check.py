"""Settings asked for beside settings found in the workers."""

from __future__ import annotations

import pytest

from merge_bench.campaign.recording import SettingDifference, setting_differences
from merge_bench.config.ucx_info import InstalledUcx, effective_settings, find_ucx_info, read_installed_ucx
from merge_bench.errors import UsageError


def test_equal_environments_do_not_differ() -> None:
    asked = {"UCX_TLS": "tcp", "OMP_NUM_THREADS": "1"}
    assert setting_differences([asked, asked], [asked, {**asked, "UCX_EXTRA": "y"}], [{}, {}], None) == []


def test_ranks_with_the_same_difference_are_told_together() -> None:
    asked = [{"UCX_TLS": "tcp"}] * 4
    found = [{"UCX_TLS": "all"}, {}, {"UCX_TLS": "tcp"}, {"UCX_TLS": "all"}]
    assert setting_differences(asked, found, [{}] * 4, None) == [
        SettingDifference("UCX_TLS", "tcp", "all", (0, 3), "UCX_TLS"),
        SettingDifference("UCX_TLS", "tcp", None, (1,), "UCX_TLS"),
    ]


def test_the_sentence_names_rank_variable_asked_and_found() -> None:
    assert SettingDifference("UCX_TLS", "tcp", "all", (3,), "UCX_TLS").sentence == (
        "UCX_TLS=tcp was requested, but rank 3 has UCX_TLS=all"
    )
    assert SettingDifference("A", "1", None, (0, 1), "A").sentence == "A=1 was requested, but ranks 0, 1 have no A"


def test_without_an_installed_ucx_contexts_are_not_compared() -> None:
    asked = {"UCX_RNDV_THRESH": "8192"}
    assert setting_differences([asked], [asked], [{"UCX_RNDV_THRESH": "intra:8K,inter:8K"}], None) == []


@pytest.fixture(scope="module")
def wheel() -> InstalledUcx:
    try:
        return read_installed_ucx(find_ucx_info("wheel"))
    except UsageError as error:
        pytest.skip(f"needs the libucx wheel: {error}")


def test_values_are_compared_as_ucx_writes_them(wheel: InstalledUcx) -> None:
    asked = {"UCX_RNDV_THRESH": "8192", "UCX_MAX_RNDV_RAILS": "2", "UCX_TLS": "tcp,sm"}
    context = {name: effective_settings(wheel, asked)[name] for name in asked}
    assert context["UCX_RNDV_THRESH"] != "8192"
    assert setting_differences([asked], [asked], [context], wheel) == []
    changed = {**context, "UCX_RNDV_THRESH": "intra:1K,inter:1K"}
    assert setting_differences([asked], [asked], [changed], wheel) == [
        SettingDifference("UCX_RNDV_THRESH", "8192", "intra:1K,inter:1K", (0,), "UCX_RNDV_THRESH")
    ]


def test_an_alias_that_lost_is_found_under_the_name_that_won(
    wheel: InstalledUcx,
) -> None:
    asked = {"UCX_MAX_RNDV_LANES": "2"}
    context = {"UCX_MAX_RNDV_RAILS": "1"}
    (found,) = setting_differences([asked], [asked], [context], wheel)
    assert found == SettingDifference("UCX_MAX_RNDV_LANES", "2", "1", (0,), "UCX_MAX_RNDV_RAILS")


def test_what_is_no_setting_of_the_context_is_compared_in_the_environment(wheel: InstalledUcx) -> None:
    asked = {"UCX_SYSV_ERROR_HANDLING": "y"}
    assert setting_differences([asked], [asked], [{"UCX_TLS": "all"}], wheel) == []
    assert len(setting_differences([asked], [{}], [{"UCX_TLS": "all"}], wheel)) == 1
