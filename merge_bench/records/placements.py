"""Placements of the two ends of a network measurement."""

from __future__ import annotations

ONE_HOST, TWO_HOSTS, EVERY_PAIR = "one-host", "two-hosts", "every-pair"
