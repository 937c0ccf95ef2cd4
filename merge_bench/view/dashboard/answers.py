"""Answers that never fail: records are others' data, and whatever is wrong with them, the view goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from merge_bench.errors import MergeBenchError

_LOG = logging.getLogger(__name__)
Question = ParamSpec("Question")
Answer = TypeVar("Answer")


class Answers(Generic[Question, Answer]):
    """What `make` makes of the last question, once; if it raises, what `failed` makes of the reason, a sentence."""

    def __init__(self, make: Callable[Question, Answer], failed: Callable[[str], Answer]) -> None:
        self._make, self._failed = make, failed
        self._last: tuple[object, Answer] | None = None

    def __call__(self, *question: Question.args, **options: Question.kwargs) -> Answer:
        """The answer to `question`, which is the same object as before if the question is."""
        if self._last is None or self._last[0] != (question, options):
            self._last = (question, options), self._answer(*question, **options)
        return self._last[1]

    def _answer(self, *question: Question.args, **options: Question.kwargs) -> Answer:
        try:
            return self._make(*question, **options)
        except MergeBenchError as reason:
            return self._failed(str(reason))
        except Exception as error:
            _LOG.warning("a result cannot be shown", exc_info=True)
            return self._failed(f"This cannot be shown: {type(error).__name__}: {error}")
