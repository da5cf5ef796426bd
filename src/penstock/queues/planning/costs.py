"""Cost models of disk accesses: one each, or a start-up cost plus the transfer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.errors import PenstockError


@dataclass(frozen=True)
class UnitCost:
    """Every read or write of adjacent tuples costs 1.

    >>> from penstock.queues import UnitCost
    >>> UnitCost().of(accesses=3, moved=500)
    3.0
    """

    def of(self, accesses: int, moved: int) -> float:
        """Return the cost of a number of accesses that moved a number of tuples."""
        return float(accesses)


@dataclass(frozen=True)
class ExtendedCost:
    """An access to t tuples costs c0 + c1 t; both parts are equal at T = c0 / c1.

    >>> from penstock.queues import ExtendedCost
    >>> cost = ExtendedCost(c0=4, c1=1)
    >>> cost.of(accesses=3, moved=500), cost.block
    (512.0, 4)
    """

    c0: float = 1.0
    c1: float = 1e-6

    def __post_init__(self) -> None:
        for name, value in (("c0", self.c0), ("c1", self.c1)):
            if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
                raise PenstockError(f"{name} takes a number above 0; {value!r} was given.")

    def of(self, accesses: int, moved: int) -> float:
        """Return the cost of a number of accesses that moved a number of tuples."""
        return float(self.c0 * accesses + self.c1 * moved)

    @property
    def block(self) -> int:
        """T, at least 1."""
        return max(1, round(self.c0 / self.c1))


Cost = UnitCost | ExtendedCost
