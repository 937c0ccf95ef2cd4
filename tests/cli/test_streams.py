"""Standard output is ours alone, in any encoding, and nobody's control characters reach a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from merge_bench.service.api import ServiceLimits
from merge_bench.view.streams import EscapingTerminal, unescaped_stream
from tests.campaign.importing.texts import text
from tests.helpers.mutations import CAMPAIGNS
from tests.project.test_schemas import OF_COMMANDS
from tests.service.in_process import running

LEVELS = ("fatal", "error", "warn", "diag", "info", "debug", "trace", "req", "data", "async", "func", "poll")
"""Every level of UCX's log."""
STORED = {
    "check": ["check", "default.cfg"],
    "configs": ["configs"],
    "compare": ["compare", str(CAMPAIGNS / "sweep")],
    "history": ["history", str(CAMPAIGNS)],
    "import": ["import", "merge.out"],
    "predict": ["predict", str(CAMPAIGNS / "run"), "--workers", "4"],
    "probe show": ["probe", "show", str(CAMPAIGNS / "p2p")],
    "show": ["show", str(CAMPAIGNS / "run")],
    **{f"jobs {verb}": ["jobs", verb, *number] for verb, number in (("list", ()), ("show", "1"), ("cancel", "1"))},
}
_TUNE = (
    "tune --chunk 1e3 --workers 2 --iterations 1 --only mutex --strategy exhaustive --confirm 6 --most-blocks 3 "
    "--max-launches 6"
)
MEASURES = {
    "run": ["run", "--chunk", "1e4", "--workers", "1", "--iterations", "2", "--link-rounds", "0"],
    "transports": ["transports"],
    "probe p2p": ["probe", "p2p", "--sizes", "8", "--repetitions", "1"],
    "probe rma": ["probe", "rma", "--sizes", "8", "--repetitions", "1"],
    "probe mpi": ["probe", "mpi", "--sizes", "8", "--repetitions", "1"],
    "probe all-to-all": ["probe", "all-to-all", "--sizes", "8", "--repetitions", "1", "--workers", "2"],
    "probe reduce-scatter": ["probe", "reduce-scatter", "--counts", "1024", "--repetitions", "1"],
    "tune": _TUNE.split(),
    "exec": ["exec", "--launches", "1"],
    "bisect": ["bisect", "--ucx", "1.19.0,1.22.0", "--launches", "6"],
}
EVERY = {"doctor": ["doctor"], **STORED, **MEASURES}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables that lead to a service with a job."""
    with running(tmp_path_factory.mktemp("service"), ServiceLimits()) as found:
        assert found.ask("POST", "/api/jobs", {"command": "run", "options": {"chunk": "1e4"}})[0] == 201
        yield {"MERGE_BENCH_SERVICE": f"http://127.0.0.1:{found.port}", "MERGE_BENCH_TOKEN": found.tokens["ci"]}


def merge_bench(
    folder: Path, *words: str, stdout: int = subprocess.PIPE, **environ: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "merge_bench", *words],
        cwd=folder,
        env={**os.environ, **environ},
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=400,
        check=False,
    )


def check_document(folder: Path, name: str, level: str, service: dict[str, str]) -> None:
    (folder / "merge.out").write_text(text())
    of_service = service if name.startswith("jobs ") else {}
    words = [*EVERY[name], "--json", *(["true"] if name in ("exec", "bisect") else [])]
    done = merge_bench(folder, *words, UCX_LOG_LEVEL=level, UCX_PROTO_INFO="y", **of_service)
    assert done.returncode == 0, done.stderr[-2000:]
    json.loads(done.stdout)


def test_every_command_with_a_document_is_here() -> None:
    assert set(EVERY) == set(OF_COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["fatal", "poll"])  # the least that UCX says and the most; `--soak` has every level
def test_native_output_never_reaches_a_document(tmp_path: Path, level: str, service: dict[str, str]) -> None:
    check_document(tmp_path, "doctor", level, service)


@pytest.mark.slow
@pytest.mark.cluster  # so `probe show` is taken for a probe
@pytest.mark.parametrize("name", ["check", "show", "jobs list"])  # with UCX, without it, from a service
def test_nor_that_of_any_other_command(tmp_path: Path, name: str, service: dict[str, str]) -> None:
    check_document(tmp_path, name, "debug", service)


@pytest.mark.soak
@pytest.mark.cluster
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", EVERY)
def test_every_level_and_every_command(tmp_path: Path, name: str, level: str, service: dict[str, str]) -> None:
    check_document(tmp_path, name, level, service)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["run", "--help"], ["tune", "--help"], ["submit", "--help"], ["check", "tcp.cfg"]], ids=" ".join
)
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_other_encodings_get_plain_characters(tmp_path: Path, words: list[str], encoding: str) -> None:
    done = merge_bench(tmp_path, *words, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u" not in done.stdout
    assert done.stdout.decode("latin-1" if encoding == "latin-1" else "utf-8")  # click takes ASCII for a mistake


@pytest.mark.slow
def test_a_reader_that_has_gone_is_no_traceback(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = merge_bench(tmp_path, "run", "--help", stdout=write)
        listed = merge_bench(tmp_path, "export", str(CAMPAIGNS / "sweep"), stdout=write)
    finally:
        os.close(write)
    assert [(each.returncode, each.stderr) for each in (done, listed)] == [(141, b"")] * 2


_OWN = (
    "import os, sys; from merge_bench.view.streams import send_native_output_to_stderr;"
    " send_native_output_to_stderr(); "
)


def test_without_a_buffer_of_python_every_word_arrives_at_once() -> None:
    """As with ``python -u``: a service's log shows what it said, even if it is killed then."""
    for words in (["-u"], []):
        killed = subprocess.run(
            [sys.executable, *words, "-c", _OWN + "print('said'); os._exit(0)"],
            stdout=subprocess.PIPE,
            check=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            timeout=60,
        )
        assert killed.stdout == (b"said\n" if words else b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_gets_the_number_of_a_closed_stream_here_or_in_a_program(closed: str, tmp_path: Path) -> None:
    code = (
        _OWN
        + "os.execv('/bin/sh', ['sh', '-c', 'for n in 0 1 2; do test -e /proc/self/fd/$n && echo $n >>open; done'])"
    )
    subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" {closed}', sys.executable, code], cwd=tmp_path, timeout=60, check=False
    )
    assert (tmp_path / "open").read_text().split() == ["0", "1", "2"]


def test_a_full_disk_behind_standard_output_is_a_sentence(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = merge_bench(tmp_path, "configs", stdout=full.fileno())
    assert done.returncode == 3
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_terminal_obeys_no_text_of_others() -> None:
    file = io.BytesIO()
    terminal = EscapingTerminal(file, "utf-8", write_through=True)
    print("a\x1b[2J\u202eb\x9b\U000e0041", "c\td", file=terminal)
    unescaped_stream(terminal).write("\x1b[1mbold\x1b[0m")
    assert file.getvalue().decode() == "a\\u001b[2J\\u202eb\\u009b\\udb40\\udc41 c\td\n\x1b[1mbold\x1b[0m"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "prometheus"])
def test_what_is_exported_to_a_terminal_is_escaped_and_raw_in_a_pipe(tmp_path: Path, form: str) -> None:
    evil = "\x1b]0;owned\x07\u202e"
    records = (CAMPAIGNS / "run" / "records.jsonl").read_text()
    name = json.loads(records.splitlines()[0])["configs"][0]["name"]
    records = records.replace(f'"{name}"', json.dumps(evil))
    (tmp_path / "records.jsonl").write_text(records)
    words = ("export", str(tmp_path), "--format", form)
    piped = merge_bench(tmp_path, *words)
    assert evil.encode() in piped.stdout
    control, end = pty.openpty()
    done = merge_bench(tmp_path, *words, stdout=end)
    os.set_blocking(control, False)
    shown = os.read(control, 1 << 16)
    assert done.returncode == 0
    assert b"\x1b" not in shown
    assert "\u202e".encode() not in shown
    assert b"owned" in shown
