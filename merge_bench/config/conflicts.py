"""Settings that do not go together, each with the reason and where it is documented."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from merge_bench.config import tls
from merge_bench.config.catalogue import Catalogue

_YES = frozenset({"y", "yes", "1", "on", "true"})
_LONGEST_SEGMENT = 0xFFFF
_FAQ = "UCX FAQ, https://openucx.readthedocs.io/en/master/faq.html"
_NTHU = "Team NTHU-1, 2022 APAC HPC-AI competition, Dataframe Merging, 24 October 2022"


@dataclass(frozen=True)
class Conflict:
    """One finding about several settings; a warning, never an error.

    `code`: kebab case; `settings`: the names involved; `message`: what happens, and why; `documented`: where that is
    published, or ``measured`` with what was seen.
    """

    code: str
    settings: tuple[str, ...]
    message: str
    documented: str

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "settings": list(self.settings)}


@dataclass(frozen=True)
class Situation:
    """What the rules look at.

    `effective`: the UCX and UCXX settings in effect, by name; `given`: the names that the config or the environment
    sets; `error_handling`: that of the data plane's endpoints (``none``, ``peer``); `protocol`: of Dask's messages;
    `one_host`: all workers run on one host; `sysfs`: where the devices of this host are listed.
    """

    effective: Mapping[str, str]
    given: frozenset[str]
    catalogue: Catalogue
    error_handling: str = "none"
    protocol: str = "auto"
    one_host: bool = True
    sysfs: Path = Path("/sys/class")

    def yes(self, name: str) -> bool:
        return self.effective.get(name, "n").lower() in _YES


Rule = Callable[[Situation], Iterator[Conflict]]


def find_conflicts(situation: Situation) -> tuple[Conflict, ...]:
    """Every conflict in `situation`, in the order of the rules."""
    return tuple(conflict for rule in RULES for conflict in rule(situation))


def _unified_mode(now: Situation) -> Iterator[Conflict]:
    if now.yes("UCX_UNIFIED_MODE") and now.effective.get("UCX_RNDV_SCHEME") == "am":
        yield Conflict(
            "unified-mode-with-am",
            ("UCX_UNIFIED_MODE", "UCX_RNDV_SCHEME"),
            "Unified mode and the am rendezvous scheme do not go together: the gain of the scheme is lost; keep one.",
            f"{_NTHU}, section 2.5.2",
        )


def _am_scheme(now: Situation) -> Iterator[Conflict]:
    if now.effective.get("UCX_RNDV_SCHEME") == "am" and now.effective.get("UCX_PROTO_ENABLE", "y").lower() in _YES:
        yield Conflict(
            "am-scheme-with-protocol-v2",
            ("UCX_RNDV_SCHEME", "UCX_PROTO_ENABLE"),
            "Since UCX 1.16 protocols are chosen by estimated cost, which the am scheme upsets: a tuning of 2022 does"
            " not carry over unmeasured.",
            "UCXX docs, configuration, UCX_PROTO_ENABLE; measured with UCX 1.21 on shared memory: am moved the start of"
            " rendezvous from 5 kB to 580 kB",
        )


def _rendezvous_off(now: Situation) -> Iterator[Conflict]:
    thresholds = now.effective.get("UCX_RNDV_THRESH", "").split(",")
    if "UCX_RNDV_SCHEME" in now.given and all(each.rpartition(":")[2] == "inf" for each in thresholds):
        yield Conflict(
            "rendezvous-off",
            ("UCX_RNDV_THRESH", "UCX_RNDV_SCHEME"),
            "UCX_RNDV_THRESH=inf turns rendezvous off, so its scheme has no effect.",
            "ucx_info -c -f, UCX_RNDV_THRESH",
        )


def _no_shared_memory(now: Situation) -> Iterator[Conflict]:
    allowed = tls.selected(now.effective.get("UCX_TLS", "all"))
    if now.one_host and not allowed & tls.SHARED_MEMORY:
        yield Conflict(
            "no-shared-memory",
            ("UCX_TLS",),
            "Workers on one host may not use shared memory and fall back to a network, tcp/lo at best; add sm.",
            f"{_FAQ}, 'Which transports does UCX use?'; measured: 1.5 GB/s instead of 18 both ways together",
        )


def _long_segments(now: Situation) -> Iterator[Conflict]:
    names = [f"UCX_{kind}SEG_SIZE" for kind in ("MM_", "POSIX_", "SYSV_", "XPMEM_")]
    long = [name for name in names if _memory_units(now.effective.get(name, "")) > _LONGEST_SEGMENT]
    if long:
        yield Conflict(
            "segments-too-long",
            tuple(long),
            "UCX keeps the length of a message in shared memory in 16 bits, so segments of 64 KiB or more break it:"
            " receives end with 'Message truncated'. Take 32k.",
            "UCX sources, uct/sm/mm/base/mm_iface.h; seen with UCX 1.21: two runs of three with 64k failed",
        )


def _memory_units(text: str) -> int:
    """Bytes of a size as UCX reads it: powers of 1024; 0 for what is none."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    return int(found[1]) << 10 * " kmgt".index(found[2] or " ") if found else 0


def _error_handling(now: Situation) -> Iterator[Conflict]:
    keeps = (
        now.yes("UCX_POSIX_ERROR_HANDLING") or now.yes("UCX_SYSV_ERROR_HANDLING") or now.yes("UCX_MM_ERROR_HANDLING")
    )
    if keeps or not now.one_host or not tls.selected(now.effective.get("UCX_TLS", "all")) & tls.SHARED_MEMORY:
        return
    measured = "measured with UCX 1.21: 1.5 GB/s (tcp/lo) with peer error handling, 10 to 12 with the two settings"
    remedy = "set UCX_POSIX_ERROR_HANDLING=y and UCX_SYSV_ERROR_HANDLING=y"
    if now.error_handling == "peer":
        yield Conflict(
            "error-handling-drops-shared-memory",
            ("MERGE_BENCH_ERROR_HANDLING", "UCX_POSIX_ERROR_HANDLING", "UCX_SYSV_ERROR_HANDLING"),
            f"Endpoints that report a dead peer drop shared memory, unless it says that it can do so too: {remedy}.",
            f"ucx_info -c -f, UCX_POSIX_ERROR_HANDLING; {measured}",
        )
    if now.protocol == "ucx":
        yield Conflict(
            "dask-comm-without-shared-memory",
            ("MERGE_BENCH_PROTOCOL", "UCX_POSIX_ERROR_HANDLING", "UCX_SYSV_ERROR_HANDLING"),
            f"Dask's comms over UCX always handle errors and so drop shared memory: {remedy}.",
            f"UCXX sources, listener; {measured}",
        )


def _cuda_without_copy(now: Situation) -> Iterator[Conflict]:
    value = now.effective.get("UCX_TLS", "all")
    allowed = tls.selected(value)
    if allowed & tls.CUDA and "cuda_copy" not in allowed:
        yield Conflict(
            "cuda-without-cuda-copy",
            ("UCX_TLS",),
            "GPU memory without cuda_copy: what cuda_ipc or gdr_copy cannot carry, UCX then cannot touch at all; write"
            " cuda, which means all three.",
            f"{_FAQ}, 'How to run UCX with GPU support?'",
        )


def _unavailable(now: Situation) -> Iterator[Conflict]:
    installed = now.catalogue.installed
    if installed is None or not installed.transports:
        return
    value = now.effective.get("UCX_TLS", "all")
    missing = tls.unavailable_words(value, installed.transports)
    if missing:
        yield Conflict(
            "transport-unavailable",
            ("UCX_TLS",),
            f"On this machine UCX {installed.version} has no {', '.join(missing)}; it only warns and uses what is left"
            f" ({', '.join(sorted(set(installed.transports) & tls.selected(value))) or 'nothing'}).",
            f"{_FAQ}, 'Which transports does UCX use?'; available here: {', '.join(sorted(installed.transports))}",
        )


def _lost_alias(now: Situation) -> Iterator[Conflict]:
    settings = now.catalogue.installed.settings if now.catalogue.installed else {}
    for name in sorted(now.given):
        target = settings[name].alias_of if name in settings else None
        if (
            target
            and target in now.effective
            and name in now.effective
            and now.effective[target] != now.effective[name]
        ):
            other = "UCXX sets the other one" if target not in now.given else "the other one is set too"
            yield Conflict(
                "alias-loses",
                (name, target),
                f"{name} and {target} are one setting; {other} ({target}={now.effective[target]}), and it counts:"
                f" set {target}.",
                "ucx_info -c -f -a, 'alias of'; verified by setting both",
            )


def _devices(now: Situation) -> Iterator[Conflict]:
    value = now.effective.get("UCX_NET_DEVICES", "all")
    if value.startswith("^") or "UCX_NET_DEVICES" not in now.given:  # what the launcher chose is there
        return
    network = {entry.name for entry in _entries(now.sysfs / "net")}
    rdma = {entry.name for entry in _entries(now.sysfs / "infiniband")}
    named = [word for word in value.split(",") if word and word not in ("all", "memory")]
    missing = [word for word in named if not any(c in word for c in "*?[") and word.split(":")[0] not in network | rdma]
    if missing:
        yield Conflict(
            "no-such-device",
            ("UCX_NET_DEVICES",),
            f"This host has no device {', '.join(missing)}; it has {', '.join(sorted(network | rdma)) or 'none'}.",
            f"{_FAQ}, 'Which network devices does UCX use?'",
        )
    if rdma and named and not any(word.split(":")[0] in rdma for word in named):
        yield Conflict(
            "rdma-excluded",
            ("UCX_NET_DEVICES",),
            f"Interface names alone switch RDMA off; name the adapter and its port too ({', '.join(sorted(rdma))}).",
            f"{_FAQ}, 'Which network devices does UCX use?'",
        )


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _delayed_submission(now: Situation) -> Iterator[Conflict]:
    mode = now.effective.get("UCXPY_PROGRESS_MODE", "thread")
    delayed = now.effective.get("UCXPY_ENABLE_DELAYED_SUBMISSION", "0")
    if not mode.startswith("thread") and delayed != "0":
        yield Conflict(
            "delayed-submission-without-thread",
            ("UCXPY_PROGRESS_MODE", "UCXPY_ENABLE_DELAYED_SUBMISSION"),
            f"Delayed submission needs a progress thread; with {mode} UCXX refuses to start.",
            "UCXX sources, application_context.py",
        )


def _too_old(now: Situation) -> Iterator[Conflict]:
    installed = now.catalogue.installed
    if installed is not None and now.catalogue.minor < (1, 19):
        yield Conflict(
            "ucx-too-old",
            (),
            f"UCXX 0.52 refuses UCX {installed.version}: it needs 1.19 or newer.",
            "UCXX sources, python/ucxx/ucxx/__init__.py",
        )


RULES: tuple[Rule, ...] = (
    _too_old,
    _unified_mode,
    _am_scheme,
    _rendezvous_off,
    _no_shared_memory,
    _long_segments,
    _error_handling,
    _cuda_without_copy,
    _unavailable,
    _lost_alias,
    _devices,
    _delayed_submission,
)
