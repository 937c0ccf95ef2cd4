"""The health check of a container: it finds out whether a service runs there, and whether that answers.

`test_serve.py` asks it about services that run.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.helpers.runs import ROOT

CONTAINERFILE = (ROOT / "cluster/Containerfile").read_text()


def ask(pid: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-IS", ROOT / "cluster/health.py", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_container_without_a_service_is_healthy() -> None:
    assert ask(os.getpid()).returncode == 0
    for words in (["run", "serve"], ["results"], []):
        # The words of a merge; the program is one that ends when its input does.
        code = "import sys; print(flush=True); sys.stdin.read()"
        command = [sys.executable, "-c", code, "merge-bench", *words]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert ask(process.pid).returncode == 0
            process.communicate()


def test_a_service_that_does_not_listen_is_not_healthy() -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, "/opt/merge_bench/.venv/bin/merge-bench", "serve", "--port", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = ask(process.pid)
        process.communicate()
    assert found.returncode == 1
    assert "127.0.0.1, port 1" in found.stderr


def test_the_image_runs_the_check_from_where_it_is() -> None:
    (line,) = [line for line in CONTAINERFILE.splitlines() if line.startswith("HEALTHCHECK ")]
    assert 'CMD ["python3", "-IS", "/opt/merge_bench/cluster/health.py"]' in line
    assert "WORKDIR /opt/merge_bench" in CONTAINERFILE
    assert "COPY cluster ./cluster" in CONTAINERFILE
