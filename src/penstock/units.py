"""Parse durations and sizes as people write them: "10 minutes", "64 MiB"."""

from __future__ import annotations

import datetime
import re
from fractions import Fraction as Ratio

from penstock.errors import BudgetError, WindowError, hint

LONGEST = 1e300  # the longest window, in any unit; time differences stay finite

# Nanoseconds per unit; Ratio keeps conversions exact.
_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60 * 1_000_000_000,
    "h": 3_600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
    "w": 7 * 86_400 * 1_000_000_000,
}
EPOCH = (1_000_000_000, 4_000_000_000)  # the years 2001 and 2096 in seconds since 1970
_ALIASES = {
    "nanosecond": "ns",
    "microsecond": "us",
    "µs": "us",
    "millisecond": "ms",
    "millis": "ms",
    "sec": "s",
    "second": "s",
    "minute": "min",
    "m": "min",
    "hr": "h",
    "hour": "h",
    "day": "d",
    "week": "w",
}
_SIZES = {"b": 1, "byte": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("kmgt", start=1)
    for suffix, base in (("ib", 1024), ("b", 1000), ("", 1024))
}


def time_unit(unit: str) -> str:
    """Return the short name of a unit of time.

    >>> from penstock.units import time_unit
    >>> time_unit("minutes")
    'min'
    """
    word = str(unit).strip().lower()
    for candidate in (word, word.removesuffix("s")):
        if candidate in _NANOSECONDS:
            return candidate
        if candidate in _ALIASES:
            return _ALIASES[candidate]
    named = {short: unit_word(short) for short in _NANOSECONDS}
    guess = hint(word, [*named, *named.values()]).partition(" Allowed:")[0]
    allowed = ", ".join(f"{short} ({name})" for short, name in named.items())
    raise WindowError(f"{unit!r} is not a unit of time{guess} Allowed: {allowed}.")


def duration(value: str | datetime.timedelta, unit: str) -> int | float:
    """Convert a duration to the given unit; the result is an integer if it is whole.

    >>> from penstock.units import duration
    >>> duration("10 minutes", "ms"), duration("1 h 30 min", "h"), duration("250us", "ns")
    (600000, 1.5, 250000)
    """
    if isinstance(value, datetime.timedelta):
        micro = value // datetime.timedelta(microseconds=1)
        total = Ratio(micro * 1_000 + getattr(value, "nanoseconds", 0))
    else:
        parts = re.findall(r"([+-]?\d+(?:\.\d+)?)\s*([a-zA-Zµ]+)", value)
        rest = re.sub(r"([+-]?\d+(?:\.\d+)?)\s*([a-zA-Zµ]+)", "", value)
        if not parts or rest.strip(" ,"):
            raise WindowError(
                f"{value!r} is not a duration. Write a number and a unit, such as '10 minutes' or '250 ms'."
            )
        total = sum((Ratio(number) * _NANOSECONDS[time_unit(word)] for number, word in parts), Ratio(0))
    result = total / _NANOSECONDS[time_unit(unit)]
    if abs(result) > LONGEST:
        raise WindowError(f"{str(value)[:60]!r} is too long; at most {LONGEST:g} {unit} are allowed.")
    return int(result) if result.denominator == 1 else float(result)


def epoch_unit(smallest: float, largest: float) -> str | None:
    """Return the unit in which these times are dates from 2001 to 2096, or None if there is none.

    >>> from penstock.units import epoch_unit
    >>> epoch_unit(1_700_000_000, 1_700_000_600), epoch_unit(1.7e12, 1.8e12), epoch_unit(0, 3_600_000)
    ('s', 'ms', None)
    """
    for unit in ("s", "ms", "us", "ns"):
        second = _NANOSECONDS["s"] // _NANOSECONDS[unit]
        if EPOCH[0] * second <= smallest and largest <= EPOCH[1] * second:
            return unit
    return None


def misread_unit(smallest: float, largest: float, unit: str) -> str | None:
    """Return the unit that numeric times seem to have, or None if it is the one they are read in.

    Times too large for their unit cannot be dates. Times too small may be counters, so only seconds that are
    read as milliseconds (the default) are reported.

    >>> from penstock.units import misread_unit
    >>> misread_unit(1.7e9, 1.8e9, "ms"), misread_unit(1.7e18, 1.8e18, "s"), misread_unit(1.7e9, 1.8e9, "us")
    ('s', 'ns', None)
    """
    unit, likely = time_unit(unit), epoch_unit(smallest, largest)
    if likely is None or likely == unit:
        return None
    too_large = _NANOSECONDS[likely] < _NANOSECONDS[unit]
    return likely if too_large or (likely, unit) == ("s", "ms") else None


def unit_word(unit: str) -> str:
    """Return the plural name of a unit.

    >>> from penstock.units import unit_word
    >>> unit_word("ms"), unit_word("d")
    ('milliseconds', 'days')
    """
    short = time_unit(unit)
    return max((word for word, known in _ALIASES.items() if known == short), key=len) + "s"


def size(value: str | int) -> int:
    """Parse a size in bytes: KiB and K are powers of 1024, KB is a power of 1000.

    >>> from penstock.units import size
    >>> size("64 MiB"), size("1.5k"), size(1000)
    (67108864, 1536, 1000)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(value))
    word = found.group(2).lower() if found else ""
    word = word.removesuffix("s") if word in ("bytes", "byte") else word
    if found is None or (word and word not in _SIZES):
        raise BudgetError(f"{value!r} is not a size. Write bytes, or a number and a unit such as '64 MiB'.")
    return int(Ratio(found.group(1)) * _SIZES.get(word, 1))
