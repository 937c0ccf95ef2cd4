"""The variables with a client's token, or the file that has it: never recorded, and not inherited by any process."""

TOKENS = ("MERGE_BENCH_TOKEN", "MERGE_BENCH_TOKEN_FILE")
