"""The service: a queue of measurements for one cluster, behind an HTTP interface with tokens.

`job_rules` decides what a job may contain, `named_commands` has the commands that an operator named, `store` keeps
jobs, schedules and tokens in SQLite, `runner` queues what is due and runs one job at a time, `api` answers requests,
and `serve` puts them together.
"""
