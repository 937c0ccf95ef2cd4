"""What every process of `Ranks` needs, imported once: the processes are forked after that."""

from __future__ import annotations

import os

from tests.conftest import QUICK_HOOKS

os.environ.setdefault("UCX_NET_DEVICES", "lo")
os.environ.setdefault(*QUICK_HOOKS)

import merge_bench.merge.exchange.ucx  # noqa: F401
