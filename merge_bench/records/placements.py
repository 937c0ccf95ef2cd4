"""Placements of the two ends of a network measurement; a module by itself, so that help loads no records for them."""

from __future__ import annotations

ONE_HOST, TWO_HOSTS, EVERY_PAIR = "one-host", "two-hosts", "every-pair"
