"""Finds the transports that a ``UCX_TLS`` list allows.

Names and aliases are those of UCX 1.12 to 1.21 (``ucp_tl_aliases`` in src/ucp/core/ucp_context.c, and the FAQ,
https://openucx.readthedocs.io/en/master/faq.html).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from merge_bench.config.parsers import suggest_similar_names

# The settings that determine which transports UCX selects, and how it uses them. They are not in `merge`: its exchange
# imports UCXX, which sets variables in its process, and mpirun would pass these on.
REQUESTED = ("UCX_TLS", "UCX_NET_DEVICES", "UCX_MAX_RNDV_RAILS", "UCX_RNDV_SCHEME", "UCX_RNDV_THRESH")

UCX_PORTS = "27000-27999"
"""The ports of UCX's tcp between hosts, below those (32768 and up) that Linux chooses for programs."""
YES = frozenset({"y", "yes", "1", "on", "true"})
"""The words that UCX reads as yes."""

SHARED_MEMORY = frozenset({"posix", "sysv", "xpmem", "knem", "cma"})
CUDA = frozenset({"cuda_copy", "cuda_ipc", "gdr_copy"})
RDMA = frozenset({"rc_verbs", "rc_mlx5", "ud_verbs", "ud_mlx5", "dc_mlx5", "gga_mlx5", "srd", "rc_gda"})
REGISTER_NO_MEMORY = frozenset({"self", "tcp", "posix", "sysv", "cma"})
"""The transports that need no cache of registered memory, and so no word of memory that a program frees."""
# They move data only together with another transport, which carries the first messages.
ONLY_BESIDE_ANOTHER = frozenset({"cma", "knem", "cuda_ipc", "rocm_ipc", "ze_ipc"})
# Copies between memories of one process, and messages of a process to itself.
WITHIN_A_PROCESS = frozenset(
    {"self", "cuda_copy", "gdr_copy", "rocm_copy", "rocm_gdr", "ze_copy", "ze_gdr", "gaudi_gdr"}
)
TRANSPORTS = (
    SHARED_MEMORY
    | CUDA
    | RDMA
    | {"self", "tcp", "rocm_copy", "rocm_ipc", "rocm_gdr", "ze_copy", "ze_ipc", "ze_gdr", "gaudi_gdr"}
    | {"ugni_smsg", "ugni_udt", "ugni_rdma"}
)
ALIASES: dict[str, frozenset[str]] = {
    "all": TRANSPORTS,
    "mm": frozenset({"posix", "sysv", "xpmem"}),
    "sm": SHARED_MEMORY,
    "shm": SHARED_MEMORY,
    "ib": RDMA,
    "rc": frozenset({"rc_mlx5", "rc_verbs"}),
    "rc_v": frozenset({"rc_verbs"}),
    "rc_x": frozenset({"rc_mlx5"}),
    "ud": frozenset({"ud_mlx5", "ud_verbs"}),
    "ud_v": frozenset({"ud_verbs"}),
    "ud_x": frozenset({"ud_mlx5"}),
    "dc": frozenset({"dc_mlx5"}),
    "dc_x": frozenset({"dc_mlx5"}),
    "gga": frozenset({"gga_mlx5"}),
    "cuda": CUDA,
    "rocm": frozenset({"rocm_copy", "rocm_ipc", "rocm_gdr"}),
    "ze": frozenset({"ze_copy", "ze_ipc", "ze_gdr"}),
    "gaudi": frozenset({"gaudi_gdr"}),
    "ugni": frozenset({"ugni_smsg", "ugni_udt", "ugni_rdma"}),
}


def includes_peer_shared_memory(transports: Iterable[str]) -> bool:
    """Whether one of `transports` is shared memory that connects two processes by itself (cma, for one, does not)."""
    return not {"posix", "sysv", "xpmem"}.isdisjoint(transports)


def shared_memory_handles_errors(settings: Mapping[str, str]) -> bool:
    """Whether these settings let UCX use shared memory also for endpoints with error handling."""
    names = (f"UCX_{kind}_ERROR_HANDLING" for kind in ("POSIX", "SYSV", "MM"))
    return any(settings.get(name, "n").lower() in YES for name in names)


def select_transport_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of the `settings` that decide which transports UCX uses and how, as listed in `REQUESTED`."""
    return {name: settings[name] for name in REQUESTED if name in settings}


def split_ucx_list(value: str) -> tuple[bool, tuple[str, ...]]:
    """Split the value of a list setting of UCX into whether it excludes its names (``^``), and the names.

    Blanks are parts of names.
    """
    return value.startswith("^"), tuple(word for word in value.removeprefix("^").split(",") if word)


def ucx_list_problem(setting_name: str, value: str) -> str | None:
    """A sentence about what is wrong with the form of a list setting's value, and the right form; or None."""
    text = value.strip()
    negated, listed = split_ucx_list("".join("," if char.isspace() else char for char in text))
    if not listed:
        return f"the list is empty, so UCX finds nothing; leave {setting_name} out, or list names separated by commas"
    if "all" in listed and (negated or len(listed) > 1):
        return f"UCX accepts all only as the whole list; did you mean {setting_name}=all?"
    if any(map(str.isspace, value)):
        right = "^" * negated + ",".join(listed)
        return f"UCX takes a blank for a part of the name beside it; did you mean {setting_name}={right}?"
    return None


def _bare_transport_name(word: str) -> str:
    """The name in a word of ``UCX_TLS``, without UCX's marks for one transport and for auxiliary use."""
    return word.removeprefix("\\").removesuffix(":aux")


def _transports_of_word(word: str) -> frozenset[str]:
    """The transports that a word of ``UCX_TLS`` stands for."""
    if word.endswith(":aux"):  # for setting up connections only
        return frozenset()
    bare = _bare_transport_name(word)
    if word.startswith("\\"):
        return frozenset({bare})
    return ALIASES.get(bare, frozenset({bare}))


def find_allowed_transports(ucx_tls: str) -> frozenset[str]:
    """The transports that ``UCX_TLS`` with this value allows, whether this machine has them or not."""
    negated, listed = split_ucx_list(ucx_tls)
    return frozenset(TRANSPORTS) - resolve_transport_aliases(listed) if negated else resolve_transport_aliases(listed)


def resolve_transport_aliases(names: Iterable[str]) -> frozenset[str]:
    """The transports that `names` stand for, which can be transports or aliases such as ``rc``."""
    return frozenset(transport for name in names for transport in _transports_of_word(name))


def find_unknown_transports(ucx_tls: str) -> dict[str, str]:
    """The names in a ``UCX_TLS`` list that no UCX release has, each with a hint at the nearest known names."""
    names = sorted({*TRANSPORTS, *ALIASES})
    return {
        word: suggest_similar_names(_bare_transport_name(word).lower(), names)
        for word in split_ucx_list(ucx_tls)[1]
        if _bare_transport_name(word) not in names
    }


def find_unavailable_transports(ucx_tls: str, available_transports: Iterable[str]) -> tuple[str, ...]:
    """The names in a ``UCX_TLS`` list all of whose transports are missing from `available_transports`."""
    negated, listed = split_ucx_list(ucx_tls)
    if negated:
        return ()
    names = {*TRANSPORTS, *ALIASES}
    missing = names - frozenset(available_transports)
    return tuple(
        word
        for word in listed
        if _bare_transport_name(word) in names and (named := _transports_of_word(word)) and named <= missing
    )
