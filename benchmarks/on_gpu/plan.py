"""Which steps there are on a machine with so many GPUs, the most valuable first."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.goal.targets import Target
from benchmarks.on_gpu import library, mps, ncu, peer_variants, runs, versus
from benchmarks.on_gpu.figures import ALONE_NEED, OWN_NEED, largest_chunk
from benchmarks.on_gpu.runs import Merge
from benchmarks.on_gpu.steps import Finding, Step
from benchmarks.on_gpu.testing import run_tests
from benchmarks.peer.protocol import Job
from merge_bench.errors import RunFailed
from merge_bench.merge import exchange
from merge_bench.units import format_count

SMALL, LARGE = 1_000_000, 25_000_000
MOST_ALONE = 200_000_000  # rows of one worker's largest chunk: more take too long to make and to verify
FRACTION = 0.3
RAPIDSMPF = "rapidsmpf"
# Usual seconds. Those of tests, ucx-, link- and largest were measured on an H200 with 16 cores, November 2026; the
# others are estimates.
SECONDS = {
    "join-limit": 25.0,
    "peer-variants": 60.0,
    "tests": 20.0,
    "one-worker-large": 15.0,
    "one-worker-small": 10.0,
    "one-worker-largest": 45.0,
    "profile": 45.0,
    "library-cudf": 14.0,
    "library-join": 20.0,
    "library-partition": 14.0,
    "library-polars": 25.0,
    "mps": 55.0,
    "rapidsmpf": 75.0,
    "rapidsmpf-shuffle": 30.0,
    "link-shared-2": 14.0,
    "largest": 50.0,
    "ucx-shared-2": 11.0,
    "ucx-shared-4": 14.0,
    "link-check": 18.0,
    "ucx-all-gpus": 25.0,
}
VERSUS_SECONDS = {LARGE: 32.0, SMALL: 27.0}  # of one block


@dataclass(frozen=True)
class Machine:
    """What the steps depend on. `free_bytes`: of the GPU that has the least; `bandwidth`: of one GPU's memory."""

    gpus: int
    free_bytes: int
    bandwidth: int | None
    host_bytes: int
    cores: int


@dataclass(frozen=True)
class Asked:
    """What is the same for all steps."""

    folder: Path
    blocks: int
    seed: int


def steps(machine: Machine, asked: Asked) -> list[Step]:
    """All steps. First what a join could take, UCXX's program, the tests, and one worker, which the docs quote.

    Then what explains these figures: a profile, libraries alone, MPS, RAPIDS' shuffle; last what varies them.
    """
    merge = functools.partial(_merge, machine, asked)
    compare = functools.partial(_compare, machine, asked)
    program = functools.partial(_program, asked)
    several = [merge("ucx-all-gpus", Merge(machine.gpus, 1, LARGE))] if machine.gpus > 1 else []
    return [
        _step(
            "join-limit", "a join without RAPIDS (join_limit.cu)", functools.partial(library.join_limit, asked.folder)
        ),
        _step(
            "peer-variants",
            f"ways to run {peer_variants.PROGRAM} until two work",
            functools.partial(peer_variants.find, asked.folder),
        ),
        compare("ucxx-large", LARGE, versus.GOAL),
        compare("ucxx-small", SMALL, versus.GOAL),
        _step("tests", "pytest -m gpu", functools.partial(run_tests, asked.folder)),
        *several,
        merge("one-worker-large", _alone(LARGE)),
        merge("one-worker-small", _alone(SMALL)),
        _largest("one-worker-largest", machine, asked, 1),
        _profile(asked),
        program("library-cudf", "cudf.DataFrame.merge alone", "cudf_merge"),
        program(
            "library-join", "libcudf's inner_join alone, either table built, without and with skew", "libcudf_join"
        ),
        program("library-partition", "libcudf's hash_partition alone: 2, 32 and 64 parts", "libcudf_partition"),
        _step("library-polars", "a join by cudf-polars", functools.partial(_polars, asked)),
        _mps(machine, asked),
        *_rapidsmpf(machine, asked),
        merge("link-shared-2", Merge(2, 2, LARGE)),
        _largest("largest", machine, asked, 2),
        merge("ucx-shared-2", Merge(2, 2, SMALL)),
        merge("link-check", Merge(2, 2, LARGE, check_link=True)),
        merge("ucx-shared-4", Merge(4, 4, SMALL)),
    ]


def paired(gpus: int) -> int:
    """Workers of a comparison: an even number, as the peer needs, one for each GPU where there are several."""
    return max(2, gpus // 2 * 2)


def _sizes() -> tuple[tuple[str, int], ...]:
    return (("large", LARGE), ("small", SMALL))


def _alone(rows: int) -> Merge:
    return Merge(1, 1, rows, iterations=100, link_rounds=0)


def _step(name: str, what: str, do: Callable[[float], Finding]) -> Step:
    return Step(name, what, SECONDS[name], do)


def _merge(machine: Machine, asked: Asked, name: str, merge: Merge) -> Step:
    def do(left: float) -> Finding:
        return runs.judge(merge, runs.run(merge, name, asked.folder, left), machine.bandwidth)

    where = f"{merge.sharers} on each of {merge.gpus} GPUs" if merge.gpus > 1 else f"{merge.workers} on one GPU"
    return _step(name, f"{format_count(merge.rows)} rows per chunk, workers: {where}", do)


def _largest(name: str, machine: Machine, asked: Asked, workers: int) -> Step:
    need = ALONE_NEED if workers == 1 else OWN_NEED
    rows = largest_chunk(machine.free_bytes, workers, need, machine.host_bytes, workers, FRACTION)
    if rows < SMALL:
        return Step(name, "the largest chunk that fits", 1.0, _no_room)
    rows = min(rows, MOST_ALONE) if workers == 1 else rows
    return _merge(machine, asked, name, Merge(workers, workers, rows, iterations=5, link_rounds=5 * (workers > 1)))


def _no_room(left: float) -> Finding:
    raise RunFailed("one million rows per chunk do not fit into the free memory of the GPU or its host")


def _profile(asked: Asked) -> Step:
    def do(left: float) -> Finding:
        return ncu.profile(LARGE, "profile", asked.folder, left)

    return _step("profile", "the kernels of a merge by one worker, with Nsight Compute", do)


def _program(asked: Asked, name: str, what: str, module: str) -> Step:
    def do(left: float) -> Finding:
        return library.measure(module, (LARGE, SMALL), name, asked.folder, left)

    return _step(name, what, do)


def _polars(asked: Asked, left: float) -> Finding:
    return library.polars_join((LARGE, SMALL), "library-polars", asked.folder, left)


def _mps(machine: Machine, asked: Asked) -> Step:
    merge = Merge(2, 2, LARGE, link_rounds=0)

    def do(left: float) -> Finding:
        return mps.compare(merge, "mps", asked.folder, left, machine.bandwidth)

    return _step("mps", f"{format_count(LARGE)} rows per chunk, two workers on one GPU, without and with MPS", do)


def _rapidsmpf(machine: Machine, asked: Asked) -> list[Step]:
    """RAPIDS' shuffle: beside our exchange in the same merge, and alone."""
    several = machine.gpus > 1
    workers, sharers = (paired(machine.gpus), 1) if several else (2, 2)

    def beside(name: str, rows: int, left: float) -> Finding:
        if lacking := _lacking_rapidsmpf():
            return Finding(lacking, skipped=True)
        merge = Merge(workers, sharers, rows, f"{runs.UCX},{RAPIDSMPF}", link_rounds=0, launches=asked.blocks)
        return runs.compare(merge, runs.run(merge, name, asked.folder, left), machine.bandwidth)

    def alone(left: float) -> Finding:
        if not _installed("rapidsmpf") or not _installed("benchmarks.on_gpu.rapidsmpf_shuffle"):
            return Finding("the package rapidsmpf or its program is missing", skipped=True)
        output = asked.folder / "rapidsmpf-shuffle.jsonl"
        words = ["--output", str(output), "--seconds", f"{max(left - 5, 5):.0f}"]
        module = "benchmarks.on_gpu.rapidsmpf_shuffle"
        ended = library.run_program(module, words, "rapidsmpf-shuffle", asked.folder, left)
        lines = library.json_lines(ended.output.read_text(errors="replace"))
        if ended.failure or not lines:
            return Finding(ended.failure or "the program printed no figures", {"lines": lines}, library.FAILED)
        return Finding(f"{len(lines)} lines of figures, all rows right", {"lines": lines})

    chunk = f"{format_count(LARGE)} rows per chunk, {workers} workers"
    return [
        Step(
            f"rapidsmpf-{size}",
            f"--exchange ucx and rapidsmpf in turn, {format_count(rows)} rows per chunk",
            SECONDS["rapidsmpf"] / 6 * asked.blocks,
            functools.partial(beside, f"rapidsmpf-{size}", rows),
        )
        for size, rows in _sizes()
    ] + [_step("rapidsmpf-shuffle", f"rapidsmpf's shuffle alone, {chunk}", alone)]


def _lacking_rapidsmpf() -> str | None:
    """Why there is nothing to compare our exchange with; None if there is."""
    if RAPIDSMPF not in {plane.name for plane in exchange.data_planes()}:
        return "this merge_bench has no --exchange rapidsmpf"
    lacking = [package for package in exchange.find_data_plane(RAPIDSMPF).packages if not _installed(package)]
    return f"the package {lacking[0]} is not installed" if lacking else None


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:  # its parent is missing
        return False


def _compare(machine: Machine, asked: Asked, name: str, rows: int, goal: Target) -> Step:
    workers = paired(machine.gpus)

    def do(left: float) -> Finding:
        if lacking := versus.missing():
            return Finding(f"not compared: the package {', '.join(lacking)} is not installed", skipped=True)
        job = Job(rows, workers, machine.cores, iterations=5, warmup=2, fraction=FRACTION, seed=asked.seed)
        return versus.compare(versus.UCXX, job, asked.folder, asked.blocks, left, machine.gpus, goal)

    what = f"merge_bench and {', '.join(versus.UCXX)} in turn, {format_count(rows)} rows per chunk, {workers} workers"
    return Step(name, what, asked.blocks * VERSUS_SECONDS[rows], do)
