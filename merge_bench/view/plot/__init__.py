"""Drawings: series and panels as plain data, and what turns them into pictures and pages."""
