"""Finds settings that conflict, each with the reason and a reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from merge_bench.config import allowed_transports
from merge_bench.config.ucx_setting_names import Catalogue

SYSFS = Path("/sys/class")
NO_DEVICE = "no-such-device"
_LONGEST_SEGMENT = 0xFFFF
_FAQ = "UCX FAQ, https://openucx.readthedocs.io/en/master/faq.html"
_NTHU = "Team NTHU-1, 2022 APAC HPC-AI competition, Dataframe Merging, 24 October 2022"


@dataclass(frozen=True)
class Conflict:
    """A warning about several settings.

    `code`: an identifier in kebab case; `settings`: their names; `message`: what happens, and why; `documented`: a
    reference, or ``measured`` with the result.
    """

    code: str
    settings: tuple[str, ...]
    message: str
    documented: str


@dataclass(frozen=True)
class Situation:
    """The settings and options in which rules look for conflicts.

    `effective`: the UCX and UCXX settings in effect, by name; `given`: the names that the config or the environment
    sets; `error_handling`: the mode of the data plane's endpoints (``none``, ``peer``); `protocol`: that of Dask's
    messages.
    """

    effective: Mapping[str, str]
    given: frozenset[str]
    catalogue: Catalogue
    error_handling: str = "none"
    protocol: str = "auto"

    def is_on(self, name: str, default: str = "n") -> bool:
        return self.effective.get(name, default).lower() in allowed_transports.YES

    @property
    def tls(self) -> str:
        return self.effective.get("UCX_TLS", "all")


Rule = Callable[[Situation], Iterator[Conflict]]


def find_conflicts(situation: Situation) -> tuple[Conflict, ...]:
    return tuple(conflict for rule in RULES for conflict in rule(situation))


def _unified_mode(now: Situation) -> Iterator[Conflict]:
    if now.is_on("UCX_UNIFIED_MODE") and now.effective.get("UCX_RNDV_SCHEME") == "am":
        yield Conflict(
            "unified-mode-with-am",
            ("UCX_UNIFIED_MODE", "UCX_RNDV_SCHEME"),
            "UCX_UNIFIED_MODE removes the gain of UCX_RNDV_SCHEME=am: set only one of them.",
            f"{_NTHU}, section 2.5.2",
        )


def _am_scheme(now: Situation) -> Iterator[Conflict]:
    if now.effective.get("UCX_RNDV_SCHEME") == "am" and now.is_on("UCX_PROTO_ENABLE", default="y"):
        yield Conflict(
            "am-scheme-with-protocol-v2",
            ("UCX_RNDV_SCHEME", "UCX_PROTO_ENABLE"),
            "Since release 1.16, UCX chooses protocols by estimated cost, and UCX_RNDV_SCHEME=am changes this choice:"
            " measure whether am still makes the merge faster.",
            "UCXX docs, configuration, UCX_PROTO_ENABLE; measured with UCX 1.21 on shared memory: am raised the"
            " rendezvous threshold from 5 kB to 580 kB",
        )


def _rendezvous_off(now: Situation) -> Iterator[Conflict]:
    thresholds = now.effective.get("UCX_RNDV_THRESH", "").split(",")
    if "UCX_RNDV_SCHEME" in now.given and all(each.rpartition(":")[2] == "inf" for each in thresholds):
        yield Conflict(
            "rendezvous-off",
            ("UCX_RNDV_THRESH", "UCX_RNDV_SCHEME"),
            "UCX_RNDV_THRESH=inf turns rendezvous off, so UCX_RNDV_SCHEME has no effect.",
            "ucx_info -c -f, UCX_RNDV_THRESH",
        )


def _no_shared_memory(now: Situation) -> Iterator[Conflict]:
    if not allowed_transports.allowed(now.tls) & allowed_transports.SHARED_MEMORY:
        yield Conflict(
            "no-shared-memory",
            ("UCX_TLS",),
            "UCX_TLS excludes shared memory, so workers on the same host use a network, at best tcp over lo; add sm to"
            " UCX_TLS.",
            f"{_FAQ}, 'Which transports does UCX use?'; measured with UCX 1.21 by 2 workers on 2 cores of one host:"
            " 1.5 GB/s instead of 18 GB/s, sum of both directions (tcp.cfg)",
        )


def _long_segments(now: Situation) -> Iterator[Conflict]:
    names = [f"UCX_{kind}SEG_SIZE" for kind in ("MM_", "POSIX_", "SYSV_", "XPMEM_")]
    long = [name for name in names if _size_bytes(now.effective.get(name, "")) > _LONGEST_SEGMENT]
    if long:
        yield Conflict(
            "segments-too-long",
            tuple(long),
            "Receives over shared memory fail ('Message truncated') with segments of 64 KiB or more, because UCX stores"
            f" the length of a message in 16 bits; set {', '.join(long)} to 32k.",
            "UCX sources, uct/sm/mm/base/mm_iface.h; seen with UCX 1.21: two of three runs with 64k failed",
        )


def _size_bytes(text: str) -> int:
    """Bytes of a size in UCX's notation, with powers of 1024; 0 if the text is no size."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    return int(match[1]) << 10 * " kmgt".index(match[2] or " ") if match else 0


def _error_handling(now: Situation) -> Iterator[Conflict]:
    shared = allowed_transports.allowed(now.tls) & allowed_transports.SHARED_MEMORY
    if not shared or allowed_transports.handles_errors(now.effective):
        return
    settings = ("UCX_POSIX_ERROR_HANDLING", "UCX_SYSV_ERROR_HANDLING")
    measured = "measured with UCX 1.21: 1.5 GB/s (tcp/lo) with peer error handling, 10 to 12 GB/s with the two settings"
    remedy = "set UCX_POSIX_ERROR_HANDLING=y and UCX_SYSV_ERROR_HANDLING=y"
    if now.error_handling == "peer":
        yield Conflict(
            "error-handling-drops-shared-memory",
            ("MERGE_BENCH_ERROR_HANDLING", *settings),
            f"With --error-handling peer, UCX uses shared memory only if it has error handling, too: {remedy}.",
            f"ucx_info -c -f, UCX_POSIX_ERROR_HANDLING; {measured}",
        )
    if now.protocol == "ucx":
        yield Conflict(
            "dask-comm-without-shared-memory",
            ("MERGE_BENCH_PROTOCOL", *settings),
            f"Dask's UCX comms always use error handling, so UCX does not use shared memory for them: {remedy}.",
            f"UCXX sources, listener; {measured}",
        )


def _cuda_without_copy(now: Situation) -> Iterator[Conflict]:
    allowed = allowed_transports.allowed(now.tls)
    if allowed & allowed_transports.CUDA and "cuda_copy" not in allowed:
        yield Conflict(
            "cuda-without-cuda-copy",
            ("UCX_TLS",),
            "Without cuda_copy, UCX cannot transfer GPU memory where cuda_ipc and gdr_copy do not work; write cuda"
            " in UCX_TLS, which includes all three.",
            f"{_FAQ}, 'How to run UCX with GPU support?'",
        )


def _unavailable_transports(now: Situation) -> Iterator[Conflict]:
    installed = now.catalogue.installed
    if installed is None or not installed.transports:
        return
    missing = allowed_transports.unavailable_words(now.tls, installed.transports)
    if missing:
        yield Conflict(
            "transport-unavailable",
            ("UCX_TLS",),
            f"UCX {installed.version} has no {', '.join(missing)} on this machine and prints only a warning;"
            f" remaining transports: "
            f"{', '.join(sorted(set(installed.transports) & allowed_transports.allowed(now.tls))) or 'none'}.",
            f"{_FAQ}, 'Which transports does UCX use?'; available: {', '.join(sorted(installed.transports))}",
        )


def _alias_overridden(now: Situation) -> Iterator[Conflict]:
    settings = now.catalogue.installed.settings if now.catalogue.installed else {}
    for name in sorted(now.given):
        target = settings[name].alias_of if name in settings else None
        values = {now.effective.get(name), now.effective.get(target or "")}
        if target and None not in values and len(values) > 1:
            who = "which UCXX sets" if target not in now.given else "which is also set"
            yield Conflict(
                "alias-loses",
                (name, target),
                f"{name} and {target} are two names of one setting; UCX uses {target}={now.effective[target]}, {who}:"
                f" set only {target}.",
                "ucx_info -c -f -a, 'alias of'; verified by setting both",
            )


def _missing_or_excluded_devices(now: Situation) -> Iterator[Conflict]:
    value = now.effective.get("UCX_NET_DEVICES", "all")
    if value.startswith("^") or "UCX_NET_DEVICES" not in now.given:  # the launcher chooses devices that exist
        return
    network, rdma = (_host_devices(kind) for kind in ("net", "infiniband"))
    named = [word for word in value.split(",") if word and word != "all"]
    if missing := missing_devices(value):
        yield Conflict(
            NO_DEVICE,
            ("UCX_NET_DEVICES",),
            f"{missing_device_message(missing)}. This host has {', '.join(sorted(network | rdma)) or 'none'}.",
            f"{_FAQ}, 'Which network devices does UCX use?'",
        )
    if rdma and named and not any(word.split(":")[0] in rdma for word in named):
        yield Conflict(
            "rdma-excluded",
            ("UCX_NET_DEVICES",),
            f"UCX_NET_DEVICES lists only network interfaces, so UCX does not use RDMA; add an adapter and its port"
            f" ({', '.join(sorted(rdma))}).",
            f"{_FAQ}, 'Which network devices does UCX use?'",
        )


def _host_devices(kind: str) -> set[str]:
    folder = SYSFS / kind
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


def missing_devices(value: str) -> list[str]:
    """The devices that a value of ``UCX_NET_DEVICES`` names but this host does not have."""
    present = {"all", *_host_devices("net"), *_host_devices("infiniband")}
    named = [] if value.startswith("^") else filter(None, value.split(","))
    return [word for word in named if word.split(":")[0] not in present]


def missing_device_message(missing: Iterable[str]) -> str:
    return f"no such device here: {', '.join(missing)}; not used"


def _rails_without_adapter(now: Situation) -> Iterator[Conflict]:
    rails = now.effective.get("UCX_MAX_RNDV_RAILS", "1")
    several = "UCX_MAX_RNDV_RAILS" in now.given and rails.isdecimal() and int(rails) > 1
    if several and "UCX_NET_DEVICES" not in now.given and not any((SYSFS / "infiniband").glob("*")):
        yield Conflict(
            "rails-without-adapter",
            ("UCX_MAX_RNDV_RAILS",),
            f"UCX_MAX_RNDV_RAILS={rails} is for hosts with InfiniBand or RoCE adapters, and this host has none: here"
            " the config runs without them, so what it is for can only be measured on other hosts.",
            f"{_FAQ}, 'Does UCX support multi-rail?'",
        )


def _delayed_submission(now: Situation) -> Iterator[Conflict]:
    mode = now.effective.get("UCXPY_PROGRESS_MODE", "thread")
    delayed = now.effective.get("UCXPY_ENABLE_DELAYED_SUBMISSION", "0")
    if not mode.startswith("thread") and delayed != "0":
        yield Conflict(
            "delayed-submission-without-thread",
            ("UCXPY_PROGRESS_MODE", "UCXPY_ENABLE_DELAYED_SUBMISSION"),
            f"Delayed submission needs a progress thread; with UCXPY_PROGRESS_MODE={mode}, UCXX does not start.",
            "UCXX sources, application_context.py",
        )


def _ucx_too_old(now: Situation) -> Iterator[Conflict]:
    installed = now.catalogue.installed
    if installed is not None and now.catalogue.minor < (1, 19):
        yield Conflict(
            "ucx-too-old",
            (),
            f"UCXX 0.52 does not work with UCX {installed.version}; it needs UCX 1.19 or newer.",
            "UCXX sources, python/ucxx/ucxx/__init__.py",
        )


RULES: tuple[Rule, ...] = (
    _ucx_too_old,
    _unified_mode,
    _am_scheme,
    _rendezvous_off,
    _no_shared_memory,
    _long_segments,
    _error_handling,
    _cuda_without_copy,
    _unavailable_transports,
    _alias_overridden,
    _missing_or_excluded_devices,
    _rails_without_adapter,
    _delayed_submission,
)
