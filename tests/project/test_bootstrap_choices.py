"""cluster/bootstrap.sh: which stack it chooses, and which Python. Its functions are called one by one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.project.scripts import call, command


@pytest.mark.parametrize(
    ("gpus", "stack"),
    [
        (["580.65.06, 7.5"], "cu13"),
        (["590.10, 12.0"] * 8, "cu13"),
        (["580.65.06, 7.0"], "cu12"),
        (["535.183.01, 8.0"], "cu12"),
        (["580.65.06, 9.0", "580.65.06, 7.0"], "cu12"),
        (["580.65.06, 7.0", "580.65.06, 9.0"], "cu12"),
        (["580.65.06, 9.0", "580.65.06, [N/A]"], "cu12"),
    ],
)
def test_stack_follows_driver_and_every_gpu(tmp_path: Path, gpus: list[str], stack: str) -> None:
    lines = " ".join(f"'{gpu}'" for gpu in gpus)
    path = command(tmp_path, "nvidia-smi", f"[[ $* == *driver_version,compute_cap* ]] && printf '%s\\n' {lines}")
    done = call("detect_stack", PATH=path)
    assert (done.stdout, done.stderr) == (f"{stack}\n", "")


@pytest.mark.parametrize(
    "script", ["echo 'NVIDIA-SMI has failed to reach the driver' >&2; exit 9", "echo 'No devices were found'"]
)
def test_unusable_gpu_gives_cpu_with_a_notice(tmp_path: Path, script: str) -> None:
    done = call("detect_stack", PATH=command(tmp_path, "nvidia-smi", script))
    assert done.stdout == "cpu\n"
    assert "no usable GPU" in done.stderr


def test_no_gpu_gives_cpu(tmp_path: Path) -> None:
    for tool in ("dirname", "bash"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "")
    done = call("detect_stack", PATH=str(tmp_path))
    assert (done.stdout, done.stderr) == ("cpu\n", "")


@pytest.mark.parametrize(
    ("have", "asked", "detected", "taken", "said"),
    [
        ("", "auto", "cu12", "cu12", ""),
        ("cu13", "auto", "cu13", "cu13", ""),
        ("cu13", "auto", "cpu", "cu13", "contains the cu13 packages, but this machine supports cpu; using cu13"),
        ("cpu", "auto", "cu13", "cpu", "--setup-only --stack cu13"),
        ("cpu", "cu13", "cpu", "cu13", "replacing them with the cu13 packages"),
        ("cu13", "cu13", "cpu", "cu13", ""),
    ],
)
def test_existing_venv_is_rebuilt_only_on_request(
    tmp_path: Path, have: str, asked: str, detected: str, taken: str, said: str
) -> None:
    stamp = tmp_path / "stamp"
    if have:
        stamp.write_text(f"stack={have}\nlock=0\n")
    done = call(f"VENV_STAMP='{stamp}'; detect_stack() {{ echo {detected}; }}; choose_stack {asked}")
    assert done.stdout == f"{taken}\n"
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("[[ $* != *ensurepip* ]]", "apt-get install python3-venv"),
        ("exit 1", "is not a Python from 3.11 to 3.14"),
    ],
)
def test_missing_python_parts_are_named_with_the_remedy(tmp_path: Path, script: str, said: str) -> None:
    command(tmp_path, "fake python", script)
    done = call("find_python", PYTHON=str(tmp_path / "fake python"))
    assert done.returncode == 3
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_python_at_all_is_one_sentence(tmp_path: Path) -> None:
    done = call(f"PATH='{tmp_path}'; find_python", PYTHON="")
    assert done.returncode == 3
    assert "No Python from 3.11 to 3.14 is on PATH" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_command_that_only_prints_an_error_is_not_a_python(tmp_path: Path) -> None:
    path = command(tmp_path, "python3", "echo 'command not found' >&2; exit 127")
    command(tmp_path, "python3.13", "exit 127")
    command(tmp_path, "python3.12", "exit 0")
    done = call("find_python", PATH=path, PYTHON="")
    assert done.stdout == f"{tmp_path}/python3.12\n", done.stderr
