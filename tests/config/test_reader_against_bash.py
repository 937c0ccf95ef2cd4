"""The reader gives what `source` gives, and refuses everything that would run something."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from merge_bench.config.reader import read_config
from merge_bench.errors import UsageError
from tests.config.generated import ENVIRONMENT, NAMES, bash_values, configs, soups

_RUNS_SOMETHING = ("subprocess.", "os.exec", "os.posix_spawn", "os.system", "os.fork", "os.startfile", "exec", "pty.")
_watching: list[str] | None = None


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    # `exec` is also what an import raises; modules are all imported before anything is watched.
    if _watching is not None and event.startswith(_RUNS_SOMETHING):
        _watching.append(f"{event} {arguments}")


sys.addaudithook(_audit)


@contextmanager
def nothing_may_run() -> Iterator[None]:
    global _watching
    _watching = []
    try:
        yield
        assert _watching == []
    finally:
        _watching = None


def _examples(strategy: st.SearchStrategy[str], count: int, use: Callable[[str], None]) -> None:
    """Run `use` on `count` generated texts."""

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def generate(text: str) -> None:
        use(text)

    generate()


def _read(path: Path, text: str) -> dict[str, str] | None:
    """What the reader makes of `text`; None if it refuses it, which it may do with a UsageError only.

    A refusal names each line once, in their order.
    """
    path.write_text(text, encoding="utf-8", newline="")
    values, sentences = None, [f"{path}:0: "]
    try:
        with nothing_may_run():
            values = read_config(path, ENVIRONMENT).environment
    except UsageError as error:
        sentences = str(error).split("\n")
    lines = [int(sentence.removeprefix(f"{path}:").partition(":")[0]) for sentence in sentences]
    assert lines == sorted(set(lines))
    return values


def _compare(strategy: st.SearchStrategy[str], count: int, folder: Path) -> tuple[int, int]:
    """Read `count` texts; those accepted must be what bash makes of them. Returns how many were (accepted, refused)."""
    path = folder / "generated.cfg"
    accepted: dict[str, dict[str, str]] = {}
    refused: set[str] = set()

    def use(text: str) -> None:
        values = _read(path, text)
        if values is None:
            refused.add(text)
        else:
            accepted[text] = values

    _examples(strategy, count, use)
    shell = folder / "shell"
    shell.mkdir()
    texts = list(accepted)
    for text, expected in zip(texts, bash_values(texts, ENVIRONMENT, shell), strict=True):
        assert {name: value for name, value in accepted[text].items() if name in NAMES} == expected, text
    assert sorted(entry.name for entry in shell.iterdir() if entry.suffix != ".cfg") == ["errors"]
    assert (shell / "errors").read_text() == ""
    return len(accepted), len(refused)


@pytest.mark.slow
@pytest.mark.parametrize("count", [120, pytest.param(1200, marks=pytest.mark.soak)])
def test_valid_configs_give_what_bash_gives(count: int, tmp_path: Path) -> None:
    accepted, _ = _compare(configs, count, tmp_path)
    assert accepted > 0.4 * count


@pytest.mark.slow
@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.soak)])
def test_of_shell_like_soup_only_what_bash_merely_assigns_is_accepted(count: int, tmp_path: Path) -> None:
    accepted, refused = _compare(soups, count, tmp_path)
    assert refused > count / 3
    assert accepted > count / 30


@pytest.mark.parametrize("count", [150, pytest.param(1500, marks=pytest.mark.soak)])
def test_any_bytes_are_read_or_refused_with_a_sentence(count: int, tmp_path: Path) -> None:
    path = tmp_path / "bytes.cfg"

    @settings(max_examples=count, deadline=None, database=None)
    @given(st.binary(max_size=200))
    def read(data: bytes) -> None:
        path.write_bytes(data)
        with nothing_may_run(), suppress(UsageError):
            read_config(path, ENVIRONMENT)

    read()


def test_the_watch_sees_a_process_being_started() -> None:
    import subprocess

    with pytest.raises(AssertionError), nothing_may_run():
        subprocess.run(["true"], check=True)
