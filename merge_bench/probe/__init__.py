"""The network measurements beside the merge: one file a probe, on the same launchers and into the same records."""
