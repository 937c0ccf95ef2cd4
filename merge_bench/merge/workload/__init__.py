"""The tables that are merged: synthetic ones, Parquet files, and TPC-H."""
