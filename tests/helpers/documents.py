"""Documents as somebody who reads their JSON has them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from merge_bench.analysis.summary import summarize_campaign
from merge_bench.records.campaign import Campaign
from merge_bench.view.streams import encode_document


def plain(document: msgspec.Struct) -> dict[str, Any]:
    """What ``--json`` prints, read again."""
    found: dict[str, Any] = json.loads(encode_document(document))
    return found


def summarized(campaign: Campaign) -> dict[str, Any]:
    """The document of ``run --json``."""
    return plain(summarize_campaign(campaign))
