"""The ping-pong's results in the columns of the program it comes from, one file a series, beside the records.

`throughput-….csv` has ``type,msgsize,time,throughput``: bytes; µs of the whole loop; Mbit/s (10⁶), pings and pongs.
`delay-….csv` has ``type,time``: µs of one message one way, of one byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from merge_bench.errors import UsageError
from merge_bench.probe.ranks.rules import Timed
from merge_bench.records.placements import ONE_HOST, TWO_HOSTS
from merge_bench.records.probe_rows import FROM_FILE, Range, Row

THROUGHPUT, DELAY = "type,msgsize,time,throughput", "type,time"
LARGEST = 16 << 20
_PLACES = {ONE_HOST: ONE_HOST, "single-node": ONE_HOST, TWO_HOSTS: TWO_HOSTS, "two-nodes": TWO_HOSTS}
_TIME = r"(?P<time>\d+\.\d{6})"  # what ``%lf`` prints: a number that was cut has fewer digits
_ROWS = {
    THROUGHPUT: re.compile(rf"(?P<type>std|buff),(?P<size>[1-9]\d{{0,9}}),{_TIME},(?P<rate>\d+\.\d{{6}})", re.ASCII),
    DELAY: re.compile(rf"(?P<type>std|buff),{_TIME}", re.ASCII),
}


def throughput_row(name: str, timed: Timed) -> str:
    """``size × 8 × iterations × 2 ÷ µs`` is bits per µs, which are Mbit/s."""
    return f"{name},{timed.size},{timed.elapsed * 1e6:.6f},{timed.both_ways_rate * 8 / 1e6:.6f}"


def delay_row(name: str, timed: Timed) -> str:
    """Half of the mean time there and back."""
    return f"{name},{timed.one_way * 1e6:.6f}"


def append(folder: Path, test: str, where: str, launch: int, timed: Timed) -> None:
    """Add the row of `test` (``std``, ``buff-delay``, …) to its file in `folder`, which begins with the heading."""
    name, _, delay = test.partition("-")
    heading, row = (DELAY, delay_row(name, timed)) if delay else (THROUGHPUT, throughput_row(name, timed))
    path = folder / f"{'delay' if delay else 'throughput'}-{name}-{where}-launch-{launch:03d}.csv"
    fresh = not path.exists()
    with path.open("a") as file:
        file.write((heading + "\n" if fresh else "") + row + "\n")


def read(path: Path) -> list[Row]:
    """The rows of such a file, of this program or of the one that it comes from; its name tells where it was measured.

    Raises
    ------
    UsageError
        If it is no such file, is cut off in a line, holds a row twice, or one whose rate is not what its time makes.
    """
    text = _text(path)
    places = {place for word, place in _PLACES.items() if word in path.stem}
    if len(places) != 1:
        raise UsageError(
            f"the name of {path} does not tell where it was measured; put one of {', '.join(_PLACES)} in it"
        )
    heading, *lines = text.split("\n")
    if heading not in _ROWS:
        raise UsageError(f"{path} begins neither with {THROUGHPUT} nor with {DELAY}, so it is no ping-pong's CSV")
    if lines[-1:] != [""] or not lines[:-1]:
        raise UsageError(f"{path} is cut off: {'its last line has no end' if lines[:-1] else 'it has no row'}")
    found = list(_rows(path, heading, lines[:-1], places.pop()))
    seen = set[tuple[str, int]]()
    for number, row in enumerate(found, 2):
        if (row.test, row.size) in seen:
            raise UsageError(f"{path}:{number} is a second row of {row.test} with {row.size} bytes")
        seen.add((row.test, row.size))
    return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise UsageError(f"{path} is larger than {LARGEST >> 20} MiB, so it is no ping-pong's CSV")
        return content.decode("ascii")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text, so it is no ping-pong's CSV") from None


def _rows(path: Path, heading: str, lines: list[str], placement: str) -> Iterator[Row]:
    for number, line in enumerate(lines, 2):
        match = _ROWS[heading].fullmatch(line)
        time = float(match["time"]) if match else 0.0
        if match is None or time <= 0:
            raise UsageError(f"{path}:{number} is no row of {heading}: {line[:60]!r}")
        test, size, rate = str(match["type"]), 1, None
        if heading == DELAY:
            test, seconds = f"{test}-delay", time * 1e-6
        else:
            size, mbits = int(match["size"]), float(match["rate"])
            loops = round(mbits * time / (16 * size))
            # Half of the sixth decimal of both, and what multiplying them costs.
            if abs(mbits * time - 16 * size * loops) > 0.6e-6 * (mbits + time) + 1e-12 * mbits * time or loops < 1:
                raise UsageError(
                    f"{path}:{number}: rate and time do not fit together: no whole number of ping-pongs gives both"
                )
            seconds, rate = time * 1e-6 / (2 * loops), mbits * 1e6 / 8
        yield Row(
            probe="mpi", test=test, method="ping-pong over MPI", config=path.stem, placement=placement, size=size,
            seconds=Range(seconds, seconds, seconds), bandwidth=None if rate is None else Range(rate, rate, rate),
            source=f"{FROM_FILE}{path.name}",
        )  # fmt: skip
