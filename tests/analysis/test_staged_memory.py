"""Device memory that goes through host memory between hosts is a warning."""

from __future__ import annotations

import pytest

from merge_bench.analysis.transports import STAGED_MEMORY, staged_memory_warnings
from merge_bench.records.schema import UcxProtocolRange, WorkerPairLanes

GPUDIRECT = "rendezvous zero-copy read from remote"
STAGED = "rendezvous zero-copy read from remote, cuda_copy, frag host"


def sizes(protocol: str, memory: str = "cuda/GPU0", last: int | None = None) -> UcxProtocolRange:
    return UcxProtocolRange(
        memory=memory, first_bytes=8192, last_bytes=last, protocol=protocol, transports="rc_mlx5/mlx5_0:1"
    )


def pair(from_rank: int, to_rank: int, placement: str = "between hosts", protocols: int | None = 0) -> WorkerPairLanes:
    return WorkerPairLanes(
        from_rank=from_rank, to_rank=to_rank, placement=placement, transports=[], protocols=protocols
    )


def test_the_warning_names_ranks_protocol_and_remedy() -> None:
    (caution,) = staged_memory_warnings([pair(0, 2), pair(2, 0), pair(0, 1, "same host")], [[sizes(STAGED)]])
    assert caution.code == STAGED_MEMORY
    assert caution.message == (
        f"device memory goes through host memory between 0→2, 2→0: {STAGED} over rc_mlx5/mlx5_0:1"
    )
    assert "nvidia_peermem" in caution.remedy


def test_of_many_pairs_the_first_are_named() -> None:
    pairs = [pair(a, b) for a in range(2) for b in range(2, 6)]
    (caution,) = staged_memory_warnings(pairs, [[sizes("multi-frag eager copy-in copy-out")]])
    assert "between 0→2, 0→3, 0→4, 0→5, … (8 pairs):" in caution.message


@pytest.mark.parametrize(
    "protocols",
    [
        [sizes(GPUDIRECT)],
        [sizes("rendezvous pipeline cuda_copy, zero-copy write to remote, frag cuda")],
        [sizes("eager copy-in copy-out", last=8191), sizes(GPUDIRECT)],  # small messages are copied on purpose
        [sizes(STAGED, memory="host")],
        [],
    ],
)
def test_gpudirect_small_messages_and_host_memory_are_no_warning(protocols: list[UcxProtocolRange]) -> None:
    assert staged_memory_warnings([pair(0, 1)], [protocols]) == []


def test_pairs_of_one_host_and_unknown_protocols_are_no_warning() -> None:
    assert staged_memory_warnings([pair(0, 1, "same host"), pair(0, 2, protocols=None)], [[sizes(STAGED)]]) == []
