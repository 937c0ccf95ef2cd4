"""The driver: from options to launches in order, one launch's life, recording, resuming, gates, imported results."""
