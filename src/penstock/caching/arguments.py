"""What users give to a cache, checked: its policy, its size, and the keys, sizes and costs of requests."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.budget import Tuples, budget_of
from penstock.errors import BudgetError, PenstockError, UnknownPolicyError, hint
from penstock.policies import Policy, caching_names, get

MOST_ENTRIES = 2**31 - 2  # entries are numbered with 32 bits


def weighing_names() -> list[str]:
    """Return the policies that support costs of misses.

    >>> from penstock.caching.arguments import weighing_names
    >>> "lru" in weighing_names()
    False
    """
    return [name for name in caching_names() if get(name).weighs_costs]


def one_each(what: str, given: Any, keys: np.ndarray, dtype: Any = np.int64) -> np.ndarray:
    """Return sizes or costs, one per request."""
    found = np.zeros(0) if given is None else np.asarray(given)
    if found.shape != keys.shape or (len(found) and (found < 0).any()):
        raise PenstockError(f"{what} must be {len(keys):,} numbers from 0 up, one per request.")
    return np.ascontiguousarray(found, dtype)


def caching_policy(policy: str | Policy) -> Policy:
    """Return a policy that can run a cache, or raise an error that names those that can.

    >>> from penstock.caching.arguments import caching_policy
    >>> caching_policy("lfd:bypass=true")
    Lfd(bypass=True)
    """
    try:
        found = get(policy)
    except UnknownPolicyError as error:
        raise UnknownPolicyError(f"There is no policy {policy!r}{hint(policy, caching_names())}") from error
    if not found.caches:
        raise UnknownPolicyError(f"{found.spell()} cannot run a cache{hint(found.name, caching_names())}")
    return found


def entries_of(budget: Any) -> int:
    """Return a budget as a number of entries.

    >>> import penstock as ps
    >>> from penstock.caching.arguments import entries_of
    >>> entries_of(200), entries_of(ps.Tuples(200))
    (200, 200)
    """
    whole = isinstance(budget, int | np.integer) and not isinstance(budget, bool)
    found = Tuples(int(budget)) if whole and budget > 0 else budget
    if whole and budget <= 0:
        raise BudgetError(f"A cache needs room for at least one entry; {budget!r} was given.")
    found = budget_of(found)
    if not isinstance(found, Tuples):
        raise BudgetError(
            f"A cache needs a budget in entries; {budget!r} was given. Give a number, or Tuples."
        )
    if found.n > MOST_ENTRIES:
        raise BudgetError(f"A cache has at most {MOST_ENTRIES:,} entries; {budget!r} was given.")
    return found.n


def whole_keys(keys: Any) -> np.ndarray:
    """Return keys as an array of 64-bit whole numbers.

    >>> from penstock.caching.arguments import whole_keys
    >>> whole_keys([3, 1]).dtype.name
    'int64'
    """
    found = np.asarray(keys)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise PenstockError(
            f"Keys are a sequence of whole numbers; one of type {found.dtype} and shape {found.shape} was "
            "given. replay() takes keys of any type."
        )
    return np.ascontiguousarray(found, np.int64)
