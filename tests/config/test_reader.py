"""What the reader accepts, what it refuses, and in which words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from merge_bench.config.reader import ConfigFile, ConfigVariable, comment_out_assignments, read_config
from merge_bench.config.shipped import find_config_file
from merge_bench.errors import UsageError


def read(folder: Path, text: str | bytes, environment: dict[str, str] | None = None) -> ConfigFile:
    path = folder / "a.cfg"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_config(path, environment or {})


def refusal(folder: Path, text: str | bytes) -> str:
    with pytest.raises(UsageError) as caught:
        read(folder, text)
    return str(caught.value).removeprefix(f"{folder}/")


def test_plain_and_exported_assignments_with_their_lines(tmp_path: Path) -> None:
    config = read(tmp_path, "# head\nUCX_TLS=tcp\n\nexport A=1 B='two words'  # why\nexport UCX_TLS\n")
    assert config.variables == (
        ConfigVariable("UCX_TLS", "tcp", 2),
        ConfigVariable("A", "1", 4),
        ConfigVariable("B", "two words", 4),
    )
    assert config.name == "a"
    assert config.warnings == ()
    assert len(config.sha256) == 64


@pytest.mark.parametrize(
    "data",
    [b"A=1\r\nB=2\r\n", b"\xef\xbb\xbfA=1\nB=2", b"A=1 B=2", b"A=1\n\n\nexport B=2 A\n", b"A=1 \\\r\nB=2"],
    ids=["crlf", "byte order mark", "one line, no newline", "bare export", "continued crlf"],
)
def test_forms_of_the_same_config(tmp_path: Path, data: bytes) -> None:
    assert read(tmp_path, data).variable_values == {"A": "1", "B": "2"}


def test_references_see_earlier_lines_before_the_environment(tmp_path: Path) -> None:
    text = 'A=$X\nX=mine\nB=${X}/${Y:-none}\nC="${E:-empty}${E-kept}"\nD=~/logs\n'
    environment = {"X": "outer", "E": "", "HOME": "/home/u"}
    assert read(tmp_path, text, environment).variable_values == {
        "A": "outer",
        "X": "mine",
        "B": "mine/none",
        "C": "empty",
        "D": "/home/u/logs",
    }


def test_words_of_one_export_are_expanded_before_any_is_assigned(tmp_path: Path) -> None:
    assert read(tmp_path, "A=1 B=$A\nexport A=2 C=$A").variable_values == {"B": "1", "A": "2", "C": "1"}


def test_of_a_name_set_twice_the_last_value_counts_with_a_warning(tmp_path: Path) -> None:
    config = read(tmp_path, "A=1\nB=0\nA=2\n")
    assert config.variable_values == {"B": "0", "A": "2"}
    assert config.warnings == (
        f"{tmp_path}/a.cfg:3: A is set 2 times, first on line 1; the value on this line is used",
    )


def test_an_undefined_name_is_an_error_only_where_it_is_needed(tmp_path: Path) -> None:
    assert read(tmp_path, "A=${SET:-$NOWHERE}", {"SET": "1"}).variable_values == {"A": "1"}
    assert refusal(tmp_path, "A=1\nB=$NOWHERE\n").startswith("a.cfg:2: NOWHERE is not set; set it before")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("A=$(reboot)", "command substitution"),
        ("A=`reboot`", "command substitution"),
        ('A="$(reboot)"', "command substitution"),
        ("A=${B:-$(reboot)}", "command substitution"),
        ("$(reboot)", "command substitution"),
        ("A=$((1+1))", "arithmetic"),
        ("A=$[1+1]", "arithmetic"),
        ("A=1; reboot", "';' starts another command"),
        ("A=1 & B=2", "'&' starts a command in the background"),
        ("A=1 | tee", "'|' is a pipe"),
        ("A=1 > file", "'>' is a redirection"),
        ("A=<(ls)", "'<' is a redirection or a process substitution"),
        ('A="${B:-<(ls)}"', "process substitution"),
        ("A=(1 2)", "array"),
        ("A[0]=1", "array"),
        ("f() { ls; }", "function"),
        ("function f { ls; }", "is not NAME=VALUE"),
        ("reboot", "'reboot' is not NAME=VALUE"),
        (". other.cfg", "'.' is not NAME=VALUE"),
        ("A=1 reboot", "'reboot' follows an assignment on the same line; quote a value"),
        (
            "B=1 A=sm, cma , tcp C=1",
            "'cma' follows an assignment on the same line; write lists without blanks: A=sm,cma,tcp",
        ),
        ("A=sm ,cma", "write lists without blanks: A=sm,cma"),
        ("A = 1", "blanks around '='"),
        ("A+=1", "'+=' is not supported"),
        ("export", "export needs a name"),
        ("export -p", "'-p' is not NAME=VALUE"),
        ("export NOWHERE", "NOWHERE is exported, but no earlier line sets it"),
        ("export A={1,2}", "brace expansion"),
        ("A=$'x'", "quoting is not supported"),
        ("A=$1", "special parameter"),
        ("A=${B:=x}", "only ${B} and ${B:-default}"),
        ("A=${!B}", "must be followed by a name"),
        ("A='x", "single quote is not closed"),
        ('A="x', "double quote is not closed"),
        ("A=${B:-x", "not closed by '}'"),
        ("A=~root/x", "'~' works only alone"),
        ("A=b=~/x", "'~' after '='"),
        ("A=x\\", "nothing follows the backslash"),
        ("UID=0", "is a variable of the shell itself"),
        ("A=$RANDOM", "is a variable of the shell itself"),
        ("A=\x1b[31m", "control character U+001B"),
        ("A=" + "${A:-" * 40, "nested more than"),
        ("A=" + "x" * 200_000, "longer than 131071 bytes"),
    ],
)
def test_anything_but_an_assignment_is_refused_with_file_and_line(tmp_path: Path, line: str, words: str) -> None:
    sentence = refusal(tmp_path, "# first\n" + line)
    assert sentence.startswith("a.cfg:2: ")
    assert words in sentence


def test_every_wrong_line_is_named_at_once(tmp_path: Path) -> None:
    text = "A=1;reboot\nB=$(id) \\\n C=3\nD=good\nE='x\nexport F=${G:-${H\n# I=$(id)\nreboot\n"
    lines = refusal(tmp_path, text).replace(f"{tmp_path}/", "").split("\n")
    assert [line.split(": ")[0] for line in lines] == [f"a.cfg:{line}" for line in (1, 2, 5, 6, 8)]


def test_every_name_that_is_not_set_is_named_at_once_but_not_what_follows_from_it(tmp_path: Path) -> None:
    lines = refusal(tmp_path, "A=$NOWHERE\nB=$A\nUID=0\nexport NOTHING\n").replace(f"{tmp_path}/", "").split("\n")
    assert [line.split(" ")[:2] for line in lines] == [
        ["a.cfg:1:", "NOWHERE"],
        ["a.cfg:3:", "UID"],
        ["a.cfg:4:", "NOTHING"],
    ]


def test_a_file_of_another_kind_does_not_fill_the_terminal(tmp_path: Path) -> None:
    lines = refusal(tmp_path, "not a config\n" * 50_000).split("\n")
    assert len(lines) == 21
    assert lines[-1].endswith("these are the first 20")


def test_values_that_double_themselves_are_stopped(tmp_path: Path) -> None:
    bomb = "A=xxxxxxxx\n" + "A=$A$A\n" * 60
    assert "longer than 131071 bytes" in refusal(tmp_path, bomb)
    many = "A=" + "x" * 100_000 + "\n" + "".join(f"B{n}=$A\n" for n in range(20))
    assert "may take at most 1 MiB" in refusal(tmp_path, many)


def test_a_large_config_is_read_in_linear_time(tmp_path: Path) -> None:
    config = read(tmp_path, "".join(f"V{n}=x\n" for n in range(10_000)))
    assert len(config.variables) == 10_000


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"A=1\nB=\x00\n", "a.cfg:2: the line contains a NUL byte"),
        (b"A=1\n\nB=\xff\n", "a.cfg:3: the line is not UTF-8 text"),
        (b"#" * (1024 * 1024 + 1), "a.cfg is larger than 1 MiB"),
    ],
)
def test_bytes_that_are_no_config(tmp_path: Path, data: bytes, sentence: str) -> None:
    assert refusal(tmp_path, data).startswith(sentence)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in [("", "a directory, not a config"), ("none", "No such file"), ("pipe", "not a regular file")]:
        with pytest.raises(UsageError, match=words):
            read_config(tmp_path / name, {})
    with pytest.raises(UsageError, match="not a regular file"):
        read_config(Path("/dev/zero"), {})


def test_an_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "a.cfg").touch(mode=0)
    own = os.geteuid()
    if own == 0:  # root may read every file, nobody may not
        os.seteuid(65534)
    try:
        with pytest.raises(UsageError, match="Permission denied"):
            read_config(tmp_path / "a.cfg", {})
    finally:
        os.seteuid(own)


def test_a_config_is_found_by_path_and_by_bare_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "optimized.cfg").touch()
    (tmp_path / "mine.cfg").touch()
    (tmp_path / "optimized").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_config_file("optimized", configs) == configs / "optimized.cfg"
    assert find_config_file("optimized.cfg", configs) == configs / "optimized.cfg"
    assert find_config_file("mine.cfg", configs) == Path("mine.cfg")
    assert find_config_file("mine", configs) == Path("mine.cfg")
    with pytest.raises(
        UsageError, match=r"optimised\.cfg is neither a file nor a shipped config.*did you mean optimized\?"
    ):
        find_config_file("optimised.cfg", configs)
    for name in ("", "a\0b", "x" * 5000, "./optimized.cfg"):
        with pytest.raises(UsageError):
            find_config_file(name, configs)
    (tmp_path / "optimized.cfg").touch()
    assert find_config_file("optimized.cfg", configs) == find_config_file("optimized", configs) == Path("optimized.cfg")


@pytest.mark.parametrize(
    ("text", "commented"),
    [
        ("A=1\nB=2\nexport A\n", "# A=1 (new)\nB=2\n# export A (new)\n"),
        ("\ufeffA=1\r\nA='2' # why\r\n", "# A=1 (new)\n# A='2' # why (new)\n"),
        ("A=${A:-1}\n", "# A=${A:-1} (new)\n"),
        ("A=1\nB=$A\n", None),
        ("A=1 B=2\n", None),
        ("A=1 \\\n B=2\n", None),
        ("A=1\\\n2\n", None),
        ("A=1\nexport A B=2\n", None),
        ("A=1\nif x\n", None),
    ],
)
def test_lines_that_set_a_variable_become_comments_where_nothing_else_needs_them(
    tmp_path: Path, text: str, commented: str | None
) -> None:
    changed = comment_out_assignments(text, ["A", "C"], "new")
    assert changed == (text if commented is None else commented)
    if commented is not None:
        assert "A" not in read(tmp_path, changed).variable_values
