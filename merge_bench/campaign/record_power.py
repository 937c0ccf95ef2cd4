"""Records what a launch's GPUs and processors used during its timed iterations, and whether GPUs were throttled.

Counters are read before the first timed iteration and after the last one, so reading them takes no time of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from merge_bench.campaign.cluster_session import Session
from merge_bench.cluster.watch import Member
from merge_bench.host import machine
from merge_bench.host.machine import PowerReading
from merge_bench.records.schema import GpuPower, HostPower, PowerLine


def begin_power(session: Session) -> Callable[[], None]:
    """Read the counters of all workers; the function that is returned reads them again, and writes the record."""
    with_gpu = session.plan.device_memory
    before = session.workers.on_all(machine.read_power, with_gpu=with_gpu)

    def finish() -> None:
        after = session.workers.on_all(machine.read_power, with_gpu=with_gpu)
        session.writer.write(
            PowerLine(
                launch=session.launch,
                gpus=gpus_between(session.members, before, after) if with_gpu else None,
                hosts=hosts_between(session.members, before, after),
            )
        )

    return finish


@contextmanager
def record_power(session: Session) -> Iterator[None]:
    """Record energy, clocks and throttling during the block, if no error ends it."""
    finish = begin_power(session)
    yield
    finish()


def gpus_between(
    members: Sequence[Member], before: Sequence[PowerReading], after: Sequence[PowerReading]
) -> list[GpuPower]:
    """What each GPU did between the readings of its first worker; `before`, `after`: by rank.

    A GPU that only one of two readings has is left out.
    """
    ranks: dict[tuple[str, str], list[int]] = {}
    for member in members:
        first, last = before[member.rank].gpu, after[member.rank].gpu
        if first is not None and last is not None and first.key == last.key:
            ranks.setdefault((member.host, first.key), []).append(member.rank)
    found = []
    for (host, _), sharing in ranks.items():
        first, last = before[sharing[0]].gpu, after[sharing[0]].gpu
        assert first is not None
        assert last is not None
        found.append(
            GpuPower(
                host=host,
                index=first.index,
                name=first.name,
                ranks=sharing,
                seconds=last.at - first.at,
                joules=machine.gpu_joules(first, last),
                throttled_seconds=machine.throttled_seconds(first, last),
                before=first.state,
                after=last.state,
                limit_watts=last.limit_watts,
                max_sm_mhz=last.max_sm_mhz,
                max_memory_mhz=last.max_memory_mhz,
            )
        )
    return found


def hosts_between(
    members: Sequence[Member], before: Sequence[PowerReading], after: Sequence[PowerReading]
) -> list[HostPower]:
    """What the processors of each host did between the readings of its first worker; `before`, `after`: by rank."""
    readers: dict[str, int] = {}
    for member in members:
        readers.setdefault(member.host, member.rank)
    found = []
    for host, rank in readers.items():
        first, last = before[rank], after[rank]
        joules, unknown = machine.package_joules(first, last)
        found.append(
            HostPower(
                host=host,
                packages=len(first.packages),
                seconds=last.at - first.at,
                joules=joules,
                unknown=unknown,
            )
        )
    return found
