"""How patterns are run: validated when built, the same for all patterns of a set."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.budget import Bytes, budget_of
from penstock.errors import BudgetError, ColumnError, PatternError, hint
from penstock.policies import get
from penstock.units import time_unit

STRATEGIES = ("columnar", "semantic", "object", "iterative")
CACHE_POLICIES = ("fifo", "rand", "lru", "lfu", "gdj", "clock", "clock-exp")


@dataclass(frozen=True)
class Options:
    """How patterns are run."""

    type: str = "type"
    time: str = "ts"
    strategy: str = "columnar"
    unit: str = "ms"
    count_only: bool = False
    limit: int | None = None
    max_events: int | None = None
    budget: Any = None
    policy: Any = "lru"
    seed: int = 0

    def __post_init__(self) -> None:
        time_unit(self.unit)
        if self.strategy not in STRATEGIES:
            raise PatternError(f"strategy={self.strategy!r} is not known{hint(self.strategy, STRATEGIES)}")
        for name in ("type", "time"):
            if not isinstance(getattr(self, name), str):
                raise ColumnError(f"{name} takes the name of a column; {getattr(self, name)!r} was given.")
        for name, least in (("limit", 0), ("max_events", 1)):
            given = getattr(self, name)
            whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
            if given is not None and not (whole and given >= least):
                raise PatternError(
                    f"{name}={given!r} is not allowed; it must be a whole number from {least} up."
                )
        if not isinstance(self.count_only, bool):
            raise PatternError(f"count_only={self.count_only!r} is not allowed; it must be True or False.")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise PatternError(f"seed={self.seed!r} is not allowed; it must be a whole number.")
        object.__setattr__(self, "policy", get(self.policy))
        if self.policy.name not in CACHE_POLICIES:
            raise PatternError(
                f"policy={self.policy.name!r} cannot manage a cache{hint(self.policy.name, CACHE_POLICIES)}"
            )
        if self.budget is not None:
            given = budget_of(Bytes(self.budget) if isinstance(self.budget, int) else self.budget)
            if not isinstance(given, Bytes):
                raise BudgetError(
                    f"The caches of a pattern take a budget in bytes; {self.budget!r} was given."
                )
            object.__setattr__(self, "budget", given)

    @property
    def room(self) -> int | None:
        """How many matches may be built; None: all."""
        return 0 if self.count_only else self.limit

    def plain(self) -> dict[str, Any]:
        """The same as plain values."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return found | {
            "budget": None if self.budget is None else self.budget.n,
            "policy": self.policy.spell(),
        }
