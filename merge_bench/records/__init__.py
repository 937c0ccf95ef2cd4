"""The records of a campaign: one JSON object per line, written once and never changed."""
