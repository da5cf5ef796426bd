"""The options of a pattern run, validated when built; the same for all patterns of a set."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from penstock.arguments import flag, one_of, whole
from penstock.budget import Bytes, budget_of
from penstock.errors import BudgetError, ColumnError, EventLimitError, PatternError, hint
from penstock.patterns.quota import Quota
from penstock.patterns.result import PatternStats
from penstock.policies import Policy, caching_names, get
from penstock.units import time_unit

STRATEGIES = ("columnar", "semantic", "object", "iterative")
"""The names of the strategies; all find the same matches."""
CACHING = ("object", "semantic")


def manages_pattern_caches(policy: Policy) -> bool:
    """Whether a policy can manage the caches of a pattern: all that it knows is what it has in memory.

    >>> from penstock import policies
    >>> from penstock.patterns.options import manages_pattern_caches
    >>> [name for name in policies.caching_names() if manages_pattern_caches(policies.get(name))]
    ['fifo', 'rand', 'lru', 'lfu', 'gdj', 'clock', 'clock-exp']
    """
    needs_more = policy.chooses or policy.needs_future or policy.reads_values or policy.counts_keys
    return policy.caches and not needs_more


@dataclass(frozen=True)
class PatternOptions:
    """The options of a pattern run."""

    type: str = "type"
    time: str = "ts"
    strategy: str = "columnar"
    unit: str = "ms"
    count_only: bool = False
    limit: int | None = None
    max_events: int | None = None
    budget: Any = None
    policy: Any = None  # default with a budget: `lru`
    seed: int | None = None  # default: 0

    def __post_init__(self) -> None:
        time_unit(self.unit)
        one_of("strategy", self.strategy, STRATEGIES, PatternError)
        for name in ("type", "time"):
            if not isinstance(getattr(self, name), str):
                raise ColumnError(f"{name} takes the name of a column; {getattr(self, name)!r} was given.")
        for name, least in (("limit", 0), ("max_events", 1)):
            given = getattr(self, name)
            if given is not None:
                whole(name, given, least, error=PatternError)
        flag("count_only", self.count_only, PatternError)
        if self.count_only and self.limit is not None:
            raise PatternError(
                f"count_only=True with limit={self.limit} is not allowed: a count covers all matches, but a "
                "limit stops the search; give only one of them."
            )
        seeded = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        if self.seed is not None and not seeded:
            raise PatternError(f"seed={self.seed!r} is not allowed; it must be a whole number.")
        self._check_caches()

    def _check_caches(self) -> None:
        """Reject options without effect: only two strategies have caches, and a policy needs a budget."""
        for name in ("budget", "policy", "seed"):
            if getattr(self, name) is not None and self.strategy not in CACHING:
                raise PatternError(
                    f"{name}={getattr(self, name)!r} is not supported with strategy={self.strategy!r}: it is "
                    "for the caches of the strategies 'object' and 'semantic'. To bound the events in "
                    "memory, give max_events= or use a shorter window."
                )
        if self.policy is not None:
            object.__setattr__(self, "policy", get(self.policy))
            if not manages_pattern_caches(self.policy):
                named = self.policy.name
                fit = [name for name in caching_names() if manages_pattern_caches(get(name))]
                raise PatternError(
                    f"policy={named!r} cannot manage the caches of a pattern{hint(named, fit)}"
                )
        for name in ("policy", "seed"):
            if getattr(self, name) is not None and self.budget is None:
                raise PatternError(
                    f"{name}= without budget= is not supported: caches without a budget evict nothing. Give "
                    "a budget in bytes, such as budget='64 MiB'."
                )
        if self.budget is not None:
            given = budget_of(Bytes(self.budget) if isinstance(self.budget, int) else self.budget)
            if not isinstance(given, Bytes):
                raise BudgetError(
                    f"The caches of a pattern take a budget in bytes; {self.budget!r} was given."
                )
            object.__setattr__(self, "budget", given)

    def quota(self, stats: PatternStats) -> Quota:
        """Return how many more matches are wanted after these."""
        if self.count_only:
            return Quota(build=0)
        if self.limit is None:
            return Quota()
        return Quota.first(self.limit - stats.matches) if not stats.cut else Quota(0, 0)

    def plain(self) -> dict[str, Any]:
        """Return the same as plain values."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return found | {
            "budget": None if self.budget is None else self.budget.n,
            "policy": None if self.policy is None else self.policy.spell(),
        }

    @classmethod
    def from_plain(cls, given: dict[str, Any]) -> PatternOptions:
        """The inverse of `plain`; snapshots of earlier versions name unused policies and seeds."""
        if given["strategy"] not in CACHING or given["budget"] is None:
            given = given | {"budget": None, "policy": None, "seed": None}
        return cls(**given)


def limit_error(events: int, most: int, spans: str) -> EventLimitError:
    """Return the error for more events within a window than `max_events` allows."""
    return EventLimitError(
        f"The window contains {events:,} events, but max_events is {most:,}; allow more, or use a shorter "
        f"window than {spans}."
    )
