"""The records of a campaign: one JSON object a line, written once and never changed."""
