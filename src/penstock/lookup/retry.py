"""Retry with exponential back-off until a deadline."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from penstock.errors import FetchError

Result = TypeVar("Result")

LONGEST = 2.0  # maximum seconds between two attempts


@dataclass(frozen=True)
class Retry:
    """How long to retry: `timeout` seconds in total, with pauses that double from `backoff` seconds."""

    timeout: float = 30.0
    backoff: float = 0.05

    def call(
        self,
        action: Callable[[], Result],
        temporary: Callable[[Exception], bool],
        failed: Callable[[Exception], None] = lambda error: None,
        describe: Callable[[Exception], str] | None = None,
    ) -> Result:
        """Return the result of an action that may fail temporarily; `failed` is called with every failure.

        `describe` replaces the message of errors that may contain keys; these errors are not chained.

        >>> from penstock.lookup.retry import Retry
        >>> tries = []
        >>> def third_time_lucky():
        ...     tries.append(1)
        ...     if len(tries) < 3:
        ...         raise ConnectionError("not yet")
        ...     return len(tries)
        >>> Retry(backoff=0.001).call(third_time_lucky, lambda error: isinstance(error, OSError))
        3
        """
        end = time.monotonic() + self.timeout
        pause, attempts = self.backoff, 0
        while True:
            try:
                return action()
            except Exception as error:
                attempts += 1
                failed(error)
                if not temporary(error):
                    raise
                left = end - time.monotonic()
                if left <= 0:
                    cause = None if describe is not None else error
                    reason = _first_line(error) if describe is None else describe(error)
                    break
            time.sleep(min(pause * random.uniform(0.5, 1.0), left))
            pause = min(2 * pause, LONGEST)
        raise FetchError(
            f"The table did not answer within {self.timeout:g} s ({attempts} attempts): {reason}. Cached "
            "keys are still answered. Give a longer timeout, or retry the batch when the database is "
            "available again."
        ) from cause


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
