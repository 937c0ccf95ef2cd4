"""The lanes of a command's processes, from what UCX logs in them.

UCX writes the log of each process into a file of its own, so nothing is added to what the command prints. A launch that
is asked for lanes runs the command once more before it is timed, because logging takes time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from merge_bench.cluster.ucx_perftest import LATENCY, SELF, PerftestType, parse_lanes_by_place, parse_ucx_log
from merge_bench.config.allowed_transports import resolve_transport_aliases
from merge_bench.config.files import read_regular_file
from merge_bench.config.ucx_info import NAME_LISTS
from merge_bench.errors import GateNotMet, UsageError
from merge_bench.records import ONE_HOST, TWO_HOSTS
from merge_bench.records.schema import LanesLine, UcxProtocolRange, WorkerPairLanes

_PLACEMENTS = {"intra-node": ONE_HOST, "inter-node": TWO_HOSTS}
_LONGEST_LOG = 256 << 20
_TAG_MESSAGES = PerftestType("tag", LATENCY)
NO_LANES_LOGGED = (
    "UCX logged no lanes: the command does not use UCX, or its processes do not get the settings; Open MPI may need "
    "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any"
)


def ucx_logging_variables(folder: Path) -> dict[str, str]:
    """The variables with which UCX writes the log of each process into `folder`, by host and process id."""
    return {
        "UCX_LOG_LEVEL": "info",
        "UCX_PROTO_INFO": "y",
        "UCX_LOG_FILE": str(folder.absolute() / "%h-%p.log"),
    }


def read_ucx_logs(folder: Path) -> list[str]:
    """The texts of UCX's logs in a folder, in the order of their names."""
    texts = []
    for file in sorted(folder.glob("*.log")):
        try:
            texts.append(read_regular_file(file, _LONGEST_LOG).decode("utf-8", "replace"))
        except (OSError, UsageError):
            continue
    return texts


def make_lanes_line(launch: int, variables: Mapping[str, str], logs: Iterable[str]) -> LanesLine | None:
    """Make the record of the lanes between the processes of a command; None if UCX logged none.

    The whole command is rank 0: UCX does not log which process a lane leads to, only whether that is on another host.
    So a pair stands for all processes that logged lanes to this host, or to others, and has their number.
    """
    transports: dict[str, dict[str, None]] = {}
    processes: Counter[str] = Counter()
    protocols: list[list[UcxProtocolRange]] = []
    for text in logs:
        for place, lanes in parse_lanes_by_place(text).items():
            if place != SELF:
                transports.setdefault(place, {}).update(dict.fromkeys(lanes))
                processes[place] += 1
        table = _parse_tag_protocols(text)
        if table and not protocols:
            protocols.append(table)
    if not transports:
        return None
    pairs = [
        WorkerPairLanes(
            from_rank=0,
            to_rank=0,
            placement=_PLACEMENTS.get(place),
            transports=list(lanes),
            protocols=0 if protocols else None,
            processes=processes[place],
        )
        for place, lanes in sorted(transports.items())
    ]
    requested = {name: variables[name] for name in NAME_LISTS if name in variables}
    return LanesLine(launch=launch, requested=requested, pairs=pairs, protocols=protocols)


def _parse_tag_protocols(text: str) -> list[UcxProtocolRange]:
    """How a process sends tag messages of host memory, by their size, from the text of its UCX log."""
    ranges = []
    for first, last, name in parse_ucx_log(text, _TAG_MESSAGES).protocols:
        protocol, _, lanes = name.removesuffix("]").rpartition(" [")
        ranges.append(
            UcxProtocolRange(memory="host", first_bytes=first, last_bytes=last, protocol=protocol, transports=lanes)
        )
    return ranges


def check_required_lanes(required: Sequence[str], logs: Sequence[str]) -> None:
    """Raise GateNotMet if a process of the command reaches others by none of the `required` transports."""
    wanted = resolve_transport_aliases(required)
    selected = [lanes for text in logs for place, lanes in parse_lanes_by_place(text).items() if place != SELF]
    failing = [lanes for lanes in selected if not wanted & {lane.partition("/")[0] for lane in lanes}]
    unmet = f"--require-transport {','.join(required)} is not met"
    if not selected:
        raise GateNotMet(f"{unmet}: {NO_LANES_LOGGED}")
    if failing:
        raise GateNotMet(f"{unmet}: processes of the command use {', '.join(failing[0])}")
