"""Our GPU path against the interfaces of RAPIDS, without a GPU.

`cluster/locks/check-wheels.sh` installs the cu13 lock and runs this package (`__main__.py`): `uses.py` finds what our
source takes from the libraries, `installed.py` looks it up in the real packages, `record.py` writes it to
tests/data/rapids-api.json. The tests here compare source and fakes with that file; they need no RAPIDS.
"""
