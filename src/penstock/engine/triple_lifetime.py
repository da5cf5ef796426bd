"""How long tuples of a stream query can be of use: the limits that the context sets on pairs of patterns."""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import borrow

ORIGIN = 2  # beside start and end, the third time that may bound a life


@jit
def leaf_life(scheme, columns, row, cache):
    """The last time at which a cached triple can meet a partner: in the best of its roles."""
    roles = columns.mask[row] & scheme.cache_roles[cache]
    latest = -np.inf
    for pattern in range(scheme.partners.shape[0]):
        if (roles >> pattern) & 1 != 0:
            for other in range(scheme.partners.shape[0]):
                if (scheme.partners[pattern] >> other) & 1 != 0:
                    latest = max(latest, until(scheme, columns, row, pattern, other))
    return latest


@jit
def partial_life(scheme, columns, rows, step):
    """The last time at which something can come that a partial solution waits for."""
    latest, patterns = -np.inf, scheme.partners.shape[0]
    for other in range(patterns):
        if (scheme.waits[step] >> other) & 1 != 0:
            soonest = np.inf
            for pattern in range(patterns):
                if (scheme.members[step] >> pattern) & 1 != 0:
                    soonest = min(soonest, until(scheme, columns, rows[pattern], pattern, other))
            latest = max(latest, soonest)
    return latest


@jit
def until(scheme, columns, row, pattern, other):
    """The last time at which a triple of another pattern can start and go together with this one."""
    if columns.start[row] == -np.inf:
        return np.inf
    limit = scheme.limit[pattern, other]
    latest = min(columns.start[row] + limit[0], limit[ORIGIN])
    if limit[1] < np.inf:
        latest = min(latest, columns.end[row] + limit[1])
    return latest


@jit
def lives(scheme, columns):
    """How long each triple can be of use in the cache that keeps it longest; 0 for background."""
    return _lives(borrow(scheme), borrow(columns))


@jit
def _lives(scheme, columns):
    out = np.zeros(columns.start.shape[0])
    for row in range(out.shape[0]):
        if columns.start[row] > -np.inf:
            for cache in range(scheme.cache_roles.shape[0]):
                if columns.mask[row] & scheme.cache_roles[cache] != 0:
                    out[row] = max(out[row], leaf_life(scheme, columns, row, cache) - columns.start[row])
    return out
