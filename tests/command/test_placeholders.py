"""The words of a command under a config."""

from __future__ import annotations

from merge_bench.command.placeholders import PlaceholderValues, replace_placeholders, unforwarded_settings_warning

PLACE = PlaceholderValues("tcp", ("UCX_TLS", "UCX_RNDV_THRESH"), 3, "/scratch/launch")
SETTINGS = {"UCX_TLS": "tcp,self"}


def test_variables_become_words_of_mpirun_and_srun() -> None:
    assert replace_placeholders(["mpirun", "{x}", "-n", "2"], PLACE) == [
        "mpirun",
        *("-x", "UCX_TLS", "-x", "UCX_RNDV_THRESH"),
        *("-n", "2"),
    ]
    assert replace_placeholders(["srun", "{export}"], PLACE) == ["srun", "--export=ALL,UCX_TLS,UCX_RNDV_THRESH"]


def test_without_variables_their_words_are_left_out() -> None:
    assert replace_placeholders(["mpirun", "{x}", "{export}", "a"], PlaceholderValues("default", (), 0)) == [
        "mpirun",
        "a",
    ]


def test_within_a_word_they_are_text() -> None:
    line = "mpirun {x} prog > {workdir}/{config}-{launch}.txt"
    assert replace_placeholders(["sh", "-c", line], PLACE)[2] == (
        "mpirun -x UCX_TLS -x UCX_RNDV_THRESH prog > /scratch/launch/tcp-3.txt"
    )


def test_other_braces_stay() -> None:
    words = ["awk", "{print $1}", "{y}", "{ x }", "${x", "{}", "{{config}}"]
    assert replace_placeholders(words, PLACE) == [*words[:-1], "{tcp}"]


def test_a_command_that_starts_processes_elsewhere_is_warned_about() -> None:
    def code(*words: str, settings: dict[str, str] = SETTINGS) -> str | None:
        warning = unforwarded_settings_warning(words, "tcp", settings)
        return warning and warning.code

    assert code("mpirun", "-n", "2", "prog") == "settings-stay-here"
    assert code("/usr/bin/mpirun.openmpi", "prog") == "settings-stay-here"
    assert code("srun", "prog") == "settings-stay-here"
    assert code("sh", "-c", "cd x && ssh node02 prog") == "settings-stay-here"
    assert code("mpirun", "{x}", "prog") is None
    assert code("srun", "{export}", "prog") is None
    assert code("mpirun", "prog", settings={}) is None
    assert code("python", "mpirunner.py", "--ssh") is None
