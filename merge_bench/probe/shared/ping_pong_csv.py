"""The ping-pong's results as CSV beside the records, with the columns of the original program; one file for a series.

`throughput-….csv` has ``type,msgsize,time,throughput``: bytes, µs of the whole loop, Mbit/s (10⁶) in both directions.
`delay-….csv` has ``type,time``: µs of one byte in one direction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from merge_bench.config.files import no_link, read_regular
from merge_bench.errors import RunFailed, UsageError
from merge_bench.records.placements import ONE_HOST, TWO_HOSTS
from merge_bench.records.probe_rows import FROM_FILE, Row
from merge_bench.records.schema import ProbeLine

THROUGHPUT, DELAY = "type,msgsize,time,throughput", "type,time"
LARGEST = 16 << 20
_PLACES = {ONE_HOST: ONE_HOST, "single-node": ONE_HOST, TWO_HOSTS: TWO_HOSTS, "two-nodes": TWO_HOSTS}
_TIME = r"(?P<time>\d+\.\d{6})"  # as ``%lf`` prints it: a number that was cut off has fewer digits
_ROWS = {
    THROUGHPUT: re.compile(rf"(?P<type>std|buff),(?P<size>[1-9]\d{{0,9}}),{_TIME},(?P<rate>\d+\.\d{{6}})", re.ASCII),
    DELAY: re.compile(rf"(?P<type>std|buff),{_TIME}", re.ASCII),
}


def append(folder: Path, where: str, line: ProbeLine) -> None:
    """Add the row of a test (``std``, ``buff-delay``, …) to its file in `folder`; a new file gets the heading.

    `where`: the placement, with the ranks if there are several pairs.

    Raises
    ------
    RunFailed
        If the file cannot be written.
    """
    name, micros = line.test.removesuffix("-delay"), (line.seconds or 0.0) * 1e6
    if line.bandwidth_bytes_per_second is None:
        kind, heading, row = "delay", DELAY, f"{name},{micros:.6f}"
    else:
        kind, heading, rate = "throughput", THROUGHPUT, line.bandwidth_bytes_per_second * 8 / 1e6
        row = f"{name},{line.size},{micros * 2 * line.iterations:.6f},{rate:.6f}"
    path = folder / f"{kind}-{name}-{where}-launch-{line.launch:03d}.csv"
    try:
        with open(path, "a", opener=no_link, encoding="ascii") as file:
            file.write(f"{row}\n" if file.tell() else f"{heading}\n{row}\n")
    except OSError as error:
        raise RunFailed(f"cannot write a CSV file in {folder}: {error.strerror}") from error


def read(path: Path) -> list[Row]:
    """The rows of such a file, of this program or of the original one; its name says where it was measured.

    Raises
    ------
    UsageError
        If it is another kind of file, a line is cut off, a row is there twice, or time and rate of a row do not fit.
    """
    try:
        text = read_regular(path, LARGEST).decode("ascii")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a ping-pong CSV file: it is not text") from None
    places = {place for word, place in _PLACES.items() if word in path.stem}
    if len(places) != 1:
        raise UsageError(f"the file name of {path} must contain exactly one of {', '.join(_PLACES)}; rename the file")
    heading, *lines = text.split("\n")
    if heading not in _ROWS:
        raise UsageError(f"{path} is not a ping-pong CSV file: its first line is neither {THROUGHPUT!r} nor {DELAY!r}")
    if lines[-1:] != [""] or not lines[:-1]:
        raise UsageError(f"{path} is truncated: {'its last line has no newline' if lines[:-1] else 'it has no rows'}")
    return list(_rows(path, heading, lines[:-1], places.pop()))


def _rows(path: Path, heading: str, lines: list[str], placement: str) -> Iterator[Row]:
    seen = set[tuple[str, int]]()
    for number, line in enumerate(lines, 2):
        match = _ROWS[heading].fullmatch(line)
        time = float(match["time"]) if match else 0.0
        if match is None or time <= 0:
            raise UsageError(f"{path}:{number}: expected a row with the columns {heading}, found {line[:60]!r}")
        test, size, rate = str(match["type"]), 1, None
        if heading == DELAY:
            test, seconds = f"{test}-delay", time * 1e-6
        else:
            size, mbits = int(match["size"]), float(match["rate"])
            loops = round(mbits * time / (16 * size))
            # Both have six decimals; add the rounding error of the product.
            if abs(mbits * time - 16 * size * loops) > 0.6e-6 * (mbits + time) + 1e-12 * mbits * time or loops < 1:
                raise UsageError(
                    f"{path}:{number}: size, throughput and time of this row contradict each other; measure again,"
                    " or remove the row"
                )
            seconds, rate = time * 1e-6 / (2 * loops), mbits * 1e6 / 8
        if (test, size) in seen:
            raise UsageError(f"{path}:{number}: there is already a row of {test} with messages of {size} bytes")
        seen.add((test, size))
        yield Row(
            probe="mpi", test=test, method="ping-pong over MPI", config=path.stem, placement=placement, size=size,
            seconds_median=seconds, seconds_range=(seconds, seconds),
            bandwidth_median=rate, bandwidth_range=None if rate is None else (rate, rate),
            source=f"{FROM_FILE}{path.name}",
        )  # fmt: skip
