"""Windows: which tuples of two streams may join."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from penstock.engine.store import LANDMARK, ROWS, TIMED
from penstock.errors import UnitWarning, WindowError, warn_user
from penstock.units import LONGEST, duration, misread_unit, unit_word

Span = int | float | str | datetime.timedelta
MOST_ROWS = 2**62


@dataclass(frozen=True)
class Within:
    """Joins two tuples if the right one is at most `after` later or `before` earlier than the left one.

    >>> import penstock as ps
    >>> ps.Within("0 s", "10 minutes").resolve("ms").horizons
    (600000, 0)
    """

    before: Span
    after: Span

    def __post_init__(self) -> None:
        _check_span(self.before, "within")
        _check_span(self.after, "within")

    @property
    def has_unit(self) -> bool:
        """Whether the window is a duration, so that the unit of the time column matters."""
        return any(_is_duration(span) for span in (self.before, self.after))

    def resolve(self, unit: str) -> Resolved:
        """The window in the unit of the time column."""
        before, after = _in_unit(self.before, unit), _in_unit(self.after, unit)
        return Resolved(TIMED, (after, before), (after + before) / 2)


@dataclass(frozen=True)
class Rows:
    """Joins a tuple with the last n arrivals of the other stream.

    >>> import penstock as ps
    >>> ps.Rows(100)
    Rows(n=100)
    """

    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int | np.integer) or self.n < 1:
            raise WindowError(f"Rows takes a whole number from 1 up; {self.n!r} was given.")
        if self.n > MOST_ROWS:
            raise WindowError(f"Rows takes at most 2^62 rows; {self.n!r} was given.")
        object.__setattr__(self, "n", int(self.n))

    @property
    def has_unit(self) -> bool:
        """False: the window counts rows, so the unit of the time column does not matter."""
        return False

    def resolve(self, unit: str) -> Resolved:
        """A tuple expires when n more tuples of its own stream have arrived."""
        return Resolved(ROWS, (self.n - 1, self.n - 1), self.n)


@dataclass(frozen=True)
class Landmark:
    """Joins tuples of the same period, that is, between the same two multiples of `every`.

    >>> import penstock as ps
    >>> ps.Landmark("1 hour").resolve("ms").horizons
    (3600000, 3600000)
    """

    every: Span

    def __post_init__(self) -> None:
        _check_span(self.every, "every")
        if not isinstance(self.every, str | datetime.timedelta) and self.every <= 0:
            raise WindowError(f"Landmark takes a period above 0; {self.every!r} was given.")

    @property
    def has_unit(self) -> bool:
        """Whether the period is a duration, so that the unit of the time column matters."""
        return _is_duration(self.every)

    def resolve(self, unit: str) -> Resolved:
        """The period in the unit of the time column."""
        every = _in_unit(self.every, unit)
        if every <= 0:
            raise WindowError(f"Landmark takes a period above 0; {self.every!r} was given.")
        return Resolved(LANDMARK, (every, every), every)


Window = Within | Rows | Landmark


@dataclass(frozen=True)
class Resolved:
    """A window in the unit of a time column, as the kernels use it."""

    kind: int
    horizons: tuple[Any, Any]  # of the left stream, of the right stream
    length: float  # the mean horizon


def window_of(value: object) -> Window:
    """Make a window from the argument `within`: a number, a duration, a pair, Rows or Landmark.

    >>> from penstock.window import window_of
    >>> window_of("10 minutes")
    Within(before='10 minutes', after='10 minutes')
    """
    if isinstance(value, Within | Rows | Landmark):
        return value
    if isinstance(value, tuple | list):
        if len(value) != 2:
            raise WindowError(f"within takes one span or a pair (before, after); {value!r} was given.")
        return Within(value[0], value[1])
    return Within(value, value)  # type: ignore[arg-type]


class HasUnit(Protocol):
    """A window, or several."""

    @property
    def has_unit(self) -> bool:
        """Whether it is a duration, so that the unit of the time column matters."""
        ...


def unit_doubt(
    window: HasUnit, unit: str, times: tuple[float, float] | None, stamped: bool = False
) -> str | None:
    """Return why times or the window are probably read in the wrong unit, or None if they look right.

    `times` holds the smallest and the largest time if they are numbers. A window given as a bare number needs
    no unit, unless the times are timestamps (`stamped`): then it counts their units, such as microseconds.

    >>> from penstock.window import unit_doubt, window_of
    >>> unit_doubt(window_of("10 minutes"), "ms", (1_700_000_000, 1_700_000_600)).partition(",")[0]
    'The times look like seconds since 1970 (1700000000 is 2023-11-14) but are read as milliseconds'
    >>> unit_doubt(window_of(600), "ms", (1_700_000_000, 1_700_000_600)) is None
    True
    >>> print(unit_doubt(window_of(10), "us", None, stamped=True))
    The time columns are timestamps, so within=10 is 10 microseconds. Give a duration, such as '10 minutes'
    or '10 microseconds'.
    """
    if stamped:
        return _bare_number_doubt(window, unit)
    if times is None or not window.has_unit:
        return None
    likely = misread_unit(*times, unit)
    if likely is None:
        return None
    day = datetime.date(1970, 1, 1) + datetime.timedelta(seconds=times[0] / duration("1 s", likely))
    return (
        f"The times look like {unit_word(likely)} since 1970 ({times[0]:.0f} is {day}) but are read as "
        f"{unit_word(unit)}, so the window, which is a duration, would have the wrong length. If they "
        f'are {unit_word(likely)}, give unit="{likely}".'
    )


def _bare_number_doubt(window: HasUnit, unit: str) -> str | None:
    """Return a doubt about a bare number as the window of timestamps, if it is shorter than a second."""
    if not isinstance(window, Within):
        return None
    bare = {span for span in (window.before, window.after) if not isinstance(span, str | datetime.timedelta)}
    short = sorted(span for span in bare if 0 < span < duration("1 s", unit))
    if not short:
        return None
    return (
        f"The time columns are timestamps, so within={short[0]:g} is {short[0]:g} {unit_word(unit)}. "
        f"Give a duration, such as '{short[0]:g} minutes' or '{short[0]:g} {unit_word(unit)}'."
    )


def warn_unit(window: HasUnit, unit: str, times: tuple[float, float] | None, stamped: bool = False) -> None:
    """Warn if the times or the window look as if they were in another unit than the one they are read in.

    >>> from penstock.window import warn_unit, window_of
    >>> warn_unit(window_of("10 minutes"), "s", (1_700_000_000, 1_700_000_600))
    """
    doubt = unit_doubt(window, unit, times, stamped)
    if doubt is not None:
        warn_user(doubt, UnitWarning)


class UnitWatch:
    """Checks the first times of a stream that arrives in batches, and warns as `warn_unit` does.

    >>> import numpy as np
    >>> from penstock.window import UnitWatch, window_of
    >>> UnitWatch(window_of("10 minutes"), "s").see(np.array([1_700_000_000]))
    """

    def __init__(self, window: HasUnit, unit: str) -> None:
        self._window, self._unit, self._seen = window, unit, False

    def see(self, times: np.ndarray) -> None:
        """Check the times of a batch; only the first non-empty batch is checked."""
        if not self._seen and len(times):
            self._seen = True
            warn_unit(self._window, self._unit, (float(times.min()), float(times.max())))


def _check_span(span: object, name: str) -> None:
    if isinstance(span, str | datetime.timedelta):
        amount: Any = duration(span, "ns")
    elif isinstance(span, int | float | np.integer | np.floating) and not isinstance(span, bool):
        amount = span
    else:
        raise WindowError(
            f"{name}={span!r} is not a span of time. Give a number in the unit of the time column or a text "
            "such as '10 minutes'."
        )
    if not 0 <= amount <= LONGEST:  # also rejects NaN
        raise WindowError(f"{name}={span!r} is not allowed; a span is not negative and at most {LONGEST:g}.")


def _is_duration(span: Span) -> bool:
    """Whether a span is a duration longer than zero."""
    return isinstance(span, str | datetime.timedelta) and duration(span, "ns") > 0


def _in_unit(span: Span, unit: str) -> int | float:
    if isinstance(span, str | datetime.timedelta):
        return duration(span, unit)
    return span.item() if isinstance(span, np.generic) else span
