"""What `ucp_ep_print_info` prints, read: texts of UCX 1.19 and 1.21, and an endpoint of the UCX installed here."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

from merge_bench.merge.exchange import ucx
from merge_bench.merge.exchange.base import AbortFlag
from merge_bench.records.schema import SizeRange

SHARED_MEMORY = """\
#
# UCP endpoint
#
#               peer: <no debug data>
#                 lane[0]:  3:sysv/memory.0 md[2]           -> md[2]/sysv/sysdev[255] seg 4294967295 am
#                 lane[1]:  5:cma/memory.0 md[4]            -> md[4]/cma/sysdev[255] seg 4294967295 rma_bw#0
#                 lane[2]:  1:tcp/eth0.100.0 md[4]          -> md[4]/cma/sysdev[255] seg 4294967295 rma_bw#0
#
# +--------------------------------+----------------------------------------------------------------------+
# | ucp_context_0 intra-node cfg#0 | tagged message by ucp_tag_send*(fast-completion) from host memory    |
# +--------------------------------+--------------------------------------------------------+-------------+
# |                         0..999 | never used by the data plane                           | tcp/lo      |
# |                      1000..inf | never used by the data plane                           | tcp/lo      |
# +--------------------------------+--------------------------------------------------------+-------------+
#
# +--------------------------------+---------------------------------------------------------+
# | ucp_context_0 intra-node cfg#0 | tagged message by ucp_tag_send* from host memory        |
# +--------------------------------+-------------------------------------------+-------------+
# |                              0 | eager short                               | sysv/memory |
# |                        1..8191 | eager copy-in copy-out                    | sysv/memory |
# |                        8K..inf | (?) rendezvous zero-copy read from remote | cma/memory  |
# +--------------------------------+-------------------------------------------+-------------+
#
# +--------------------------------+------------------------------------------------------------------------+
# | ucp_context_0 intra-node cfg#0 | tagged message by ucp_tag_send* from cuda/GPU0                         |
# +--------------------------------+-----------------------------------------------+------------------------+
# |                         0..inf | (?) rendezvous zero-copy                      | 50% on a/b and 50% on c/d |
# +--------------------------------+-----------------------------------------------+------------------------+
#
# +--------------------------------+------------------------------------------+
# | ucp_context_0 intra-node cfg#0 | remote memory write by ucp_put* from host memory |
# +--------------------------------+------------------------------------------+
# |                         0..inf | copy-in                    | sysv/memory |
# +--------------------------------+----------------------------+-------------+
"""
OLD = """\
#                 lane[0]:  3:sysv/memory.0 md[2]           -> md[2]/sysv/sysdev[255] seg 4294967295 am am_bw#0
#
#                tag_send: 0..<egr/short>..93..<egr/bcopy>..8192..<rndv>..(inf)
#            tag_send_nbr: 0..<egr/short>..93..<egr/bcopy>..262144..<rndv>..(inf)
"""


def size_range(memory: str, first: int, last: int | None, protocol: str, transports: str, estimated: bool) -> SizeRange:
    return SizeRange(
        memory=memory, first_bytes=first, last_bytes=last, protocol=protocol, transports=transports, estimated=estimated
    )


def test_only_plain_tag_sends_count_and_every_memory_type_is_told() -> None:
    assert ucx.parse_size_ranges(SHARED_MEMORY) == [
        size_range("host", 0, 0, "eager short", "sysv/memory", False),
        size_range("host", 1, 8191, "eager copy-in copy-out", "sysv/memory", False),
        size_range("host", 8192, None, "rendezvous zero-copy read from remote", "cma/memory", True),
        size_range("cuda/GPU0", 0, None, "rendezvous zero-copy", "50% on a/b and 50% on c/d", True),
    ]


def test_lanes_with_dots_in_the_name_of_a_device() -> None:
    assert ucx.parse_lanes(SHARED_MEMORY) == ["sysv/memory", "cma/memory", "tcp/eth0.100"]


def test_protocols_of_version_1_have_thresholds_only() -> None:
    assert ucx.parse_size_ranges(OLD) == [
        size_range("host", 0, 92, "eager short", "", False),
        size_range("host", 93, 8191, "eager copy-in copy-out", "", False),
        size_range("host", 8192, None, "rendezvous", "", True),
    ]


@pytest.mark.parametrize("text", ["", "#\n# UCP endpoint\n#\n", "nothing | like | it", "tag_send: ..", "| a | b |"])
def test_other_text_gives_nothing(text: str) -> None:
    assert ucx.parse_size_ranges(text) == []


def test_an_endpoint_tells_how_it_sends_and_asking_changes_nothing() -> None:
    ucx = pytest.importorskip("merge_bench.merge.exchange.ucx", exc_type=ImportError)
    ends = [ucx.UcxExchange(rank, 2, abort=AbortFlag(), timeout=60.0) for rank in range(2)]
    addresses = [end.address for end in ends]
    failures: list[BaseException] = []

    def drive(rank: int) -> None:
        try:
            ends[rank].connect(addresses)
            for _ in range(2):
                payload, room = np.full(1 << 20, rank, np.uint8), np.empty(1 << 20, np.uint8)
                ends[rank].transfer({1 - rank: payload}, {1 - rank: room})
                assert (room == 1 - rank).all()
                seen.setdefault(rank, []).append(ends[rank].describe_endpoints()[1 - rank])
        except BaseException as error:
            failures.append(error)

    seen: dict[int, list[tuple[list[str], list[SizeRange]]]] = {}
    threads = [threading.Thread(target=drive, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    lanes, ranges = seen[0][0]
    assert seen[0][1] == (lanes, ranges)
    assert ranges[0].first_bytes == 0
    assert ranges[-1].last_bytes is None
    for before, after in itertools.pairwise(ranges):
        assert before.last_bytes is not None
        assert after.first_bytes == before.last_bytes + 1
    assert {each.memory for each in ranges} == {"host"}
    assert all(any(lane in each.transports for lane in lanes) for each in ranges)
    for end in ends:
        end.close()
