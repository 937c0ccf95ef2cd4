"""Keeps a result until its arguments change. An exception becomes a result, too: records may hold anything."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar, TypeVarTuple

from merge_bench.errors import MergeBenchError

_LOG = logging.getLogger(__name__)
Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class LastResult(Generic[*Arguments, Result]):
    """Keeps what `make` returns for the last arguments; if it raises, what `make_failed` returns for the reason."""

    def __init__(self, make: Callable[[*Arguments], Result], make_failed: Callable[[str], Result]) -> None:
        self._make, self._make_failed = make, make_failed
        self._last: tuple[tuple[*Arguments], Result] | None = None

    def __call__(self, *arguments: *Arguments) -> Result:
        """The result for `arguments`: the same object as before if they are equal to the last ones."""
        if self._last is None or self._last[0] != arguments:
            self._last = arguments, self._result(arguments)
        return self._last[1]

    def _result(self, arguments: tuple[*Arguments]) -> Result:
        try:
            return self._make(*arguments)
        except MergeBenchError as reason:
            return self._make_failed(str(reason))
        except Exception as error:
            _LOG.warning("a result cannot be shown", exc_info=True)
            return self._make_failed(f"Cannot show this result: {type(error).__name__}: {error}")
