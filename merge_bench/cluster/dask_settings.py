"""What a user's or site's Dask configuration asks for, and which of it cannot work here."""

from __future__ import annotations

import os
import re

from merge_bench.errors import UsageError

_ENCRYPTION = "distributed.comm.require-encryption"
_PLANNING = "dataframe.query-planning"


def broken_configuration(error: ValueError) -> str | None:
    """A sentence about a file of Dask's configuration that Dask cannot read, from what importing Dask raises."""
    match = re.match(r"A dask config file at (['\"])(?P<file>.+?)\1 is malformed(?P<why>.*)", str(error), re.DOTALL)
    if match is None:
        return None
    lines = [line.strip() for line in match["why"].strip(" -,").splitlines() if line.strip()]
    if len(lines) > 1:  # the first only announces the parser's words, the last says where and what
        place = next((line for line in reversed(lines) if "line " in line), "")
        what = next((line for line in lines if line.startswith(("expected", "found", "could not"))), lines[1])
        lines = [" ".join(filter(None, (what, re.sub(r'^in "<.*?>", ', "at ", place))))]
    return (
        f"{match['file']}: Dask cannot read this configuration ({lines[0] if lines else 'it is malformed'}); correct"
        " the file"
    )


def requires_encryption() -> bool:
    import dask.config

    return bool(dask.config.get(_ENCRYPTION, False))


def check_allowed(*, protocol: str, dask_frames: bool) -> None:
    """Raise UsageError if Dask's configuration does not allow the run's connections (`protocol`) or dataframes."""
    import dask.config

    if protocol != "tls" and requires_encryption():
        sets = f"{_source_of_setting(_ENCRYPTION)} sets {_ENCRYPTION}"
        raise UsageError(f"{sets}, so Dask refuses --protocol {protocol}; use --protocol tls")
    if dask_frames and dask.config.get(_PLANNING, None) is False:
        sets = f"{_source_of_setting(_PLANNING)} sets {_PLANNING} to False"
        only = "the dataframes of --exchange dask have query planning only"
        raise UsageError(f"{sets}, but {only}; remove the setting")


def _source_of_setting(key: str) -> str:
    """The variable or the file that gives Dask's configuration its value of `key`."""
    import dask.config

    variable = "DASK_" + key.replace(".", "__").replace("-", "_").upper()
    if variable in os.environ:
        return variable
    for file, values in reversed([*dask.config.collect_yaml(dask.config.paths, return_paths=True)]):
        if isinstance(values, dict) and dask.config.get(key, None, config=values) is not None:
            return str(file)
    return "Dask's configuration"
