"""What of a space makes sense here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from merge_bench.tune.space import Setting, SettingValue, TuningContext, TuningSpace, prune_space

HERE = TuningContext(
    conditions=frozenset({"one-host", "no-gpu"}),
    ucx="1.18.1",
    ucx_names=frozenset({"UCX_A", "UCX_B"}),
    baseline={"UCX_B": "2"},
    options={"MERGE_BENCH_MESSAGE_SIZE": 4 << 20},
)


def reason(context: TuningContext = HERE, *variables: tuple[str, str], **changes: object) -> str | None:
    """Why a setting of these variables is left out."""
    setting = Setting("s", (SettingValue("s", "v", variables or (("UCX_A", "1"),)),))
    kept, left = prune_space(TuningSpace((replace(setting, **changes),), ""), context)
    assert len(kept) + len(left) == 1
    return left[0].reason if left else None


def test_what_is_known_and_not_there_yet_is_tried() -> None:
    assert reason() is None


def test_all_prerequisites_that_are_missing_are_named() -> None:
    assert reason(requires=("one-host", "gpu", "infiniband")) == "requires gpu, infiniband (not met in this run)"


@pytest.mark.parametrize(("releases", "out"), [((">=1.19",), True), ((">=1.16", "<1.19"), False)])
def test_ucx_must_be_of_the_right_release(releases: tuple[str, ...], out: bool) -> None:
    found = reason(releases=releases)
    assert found == ("needs UCX >=1.19; the installed version is 1.18.1" if out else None)


def test_of_an_unknown_ucx_a_release_is_not_assumed() -> None:
    unknown = replace(HERE, ucx=None, ucx_names=None)
    assert reason(unknown, releases=(">=1.1",)) == "needs UCX >=1.1; the installed version is unknown"


def test_a_variable_that_ucx_does_not_know_is_left_out_and_others_are_not() -> None:
    assert reason(HERE, ("UCX_C", "1")) == "the installed UCX 1.18.1 has no variable UCX_C"
    assert reason(HERE, ("GLIBC_TUNABLES", "1")) is None
    assert reason(replace(HERE, ucx_names=None), ("UCX_C", "1")) is None


def test_what_the_command_line_fixes_is_left_out() -> None:
    fixed = replace(HERE, fixed=frozenset({"MERGE_BENCH_MESSAGE_SIZE"}))
    assert reason(fixed, ("MERGE_BENCH_MESSAGE_SIZE", "1MiB")) == "the command line sets --message-size"


def test_what_the_baseline_has_is_left_out_only_if_it_has_all_of_it() -> None:
    already = "the baseline already has this value"
    assert reason(HERE, ("UCX_B", "2")) == already
    assert reason(HERE, ("UCX_B", "2"), ("UCX_A", "1")) is None
    assert reason(HERE, ("UCX_B", "3")) is None


@pytest.mark.parametrize(
    ("text", "baseline", "out"),
    [("256MiB", 32 << 20, True), ("1MiB", 32 << 20, False), ("256MiB", 4 << 20, False), ("16MB", 32 << 20, True)],
)
def test_a_longest_message_that_no_message_reaches_is_left_out(text: str, baseline: int, out: bool) -> None:
    """One took the place of a candidate that can act, had the best estimate by chance, and went to the confirmation."""
    context = replace(HERE, options={"MERGE_BENCH_MESSAGE_SIZE": baseline}, chunk_bytes=16_000_000)
    found = reason(context, ("MERGE_BENCH_MESSAGE_SIZE", text))
    assert found == ("no message is that long: a chunk has 15.26 MiB" if out else None)
    assert reason(replace(context, chunk_bytes=None), ("MERGE_BENCH_MESSAGE_SIZE", text)) is None
    assert reason(context, ("MERGE_BENCH_MESSAGE_SIZE", text), ("UCX_A", "1")) is None


@pytest.mark.parametrize(("text", "out"), [("4MiB", True), ("4194304", True), ("1MiB", False)])
def test_options_are_compared_as_values(text: str, out: bool) -> None:
    assert (reason(HERE, ("MERGE_BENCH_MESSAGE_SIZE", text)) is not None) is out
