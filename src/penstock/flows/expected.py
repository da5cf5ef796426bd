"""The flow that FLOWEXPECT solves at every step: the best decisions that can be fixed in advance.

Section 4 of Xie, Yang and Chen 2005. The present is known, the next steps only by their probabilities, so
arcs carry expected results instead of results. Decisions that would depend on what comes are not in the
network, which is why its optimum is not that of an online policy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from penstock.errors import PenstockError
from penstock.extras import require

SCALE = float(1 << 30)  # the solver takes whole numbers as costs
LEAST = 1e-9  # expected results below are none


def best_expected(
    capacity: int,
    benefits: ArrayLike,
    coming: Sequence[ArrayLike] = (),
    arrivals: Sequence[int] = (),
) -> tuple[np.ndarray, float]:
    """Which of the candidates to keep now, and the expected results of the best fixed decisions.

    Parameters
    ----------
    capacity
        The tuples that memory can hold.
    benefits
        A row per candidate, a column per step from the next on: the results it is expected to have then.
    coming
        The same for tuples still to come, a matrix per stream: row j - 1 is the tuple that arrives j steps
        from now, whose results before step j + 1 are not looked at.
    arrivals
        How many such tuples a step brings, per matrix; 1 by default.

    Examples
    --------
    >>> from penstock.flows import best_expected
    >>> keep, value = best_expected(1, [[0.0, 0.8, 0.8], [1.0, 0.0, 0.5]])
    >>> keep.tolist(), round(value, 6)
    ([True, False], 1.6)
    """
    if isinstance(capacity, bool) or not isinstance(capacity, int | np.integer) or capacity < 1:
        raise PenstockError(f"capacity={capacity!r} is not allowed; it is a whole number from 1 up.")
    now = np.atleast_2d(np.asarray(benefits, np.float64))
    steps = now.shape[1]
    later = [np.asarray(each, np.float64) for each in coming]
    if now.ndim != 2 or any(each.shape != (steps, steps) for each in later):
        shapes = [each.shape for each in (now, *later)]
        raise PenstockError(
            f"benefits has a row per candidate and a column per step, coming as many rows as columns; their "
            f"shapes are {shapes}."
        )
    counts = list(arrivals) or [1] * len(later)
    rows = [now] + [np.triu(each, 1) for each in later]
    start = np.concatenate([np.zeros(len(now), np.int64)] + [np.arange(1, steps + 1)] * len(later))
    most = np.concatenate([np.ones(len(now), np.int64)] + [np.full(steps, count) for count in counts])
    if len(counts) != len(later):
        raise PenstockError(f"{len(later)} streams are coming, but arrivals has {len(counts)} numbers.")
    return _solve(int(capacity), np.concatenate(rows), start, most, len(now))


def _solve(
    capacity: int, gain: np.ndarray, start: np.ndarray, most: np.ndarray, candidates: int
) -> tuple[np.ndarray, float]:
    """A path per row of `gain`, from the chain at its start, with a node after each step that earns."""
    require("ortools", "best_expected()")
    from ortools.graph.python import min_cost_flow  # takes its time to load, and few need it

    steps = gain.shape[1]
    row, step = np.nonzero(gain > LEAST)
    node = steps + 1 + np.arange(len(row))
    first = np.diff(row, prepend=-1) != 0
    chain = np.arange(steps)
    tail = np.concatenate([chain, np.where(first, start[row], node - 1), node])
    head = np.concatenate([chain + 1, node, step + 1])
    room = np.concatenate([np.full(steps, capacity), most[row], most[row]])
    cost = np.zeros(len(tail), np.int64)
    earning = slice(steps, steps + len(row))
    cost[earning] = -np.rint(SCALE * gain[row, step]).astype(np.int64)
    solver = min_cost_flow.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(
        tail.astype(np.int32), head.astype(np.int32), room.astype(np.int64), cost
    )
    solver.set_nodes_supplies(np.array([0, steps]), np.array([capacity, -capacity]))
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise PenstockError(f"The flow solver found no optimum but {status}; this should not happen.")
    flow = np.asarray(solver.flows(arcs))[earning]
    keep = np.zeros(candidates, bool)
    keep[row[first & (flow > 0) & (row < candidates)]] = True
    return keep, float(flow @ gain[row, step])
