"""Measurements that compare: run by hand, alone on a machine, never as a test."""
