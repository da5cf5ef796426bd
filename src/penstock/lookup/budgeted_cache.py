"""The cache of a lookup under its budget: how many entries it has, and what a budget in bytes is spent on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.budget import Tuples
from penstock.caching.cache import Cache
from penstock.errors import BudgetError, PenstockError
from penstock.lookup.keys import id_of

if TYPE_CHECKING:
    from penstock.lookup.cache import LookupCache

ENTRY_BYTES = 160  # bytes of an entry besides its row: index, ranking, row number, age
SLACK = 1.25  # rows without an entry may take a fifth of all
COUNTS_SHARE = 0.2  # share of a byte budget for key counts
CHOOSING_SHARE = 0.05  # share of a byte budget for the small caches that choose a policy


def new_cache_for(spec: LookupCache, requests: Any) -> Cache:
    """Return the cache for a budget in entries or bytes."""
    options: dict[str, Any] = {"requests": requests, "seed": spec.seed, "costs": spec.cost is not None}
    options["number"] = lambda value: np.int64(id_of(value))
    if spec.policy.needs_future and requests is None:
        raise PenstockError(
            f"{spec.policy.name} needs all requests in advance: use run(), or another policy."
        )
    if isinstance(spec.budget, Tuples):
        return Cache(spec.policy, spec.budget, **options)
    counts = int(COUNTS_SHARE * spec.budget.n) if spec.policy.counts_keys else 0
    choosing = int(CHOOSING_SHARE * spec.budget.n) if spec.policy.chooses else 0
    limit = int((spec.budget.n - counts - choosing) / SLACK) - 64 * ENTRY_BYTES // 8
    if limit < ENTRY_BYTES:
        raise BudgetError(f"{spec.budget} is too small for one entry; give at least 4 KiB.")
    return Cache(
        spec.policy,
        Tuples(max(1, limit // ENTRY_BYTES)),
        limit=limit,
        count_bytes=counts or None,
        choosing_bytes=choosing,
        **options,
    )
