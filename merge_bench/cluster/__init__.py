"""Starts a cluster's processes on one or several hosts, calls its workers, watches and ends it."""
