"""The package's version. Readable by Python 3.6, like `interpreter.py`."""

__version__ = "0.1.0"
