"""The records of a campaign: one JSON object per line, written once and never changed."""

ONE_HOST, TWO_HOSTS, EVERY_PAIR = "one-host", "two-hosts", "every-pair"
"""Placements of the two ends of a network measurement; they are here because help loads nothing else of records."""
