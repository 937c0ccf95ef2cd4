"""The tables that are merged: synthetic ones, real ones in Parquet files, and those of benchmarks, by name."""
