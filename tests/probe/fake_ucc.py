"""An ucc_perftest that prints what recorded ones do, in either convention, and fails where they were seen to fail."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.probe.test_ucc import executable, recorded

SCRIPT = """#!{python}
import os, signal, sys
if os.environ.get("OMPI_MCA_pml") == "ucx":  # as with a UCX that is another than MPI's
    os.kill(os.getpid(), signal.SIGSEGV)
words = sys.argv[1:]
sharp_from = {sharp_from}
if os.environ.get("OMPI_COMM_WORLD_RANK") == "0":
    counts, largest = [int(words[words.index("-b") + 1])], int(words[words.index("-e") + 1])
    while counts[-1] < largest:
        counts.append(2 * counts[-1])
    sharp = "sharp" in os.environ["UCC_CL_BASIC_TLS"]
    traced = bool(os.environ.get("UCC_COLL_TRACE"))
    if sharp and sharp_from is None:
        print("[1795328228.5] [vm:19298:0]    cl_basic_lib.c:84   CL_BASIC WARN  tl sharp is not available")
    print({heading!r})
    for count in counts if traced else counts[:{most}]:
        if traced:
            layer = "TL_SHARP" if sharp and sharp_from is not None and count >= sharp_from else "TL_UCP"
            print("[1795328228.6] [vm:19298:0]        ucc_coll.c:338  UCC_COLL INFO  coll_init: Reduce_scatter sum: "
                  "src={{0x7, %d, float32, Host}}, dst={{0x8, %d, float32, Host}}; CL_BASIC {{%s}}, team_id 1"
                  % (2 * count, count, layer))
        shown, size = {factor} * count, 8 * count
        times = [1.23 + size / 4e3, 1.2 + size / 4e3, 1.26 + size / 4e3]
        rates = [size / each / 1e3 / 2 * (3 if count == {wrong_at} and not traced else 1) for each in times]
        print("%12d%12d" % (shown, 4 * shown), *("%11.2f" % each for each in times + rates), flush=True)
    if {crash} and not traced:
        os.kill(os.getpid(), signal.SIGSEGV)
"""


def fake_ucc(
    folder: Path,
    *,
    release: str = "1.10.0",
    most: int = 100,
    sharp_from: int | None = None,
    wrong_at: int = 0,
    crash: bool = False,
) -> dict[str, str]:
    """Make one for two ranks in a new folder; gives the environment that finds it.

    `most`: lines that it prints before it ends, or kills itself if it shall `crash`; `sharp_from`: elements that a rank
    keeps from which on SHARP carries them; `wrong_at`: where its bandwidth is three times that of its time.
    """
    folder.mkdir()
    heading = recorded("table", release, "2-ranks").partition("max         min\n")
    script = SCRIPT.format(
        python=sys.executable,
        heading="".join(heading[:2]).rstrip(),
        most=most,
        sharp_from=sharp_from,
        wrong_at=wrong_at,
        crash=crash,
        factor=1 if release == "1.3.0" else 2,
    )
    executable(folder / "ucc_perftest", script)
    executable(folder / "ucc_info", f"#!/bin/sh\necho '# UCC version={release} revision '\n")
    return {"PATH": f"{folder}:{os.environ['PATH']}"}
