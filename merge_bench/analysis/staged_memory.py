"""Finds pairs of workers on different hosts whose device memory UCX copies through host memory.

With GPUDirect an adapter reads and writes device memory itself. Without it UCX copies each message to the host, sends
it from there, and copies it to the device again: GPUs then exchange at the rate of these copies.
"""

from __future__ import annotations

from collections.abc import Sequence

from merge_bench.errors import Caution
from merge_bench.records.schema import LanePair, SizeRange

CODE = "device-memory-staged"
DEVICE = ("cuda", "rocm", "ze-")  # how UCX names kinds of device memory
BETWEEN_HOSTS = "between hosts"
# Of UCX's names of protocols (src/ucp): fragments in host memory, and bounce buffers.
_STAGED = ("frag host", "copy-in", "copy-out")
_SHOWN = 4


def staged_memory_warnings(pairs: Sequence[LanePair], protocols: Sequence[Sequence[SizeRange]]) -> list[Caution]:
    """One warning about all such pairs; [] if there is none, or UCX reports no protocols of device memory.

    Only the largest messages count: small ones are copied on purpose.
    """
    found: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.placement != BETWEEN_HOSTS or pair.protocols is None:
            continue
        for sizes in protocols[pair.protocols]:
            if sizes.last_bytes is None and sizes.memory.startswith(DEVICE) and is_staged(sizes.protocol):
                how = f"{sizes.protocol} over {sizes.transports}" if sizes.transports else sizes.protocol
                found.setdefault(how, []).append(f"{pair.from_rank}→{pair.to_rank}")
    if not found:
        return []
    ranks = list(dict.fromkeys(rank for each in found.values() for rank in each))
    more = f", … ({len(ranks)} pairs)" if len(ranks) > _SHOWN else ""
    return [
        Caution(
            CODE,
            f"device memory goes through host memory between {', '.join(ranks[:_SHOWN])}{more}: {'; '.join(found)}",
            "use a UCX with CUDA and RDMA (--ucx system), load nvidia_peermem or use a kernel with dma-buf, and check"
            " each host with doctor (GPU peer memory, GPU adapters)",
        )
    ]


def is_staged(protocol: str) -> bool:
    """Whether a protocol copies device memory to host memory or from there; `protocol`: UCX's description of it."""
    return any(word in protocol for word in _STAGED)
