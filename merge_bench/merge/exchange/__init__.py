"""The exchange of frames between workers over UCX."""
