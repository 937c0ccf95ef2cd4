"""The kernels of the engine cuda: an inner join on one key of fixed width, written in CUDA C++ for given columns.

The smaller side, "build", goes into a hash table of 16-byte slots: its key, and its payload if that takes at most 8
bytes, else the number of its row. The rows of the other side, "probe", look their keys up and write the result at once:
no maps of row numbers and no gather of what the slots have.

A slot is found by linear probing from the first of a pair of slots, which lie in one 32-byte sector of memory. Kernels
do not wait for the host: what they find goes into `State`, four 64-bit numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

EMPTY = 0xD6E8FEB86659FD93  # the key of a free slot: a build side with this very key is refused
SLOT_BYTES = 16
MOST_STEPS = 256  # slots that a build row may pass; at half load, 1e9 different keys pass at most about 110
MOST_EQUAL = 32  # slots with its own key among them
THREADS = 256  # of a block
PROBE_ROWS = 2  # that a thread looks up at once
WIDTHS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "u64"}
"""The C++ type for a value of so many bytes: values are only copied and compared for equality of their bits."""


class State(IntEnum):
    """The numbers that the kernels leave behind.

    REFUSED: whether the table cannot be used, because a key is `EMPTY` or occurs too often, or too many collide.
    REPEATED: whether a key occurs twice in the table. FOUND, AGAIN: rows of the result in the first and a second try,
    those that its buffers have no room for included.
    """

    REFUSED = 0
    REPEATED = 1
    FOUND = 2
    AGAIN = 3


@dataclass(frozen=True)
class Widths:
    """Bytes of a value of each column: the key, then the payloads of the side that is looked up and of the other."""

    key: int
    probe: tuple[int, ...]
    build: tuple[int, ...]

    @property
    def inlined(self) -> bool:
        """Whether the payload of the build side lies in the slots."""
        return sum(self.build) <= 8

    @property
    def output(self) -> tuple[int, ...]:
        """The columns of the result: the key, the probe payloads, the build payloads."""
        return (self.key, *self.probe, *self.build)


def table_slots(rows: int) -> int:
    """Slots of the table for so many build rows: twice as many, and room so that no search has to turn around."""
    return 2 * max(rows, 1) + MOST_STEPS + 2


def write_source(widths: Widths) -> str:
    """The source of the kernels `clear`, `build` and `probe`; all their parameters have 8 bytes.

    clear(slots, their number, state); build(slots, rows, state, key, payloads); probe(slots, build rows, state, number
    of its count in the state, rows of room, probe rows, key, probe payloads, build payloads if they are not in the
    slots, output columns).
    """
    build = [WIDTHS[width] for width in widths.build]
    probe = [WIDTHS[width] for width in widths.probe]
    outputs = [WIDTHS[width] for width in widths.output]
    first = 1 + len(probe)  # of the build payloads in the output
    copies = ["out0[to] = keys[row];", *(f"out{at}[to] = probe{at - 1}[row];" for at in range(1, first))]
    packed, shift = ["0"], 0
    for at, kind in enumerate(build):
        if widths.inlined:
            packed.append(f"(u64)build{at}[row] << {shift}")
            copies.append(f"out{first + at}[to] = ({kind})(value >> {shift});")
            shift += 8 * widths.build[at]
        else:
            copies.append(f"out{first + at}[to] = build{at}[value];")
    sources = _parameters("const", "probe", probe) + ([] if widths.inlined else _parameters("const", "build", build))
    values = {
        "KEY": WIDTHS[widths.key],
        "EMPTY_KEY": f"{EMPTY:#x}ull",
        "STEPS": MOST_STEPS,
        "EQUAL": MOST_EQUAL,
        "THREADS": THREADS,
        "ROWS": PROBE_ROWS,
        "BUILD_COLUMNS": "".join(f", {each}" for each in _parameters("const", "build", build)),
        "PROBE_COLUMNS": "".join(f", {each}" for each in [*sources, *_parameters("", "out", outputs)]),
        "PACKED": " | ".join(packed) if widths.inlined else "row",
        "COPIES": "\n                ".join(copies),
    }
    text = _SOURCE
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def _parameters(kind: str, name: str, types: Sequence[str]) -> list[str]:
    return [f"{kind} {each} *__restrict__ {name}{at}".strip() for at, each in enumerate(types)]


# A warp holds what it finds in shared memory, and writes it when there is enough: so that it asks once for its place in
# the result, and neighbours write to neighbouring addresses.
_SOURCE = """
typedef unsigned long long u64;
typedef @KEY@ Key;
struct alignas(16) Slot { u64 key, value; };
constexpr u64 EMPTY = @EMPTY_KEY@;
constexpr unsigned ALL = 0xffffffff, WARPS = @THREADS@ / 32, ROWS = @ROWS@, PAIR = 2;
constexpr unsigned TILE = 32 * ROWS, ROOM = 2 * TILE * PAIR;

__device__ inline u64 first_slot(u64 key, u64 pairs) {
    key = (key ^ key >> 33) * 0xff51afd7ed558ccdull;
    key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ull;
    return __umul64hi(key ^ key >> 33, pairs) * PAIR;
}

extern "C" __global__ void __launch_bounds__(@THREADS@) clear(Slot *slots, u64 count, u64 *state) {
    u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (first < 4) state[first] = 0;
    for (u64 at = first; at < count; at += gridDim.x * (u64)blockDim.x) slots[at] = Slot{EMPTY, 0};
}

extern "C" __global__ void __launch_bounds__(@THREADS@)
build(Slot *slots, u64 rows, u64 *state, const Key *__restrict__ keys@BUILD_COLUMNS@) {
    u64 row = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (row >= rows || *(volatile u64 *)state) return;
    u64 key = keys[row], at = first_slot(key, rows);
    unsigned equal = 0;
    for (unsigned step = 0; key != EMPTY && equal <= @EQUAL@ && step < @STEPS@; step++, at++) {
        u64 there = step ? *(volatile u64 *)&slots[at].key : EMPTY;
        if (there == EMPTY) there = atomicCAS(&slots[at].key, EMPTY, key);
        if (there == EMPTY) {
            slots[at].value = @PACKED@;
            if (equal) state[1] = 1;
            return;
        }
        equal += there == key;
    }
    state[0] = 1;
}

extern "C" __global__ void __launch_bounds__(@THREADS@)
probe(const Slot *__restrict__ slots, u64 pairs, u64 *state, u64 attempt, u64 room, u64 rows,
      const Key *__restrict__ keys@PROBE_COLUMNS@) {
    __shared__ u64 values[WARPS][ROOM];
    __shared__ unsigned found[WARPS][ROOM];
    if (state[0]) return;
    const bool unique = !state[1];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, below = (1u << lane) - 1;
    unsigned held = 0;
    auto write = [&] {
        __syncwarp();
        u64 base = 0;
        if (lane == 0) base = atomicAdd(&state[attempt], (u64)held);
        base = __shfl_sync(ALL, base, 0);
        for (unsigned at = lane; at < held; at += 32) {
            const u64 to = base + at, row = found[warp][at], value = values[warp][at];
            if (to < room) {
                @COPIES@
            }
        }
        __syncwarp();
        held = 0;
    };
    for (u64 start = (blockIdx.x * (u64)WARPS + warp) * TILE; start < rows; start += gridDim.x * (u64)WARPS * TILE) {
        u64 key[ROWS], at[ROWS];
        bool live[ROWS];
        for (unsigned r = 0; r < ROWS; r++) {
            const u64 row = start + 32 * r + lane;
            live[r] = row < rows;
            key[r] = live[r] ? (u64)keys[row] : EMPTY;
            live[r] = key[r] != EMPTY;
            at[r] = first_slot(key[r], pairs);
        }
        for (;;) {
            bool any = false;
            for (unsigned r = 0; r < ROWS; r++) any |= live[r];
            if (!__any_sync(ALL, any)) break;
            Slot slot[ROWS][PAIR];
            for (unsigned r = 0; r < ROWS; r++)
                for (unsigned s = 0; s < PAIR; s++) slot[r][s] = live[r] ? slots[at[r] + s] : Slot{EMPTY, 0};
            for (unsigned r = 0; r < ROWS; r++) {
                for (unsigned s = 0; s < PAIR; s++) {
                    const bool match = live[r] && slot[r][s].key == key[r];
                    live[r] = live[r] && slot[r][s].key != EMPTY && !(match && unique);
                    const unsigned matches = __ballot_sync(ALL, match);
                    const unsigned to = held + __popc(matches & below);
                    if (match) values[warp][to] = slot[r][s].value, found[warp][to] = (unsigned)(start + 32 * r + lane);
                    held += __popc(matches);
                }
                at[r] += PAIR;
            }
            if (held > ROOM - TILE * PAIR) write();
        }
    }
    if (held) write();
}
"""
