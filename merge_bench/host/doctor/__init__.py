"""Checks for conditions of a host that would spoil a run: one function per check, over a description of the host."""
