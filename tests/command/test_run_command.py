"""One run of a command: how it ended, what it printed, and that nothing of it is left, whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from merge_bench.command.descendants import find_child_pids, list_processes
from merge_bench.command.run_command import CommandResult, CommandTask, LaunchProcesses
from merge_bench.command.warden import LimitedOutputFile
from merge_bench.errors import LaunchFailed

MIB = 1 << 20


@dataclass
class Scene:
    """A place to run commands; `mark`: a number of seconds that only its processes sleep."""

    folder: Path
    mark: str
    processes: LaunchProcesses

    def task(self, *argv: str, **more: object) -> CommandTask:
        task = CommandTask(argv, dict(os.environ), self.folder / "out", self.folder / "err", grace=0.2)
        return replace(task, **more)

    def run(self, *argv: str, **more: object) -> CommandResult:
        return self.processes.run(self.task(*argv, **more))

    def shell(self, line: str, **more: object) -> CommandResult:
        return self.run("sh", "-c", line.replace("MARK", self.mark), **more)

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    def left(self) -> list[int]:
        """The processes that still sleep."""
        return processes_with(self.mark)

    def wait_for(self, happened: Callable[[], object], seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.01)


def processes_with(word: str) -> list[int]:
    """The processes with this word in their command line, without this one."""
    found = []
    for process in list_processes():
        try:
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in line and process.pid != os.getpid():
            found.append(process.pid)
    return found


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    processes = LaunchProcesses(tmp_path / "driver.log")
    made = Scene(tmp_path, f"300.{secrets.randbelow(10**9):09}", processes)
    before = find_child_pids()
    yield made
    processes.end_processes(succeeded=True)
    left = made.left()
    for script in tmp_path.glob("*.sh"):
        script.unlink()
    while still := made.left():
        for pid in still:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert left == []
    assert find_child_pids() <= before


# -- how it ended


def test_status_and_wall_clock(scene: Scene) -> None:
    ended = scene.shell("sleep 0.2; echo right; echo wrong >&2; exit 3")
    assert (ended.reason, ended.status, ended.left_out, ended.problem) == ("ended", 3, 0, "")
    assert ended.seconds >= 0.2
    assert scene.out == "right\n"
    assert (scene.folder / "err").read_text() == "wrong\n"


def report_of_warden(scene: Scene, preparation: str, *argv: str) -> dict[str, Any]:
    """The report on a command before which its new process does what `preparation` says, in Python."""
    program = f"""
import os, sys, time
from merge_bench.cluster import supervisor
from merge_bench.command import warden
supervisor.die_with_parent = lambda number: {preparation}
sys.exit(warden.main())
"""
    task = scene.task(*argv).encode_for_warden()
    done = subprocess.run([sys.executable, "-c", program], input=task, stdout=subprocess.PIPE, check=True, timeout=60)
    return dict(json.loads(done.stdout))


def test_the_wall_clock_begins_with_the_program(scene: Scene) -> None:
    preparation_seconds = 2.0
    report = report_of_warden(scene, f"time.sleep({preparation_seconds})", "sleep", "0.1")
    assert (report["reason"], report["status"]) == ("ended", 0)
    assert 0.1 <= report["seconds"] < preparation_seconds


def test_a_process_that_is_killed_before_it_runs_its_program_is_not_waited_for(scene: Scene) -> None:
    report = report_of_warden(scene, "os.kill(os.getpid(), 9)", "sleep", "0.1")
    assert (report["reason"], report["status"]) == ("ended", -9)


def test_a_command_that_is_killed(scene: Scene) -> None:
    assert scene.shell("kill -9 $$").status == -9


def test_a_command_that_cannot_be_started(scene: Scene) -> None:
    with pytest.raises(LaunchFailed) as failed:
        scene.run("/nonexistent/program")
    assert failed.value.code == "command-failed"
    assert "/nonexistent/program" in str(failed.value)


def test_the_words_are_no_shell_line(scene: Scene) -> None:
    scene.run("echo", "$HOME", ";", "*")
    assert scene.out == "$HOME ; *\n"


def test_environment_without_the_services_token(scene: Scene) -> None:
    environment = {**os.environ, "UCX_TLS": "tcp,self", "MERGE_BENCH_TOKEN": "secret"}
    scene.run("sh", "-c", "echo $UCX_TLS $MERGE_BENCH_TOKEN", environment=environment)
    assert scene.out == "tcp,self\n"


def test_a_check_reads_what_was_printed(scene: Scene) -> None:
    printed = scene.folder / "printed"
    printed.write_text("PASSED\n")
    assert scene.run("grep", "-q", "PASSED", stdin=printed).status == 0
    assert scene.run("grep", "-q", "FAILED", stdin=printed).status == 1
    assert scene.run("cat").status == 0  # without input it does not wait for any


def test_the_work_folder_is_removed(scene: Scene) -> None:
    folder = scene.processes.make_work_folder()
    scene.run("touch", str(folder / "file"))
    assert list(folder.iterdir()) == [folder / "file"]
    scene.processes.end_processes(succeeded=True)
    assert not folder.exists()
    assert not folder.parent.exists()


# -- nothing is left


def test_a_child_in_the_background_ends_with_the_command(scene: Scene) -> None:
    ended = scene.shell("sleep MARK & echo done")  # it holds the output open
    assert (ended.status, scene.out) == (0, "done\n")
    assert ended.seconds < 5.0
    assert scene.left() == []


def test_children_that_left_session_and_parent_end_with_the_command(scene: Scene) -> None:
    line = "setsid sh -c 'sleep MARK & sleep MARK & wait' & (setsid nohup sleep MARK >/dev/null 2>&1 &) ; sleep 0.3"
    scene.shell(line)
    assert scene.left() == []


def test_processes_that_start_each_other_for_ever(scene: Scene) -> None:
    script = scene.folder / f"again-{scene.mark}.sh"
    script.write_text(f'#!/bin/sh\nsleep 0.01\nsetsid "{script}" &\nsleep {scene.mark}\n')
    script.chmod(0o755)
    scene.run("sh", "-c", f'setsid "{script}" & sleep 0.3')
    assert scene.left() == []


def test_the_time_limit(scene: Scene) -> None:
    ended = scene.shell("sleep MARK", timeout=0.3)
    assert ended.reason == "timeout"
    assert 0.3 <= ended.seconds < 2.0


def test_the_time_limit_of_a_command_that_ignores_sigterm(scene: Scene) -> None:
    line = "trap '' TERM HUP INT; while :; do sleep MARK & wait; done"
    ended = scene.shell(line, timeout=0.3)
    assert (ended.reason, ended.status) == ("timeout", -signal.SIGKILL)
    assert 0.5 <= ended.seconds < 3.0


def test_sigterm_at_the_time_limit_lets_a_command_clean_up(scene: Scene) -> None:
    scene.shell("trap 'echo cleaned; exit 0' TERM; while :; do sleep 0.05; done", timeout=0.3)
    assert scene.out == "cleaned\n"


def test_a_command_that_stops_itself(scene: Scene) -> None:
    assert scene.shell("kill -STOP $$", timeout=0.3).reason == "timeout"


def test_closed_output_is_not_the_end(scene: Scene) -> None:
    ended = scene.shell("exec >&- 2>&-; sleep 0.3; exit 4")
    assert ended.status == 4
    assert ended.seconds >= 0.3


def test_an_interruption_ends_everything(scene: Scene) -> None:
    def interrupt() -> None:
        scene.wait_for(lambda: len(scene.left()) >= 3, 60.0)
        os.kill(os.getpid(), signal.SIGINT)

    task = scene.task("sh", "-c", f"setsid sleep {scene.mark} & sleep {scene.mark}")
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        scene.processes.run(task)
    assert scene.left()
    scene.processes.end_processes(succeeded=False)
    assert scene.left() == []


def test_a_killed_warden_leaves_nothing(scene: Scene) -> None:
    def kill_warden() -> None:
        scene.wait_for(lambda: len(scene.left()) >= 3)
        warden = scene.processes._warden
        assert warden is not None
        os.kill(warden.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_warden)
    killer.start()
    with pytest.raises(LaunchFailed) as failed:
        scene.shell("setsid sleep MARK & (setsid sleep MARK &) ; sleep MARK")
    killer.join()
    assert failed.value.code == "command-failed"
    assert "signal 9" in str(failed.value)
    assert scene.left() == []
    assert scene.shell("echo again").status == 0


def test_a_killed_driver_leaves_nothing(scene: Scene) -> None:
    program = f"""
import os, sys
from pathlib import Path
from typing import Any
from merge_bench.command.run_command import CommandTask, LaunchProcesses
folder = Path({str(scene.folder)!r})
sleep = "sleep {scene.mark}"
line = f"trap '' TERM; setsid {{sleep}} & (setsid {{sleep}} &) ; {{sleep}}; {{sleep}}"
task = CommandTask(["sh", "-c", line], dict(os.environ), folder / "out", folder / "err", grace=0.2)
LaunchProcesses(folder / "log").run(task)
"""
    scene.processes.end_processes(succeeded=True)  # this process adopts nothing
    driver = subprocess.Popen([sys.executable, "-c", program])
    scene.wait_for(lambda: len(scene.left()) >= 5)  # with the driver itself
    driver.kill()
    driver.wait()
    scene.wait_for(lambda: not scene.left())


# -- what is kept of the output


@pytest.mark.slow
def test_much_output_is_read_quickly_and_kept_in_part(scene: Scene) -> None:
    ended = scene.shell("echo first; yes | head -c 200M; echo last")
    assert ended.seconds < 20.0
    kept = (scene.folder / "out").read_bytes()
    assert ended.left_out == len("first\nlast\n") + 200 * MIB - 64 * MIB
    assert 64 * MIB < len(kept) < 64 * MIB + 200
    assert kept.startswith(b"first\ny\n")
    assert kept.endswith(b"y\nlast\n")
    assert f"[merge_bench: {ended.left_out} bytes are left out here]".encode() in kept


@hypothesis.given(st.lists(st.binary(max_size=25), max_size=12), st.integers(1, 20), st.integers(1, 20))
def test_first_and_last_bytes_are_kept(parts: list[bytes], head: int, tail: int) -> None:
    path = Path(f"/dev/shm/merge-bench-kept-{os.getpid()}")
    try:
        output = LimitedOutputFile(path, head, tail)
        for part in parts:
            output.append(part)
        output.close()
        printed = b"".join(parts)
        note = f"\n[merge_bench: {len(printed) - head - tail} bytes are left out here]\n".encode()
        kept = printed if len(printed) <= head + tail else printed[:head] + note + printed[-tail:]
        assert path.read_bytes() == kept
        assert output.total == len(printed)
    finally:
        path.unlink(missing_ok=True)


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    output = LimitedOutputFile(tmp_path / "out", 4, 4)
    monkeypatch.setattr(os, "pwrite", refuse)
    output.append(b"text")
    output.close()
    assert (output.problem, output.total) == ("No space left on device", 4)
