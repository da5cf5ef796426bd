"""What is looked at in each structure that a state is made of.

A structure is a named tuple of arrays. Its parts are looked at before itself, each by the method
`check_restored(self, around, fresh)` of its class, or by the check that its class has in the table here. A
structure all of whose arrays may have any value says so; one that has no arrays of its own needs no check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import numpy as np

from penstock.engine.store import Store
from penstock.states.checks.store import live_tuples, pool_of_tuples

Check = Callable[[Any, Any, Any], None]
Kind = TypeVar("Kind", bound=Check)
CHECKS: dict[type, Check] = {}


def checks(*kinds: type) -> Callable[[Kind], Kind]:
    """Note down the check of a structure, given what is around it (a store, or a cache) and a fresh one.

    The fresh one is None where it cannot be built, as for policies that know the future.
    """

    def noted(check: Kind) -> Kind:
        CHECKS.update(dict.fromkeys(kinds, check))
        return check

    return noted


def anything(part: Any, around: Any, fresh: Any) -> None:
    """The check of structures whose parts have theirs, and whose other arrays may have any value."""


def check_parts(part: Any, around: Any, fresh: Any = None) -> None:
    """Whether all structures in the state of a policy are sound; types and shapes have been looked at."""
    if not isinstance(part, tuple):
        return
    others = fresh if isinstance(fresh, tuple) else (None,) * len(part)
    for each, other in zip(part, others, strict=True):
        check_parts(each, around, other)
    check = check_for(type(part))
    if check is not None:
        check(part, around, fresh)


def check_for(kind: type) -> Check | None:
    """The check of a structure: that of the table, or its own; None if all it has are parts.

    >>> from penstock.policies.lfu import LfuState
    >>> from penstock.states.checks.parts import check_for
    >>> check_for(LfuState) is None
    True
    """
    return CHECKS.get(kind) or getattr(kind, "check_restored", None)


def needs_check(kind: type) -> bool:
    """Whether a structure has arrays of its own, and nobody looks at them.

    >>> from typing import NamedTuple
    >>> import numpy as np
    >>> from penstock.states.checks.parts import needs_check
    >>> class Numbers(NamedTuple):
    ...     heap: np.ndarray
    >>> needs_check(Numbers)
    True
    """
    fields = get_type_hints(kind).values()
    parts = [each for each in fields if isinstance(each, type) and issubclass(each, tuple)]
    return check_for(kind) is None and len(parts) < len(fields)


class Members:
    """The tuples of a store, or the entries of a cache, as policies see them."""

    def __init__(self, around: Any) -> None:
        self.of_store = isinstance(around, Store)
        if self.of_store:
            self.slots = live_tuples(around)
            self.pool = pool_of_tuples(around, self.slots)
            self.pools, self.rows = len(around.pools), len(around.t64)
        else:
            from penstock.states.checks.caches import live_entries

            self.slots = live_entries(around)
            self.pool = np.zeros(len(self.slots), np.int64)
            self.pools, self.rows = 1, len(around.e64)
