"""The window of a pattern: the maximum distance of the first and last event, in time or in events."""

from __future__ import annotations

import datetime
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import PatternError, WindowError
from penstock.patterns.language.nodes import Placed
from penstock.units import duration

_EVENTS = "a whole number of events from 1 up"
_TIME = "a finite window from 0 up"


@dataclass(frozen=True)
class Span(Placed):
    """`WITHIN 10 minutes`, `WITHIN 50` (in the unit of the stream) or `WITHIN 500 EVENTS`.

    >>> from penstock.patterns import Span
    >>> Span("10 minutes").width("ms"), Span(50).width("ms"), Span(500, events=True).width("ms")
    (600000, 50, 499)
    """

    size: int | float | str
    events: bool = False

    def __post_init__(self) -> None:
        size: Any = self.size
        if isinstance(size, datetime.timedelta):
            size = f"{size // datetime.timedelta(microseconds=1)} us"
        elif isinstance(size, np.generic):
            size = size.item()
        elif isinstance(size, str):
            size = " ".join(re.sub(r"(?<=\d)(?=[^\W\d_])|(?<=[^\W\d_])(?=[\d+-])|,", " ", size).split())
        object.__setattr__(self, "size", size)
        if self.events:
            fine = isinstance(size, int) and not isinstance(size, bool) and size >= 1
            if not fine:
                raise PatternError(
                    f"WITHIN {size} EVENTS is not allowed; give a whole number from 1 up.", expected=_EVENTS
                )
            return
        if isinstance(size, str):
            try:
                amount: Any = duration(size, "ns")
            except WindowError as error:
                raise PatternError(f"WITHIN {size}: {error}", expected="a duration") from error
        elif isinstance(size, int | float) and not isinstance(size, bool):
            amount = size
        else:
            raise PatternError(f"{size!r} is not a window. Write '10 minutes', a number, or '500 events'.")
        if not math.isfinite(amount) or amount < 0:
            raise PatternError(
                f"WITHIN {size} is not allowed; a window is finite and not negative.", expected=_TIME
            )

    def width(self, unit: str) -> int | float:
        """The largest difference between first and last: of times in this unit, or of positions."""
        if self.events:
            return int(self.size) - 1
        return duration(self.size, unit) if isinstance(self.size, str) else self.size

    def __str__(self) -> str:
        return f"{self.size} EVENTS" if self.events else str(self.size)


# A window bounds a difference. For fractional times `end - width` would be rounded differently, so that the
# content of a window would depend on how it is computed.


def first_within(axis: Sequence[Any] | np.ndarray, end: Any, width: Any, windows: int = 1) -> int:
    """Return the first of ascending times inside a window that ends here, or inside several in a row.

    >>> from penstock.patterns.language.span import first_within
    >>> first_within([1, 4, 6, 9], 9, 3), first_within([1, 4, 6, 9], 9, 3, windows=2)
    (2, 1)
    """
    first = bisect_left(axis, -width, key=lambda time: time - end)
    if windows == 1 or first == len(axis):
        return first
    return first_within(axis, axis[first], width, windows - 1)


def first_beyond(axis: Sequence[Any], start: Any, width: Any) -> int:
    """Return the first of ascending times beyond a window that begins here.

    >>> from penstock.patterns.language.span import first_beyond
    >>> first_beyond([1, 4, 6, 9], 1, 5)
    3
    """
    return bisect_right(axis, width, key=lambda time: time - start)


def span_of(given: Any) -> Span:
    """Return a window as given, or from a text, a number or a timedelta.

    >>> from penstock.patterns.language.span import span_of
    >>> span_of("500 events"), span_of(10)
    (Span(size=500, events=True), Span(size=10, events=False))
    """
    if isinstance(given, Span):
        return given
    if given is None:
        raise PatternError(
            "A pattern needs a window: without one its matches never expire. Add WITHIN, such as WITHIN 10 "
            "minutes or WITHIN 500 EVENTS.",
            expected="WITHIN",
        )
    if isinstance(given, str):
        words = given.split()
        if len(words) == 2 and words[1].lower() in ("event", "events"):
            if not words[0].isdecimal():
                raise PatternError(
                    f"WITHIN {given} is not allowed; give a whole number from 1 up.", expected=_EVENTS
                )
            return Span(int(words[0]), events=True)
        return Span(given)
    return Span(given)
