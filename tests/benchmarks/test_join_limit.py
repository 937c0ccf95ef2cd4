"""`join_limit`: its algorithm on the CPU, its compiler found or not, and what is made of its output."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.on_gpu import join_limit, library

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels on the CPU, in warps of one lane."""
    compiler = shutil.which("g++")
    assert compiler, "these tests need g++"
    made = tmp_path_factory.mktemp("join-limit") / "join_limit"
    command = [compiler, "-O1", "-std=c++17", "-x", "c++", "-DON_CPU", "-I", str(ROOT / "tests" / "helpers")]
    subprocess.run([*command, str(join_limit.SOURCE), "-o", str(made)], check=True, timeout=120)
    return made


def test_every_join_of_the_program_is_verified_on_the_cpu(program: Path) -> None:
    found = join_limit.measure([20_000, 12_345], program)
    assert found["status"] == 0
    assert [size["rows"] for size in found["sizes"]] == [20_000, 12_345]
    for size in found["sizes"]:
        assert {(join["probe"], join["slots"]) for join in size["joins"]} == {
            (probe, size["rows"] // 100 * percent) for probe in ("at once", "staged") for percent in (150, 200)
        }
        assert all(join["result_rows"] == size["rows"] * 3 // 10 and join["verified"] for join in size["joins"])
        assert size["copy_ms"] > 0


def test_a_table_that_does_not_fit_is_refused_before_anything_is_allocated(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FREE_BYTES", "1000000")
    found = join_limit.measure([20_000], program)
    assert found["status"] == 3
    assert found["sizes"][0]["error"].startswith("memory: 0.1 GB are needed, 0.0 GB are free")


def test_the_command_needs_no_package_and_writes_its_file(program: Path, tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    argv = ["-m", "benchmarks.on_gpu.join_limit", "--output", str(output), "--rows", "20000", "--program", str(program)]
    command = [sys.executable, "-S", *argv]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(output.read_text()) == json.loads(done.stdout)


def test_without_nvcc_there_is_a_sentence() -> None:
    found = join_limit.measure([20_000], None, compiler=lambda: None)
    assert found["status"] == 3
    judged = library.judge_join_limit(found, None)
    assert judged.skipped
    assert (judged.sentence, judged.status) == ("nvcc, the compiler of the CUDA toolkit, was not found", 0)


COMPILER = """#!/bin/sh
for word; do
    case $word in -DWITH_RADIX_PASS) echo 'fatal error: cub/cub.cuh: no such file' >&2; exit 1;; esac
    last=$word
done
printf '#!/bin/sh\\necho "{\\\\"verified\\\\": %s}"\\n' VERIFIED > "$last"
chmod +x "$last"
"""


@pytest.mark.parametrize(("verified", "status"), [("true", 0), ("false", 4)])
def test_it_is_compiled_without_cub_where_cub_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verified: str, status: int
) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(COMPILER.replace("VERIFIED", verified))
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = join_limit.measure([5], None)
    assert found["nvcc"] == str(nvcc)
    assert found["status"] == status
    assert found["compile_seconds"] > 0


def test_a_program_that_hangs_or_crashes_costs_only_its_own_size(tmp_path: Path) -> None:
    program = tmp_path / "program"
    well = '{\\"verified\\": true}'
    program.write_text(f'#!/bin/sh\ncase $1 in 1) sleep 60;; 2) kill -SEGV $$;; *) echo "{well}";; esac\n')
    program.chmod(0o755)
    found = join_limit.measure([1, 2, 3], program, limit=0.5)
    assert [size["status"] for size in found["sizes"]] == [3, 3, 0]
    assert found["sizes"][0]["error"].endswith("stopped after 0 s because it had not finished")
    assert found["sizes"][1]["error"].startswith("join_limit ended with status -11")


def size(**changes: Any) -> dict[str, Any]:
    join = {"probe": "staged", "slots": 37_500_000, "join_ms": 1.9, "verified": True}
    return {
        "rows": 25_000_000,
        "copy_bytes_per_second": 4.1e12,
        "random_32_byte_reads_per_second": 3.2e10,
        "radix_pass_ms": 0.5,
        "joins": [{**join, "join_ms": 2.5}, join],
        "verified": True,
        "status": 0,
        **changes,
    }


def test_the_fastest_verified_join_is_named() -> None:
    found = library.judge_join_limit({"sizes": [size()], "status": 0}, None)
    assert found.sentence == (
        "25,000,000 rows: join 1.900 ms (staged, 1.5 slots a row), copy 4.10 TB/s, 32.0e9 random reads/s"
        ", radix pass 0.500 ms"
    )
    wrong = size(joins=[{"verified": False}], verified=False, status=4)
    found = library.judge_join_limit({"sizes": [size(), wrong], "status": 4}, None)
    assert found.status == 4
    assert found.sentence.endswith("25,000,000 rows: WRONG result")
