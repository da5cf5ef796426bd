"""Memory budgets: how much an operator may keep, in tuples, in bytes, or as a share of the exact need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.errors import BudgetError
from penstock.units import size


@dataclass(frozen=True)
class Tuples:
    """At most `n` tuples, over all streams.

    >>> import penstock as ps
    >>> ps.Tuples(2_000)
    Tuples(n=2000)
    """

    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int | np.integer) or self.n < 1:
            raise BudgetError(f"Tuples takes a whole number from 1 up; {self.n!r} was given.")
        object.__setattr__(self, "n", int(self.n))

    def __str__(self) -> str:
        return f"{self.n:,} tuples"


@dataclass(frozen=True)
class Bytes:
    """At most `n` bytes for everything the operator keeps: tuples, payload, index, scores and sketches.

    >>> import penstock as ps
    >>> ps.Bytes("64 MiB").n
    67108864
    """

    n: int

    def __init__(self, n: int | str) -> None:
        if isinstance(n, bool) or not isinstance(n, int | np.integer | str):
            raise BudgetError(f"Bytes takes a number of bytes or a text such as '64 MiB'; {n!r} was given.")
        amount = size(n if isinstance(n, str) else int(n))
        if amount < 1:
            raise BudgetError(f"Bytes takes at least one byte; {n!r} was given.")
        object.__setattr__(self, "n", amount)

    def __str__(self) -> str:
        for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
            if self.n >= 1024**power:
                return f"{self.n / 1024**power:.4g} {unit}"
        return f"{self.n} bytes"


@dataclass(frozen=True)
class Fraction:
    """A share of the tuples that the exact join would keep at the average rate.

    The need of a stream is its arrival rate times how long its tuples can still match. A share of 1.0 is
    enough for a steady stream; a bursty one needs more at its peaks.

    >>> import penstock as ps
    >>> ps.Fraction(0.2).tuples(arrivals=1_000, window=60, span=600)
    20
    """

    share: float

    def __post_init__(self) -> None:
        given = self.share
        number = isinstance(given, int | float | np.floating | np.integer) and not isinstance(given, bool)
        if not number or not math.isfinite(given) or given <= 0:
            raise BudgetError(f"Fraction takes a share above 0, such as 0.2; {given!r} was given.")

    def tuples(self, arrivals: float | Sequence[float], window: float | Sequence[float], span: float) -> int:
        """The budget in tuples: floor(share * need).

        The need is the sum over the streams of arrivals times window, divided by the span. If the span is 0,
        it is the number of arrivals. Give arrivals and window as one number, or as one number per stream.

        >>> import penstock as ps
        >>> ps.Fraction(0.5).tuples(arrivals=10, window=5, span=0)
        5
        >>> ps.Fraction(1.0).tuples(arrivals=(900, 60), window=(60, 0), span=600)
        90
        """
        counts = arrivals if isinstance(arrivals, Sequence) else (arrivals,)
        windows = window if isinstance(window, Sequence) else (window,) * len(counts)
        if span <= 0:
            return math.floor(self.share * sum(counts))
        kept = sum(count * length for count, length in zip(counts, windows, strict=True))
        return math.floor(self.share * kept / span)

    def __str__(self) -> str:
        return f"{self.share:.4g} of the exact need"


Budget = Tuples | Bytes | Fraction


def budget_of(value: object) -> Budget:
    """Parse a budget: a budget object, or a text such as "64 MiB", "20 %" or "2000 tuples".

    >>> from penstock.budget import budget_of
    >>> budget_of("20 %"), budget_of("2000 tuples"), budget_of("1 KiB")
    (Fraction(share=0.2), Tuples(n=2000), Bytes(n=1024))
    """
    if isinstance(value, Tuples | Bytes | Fraction):
        return value
    if isinstance(value, str):
        text = value.strip()
        try:
            if text.endswith("%"):
                return Fraction(float(text[:-1]) / 100)
            if text.endswith(("tuples", "tuple")):
                return Tuples(int(text.removesuffix("s").removesuffix("tuple").strip().replace(",", "")))
        except ValueError as error:
            if isinstance(error, BudgetError):
                raise
        else:
            if not text.isdigit():
                return Bytes(text)
    raise BudgetError(
        f"{value!r} is not a budget. Give Tuples(2_000), Bytes('64 MiB') or Fraction(0.2), "
        "or a text such as '2000 tuples', '64 MiB' or '20 %'."
    )
