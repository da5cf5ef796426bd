"""OPT-offline: the maximum number of results, by a min-cost flow.

Das, Gehrke and Riedewald 2003 give the reduction to a flow with a node per tuple and step; the network
here is the compact form of `penstock.flows.network`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engine.store import TIMED
from penstock.errors import PenstockError
from penstock.extras import require
from penstock.flows.network import (
    Lanes,
    Network,
    build_network,
    future_counts,
    kept_until,
    last_steps,
    most_wanted,
    sort_lanes,
)
from penstock.lazy import Lazy

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = Lazy("pandas")


@dataclass(frozen=True)
class Steps:
    """Two streams in processing order, as arrays, and the window that joins them.

    `stream` is 0 or 1, `key` dense codes, `step` the number of the step each arrival belongs to, `clock` the
    times by which tuples expire (in a window of rows each stream's own arrival numbers), `horizons` how long
    the tuples of each stream can match. Results of the first `warmup` steps do not count.

    >>> import numpy as np
    >>> from penstock.flows import Steps, future_results
    >>> steps = Steps(np.array([0, 1, 1]), np.array([7, 7, 7]), np.arange(3), np.arange(3), (10, 10))
    >>> future_results(steps).tolist()  # the left tuple would match both others
    [2, 0, 0]
    """

    stream: np.ndarray
    key: np.ndarray
    step: np.ndarray
    clock: np.ndarray
    horizons: tuple[Any, Any]
    window: int = TIMED
    warmup: int = 0

    def __post_init__(self) -> None:
        lengths = {len(part) for part in (self.stream, self.key, self.step, self.clock)}
        if len(lengths) != 1:
            raise PenstockError(
                f"stream, key, step and clock must be equally long; their lengths are {sorted(lengths)}."
            )
        if (np.diff(self.step) < 0).any():
            raise PenstockError("Arrivals must be in order of their steps.")


def future_results(steps: Steps) -> np.ndarray:
    """Per arrival: the results it would have with later arrivals, were it kept as long as it can match.

    >>> import numpy as np
    >>> from penstock.flows import Steps, future_results
    >>> steps = Steps(np.array([0, 1, 1]), np.array([7, 7, 7]), np.arange(3), np.array([0, 1, 9]), (5, 5))
    >>> future_results(steps).tolist()
    [1, 0, 0]
    """
    return future_counts(_lanes(steps), steps.warmup)[0]


def keep_times(steps: Steps, capacities: Sequence[int]) -> tuple[np.ndarray, int]:
    """The best decisions: per arrival the step of the last match to keep it for (-1: not at all), and their
    results.

    `capacities` has the tuples that one pool for both streams can hold, or those of a pool for each stream.
    Results among the arrivals of one step, which need no memory, are not counted.

    >>> import numpy as np
    >>> from penstock.flows import Steps, keep_times
    >>> # Left 1, left 2, then right 2, right 1, right 1: with room for one tuple the first is worth more.
    >>> steps = Steps(
    ...     np.array([0, 0, 1, 1, 1]), np.array([1, 2, 2, 1, 1]), np.arange(5), np.arange(5), (9, 9)
    ... )
    >>> until, results = keep_times(steps, [1])
    >>> until.tolist(), results
    ([4, -1, -1, -1, -1], 2)
    """
    if len(capacities) not in (1, 2) or any(capacity < 1 for capacity in capacities):
        raise PenstockError(
            f"capacities={capacities!r} is not allowed; give one number from 1 up for both streams together, "
            "or one for each."
        )
    lanes = _lanes(steps)
    counts, last = future_counts(lanes, steps.warmup)
    until = np.full(len(counts), -1, np.int64)
    results = 0
    for pool, capacity in enumerate(capacities):
        streams = np.array([len(capacities) == 1 or pool == stream for stream in (0, 1)])
        mine = streams[np.asarray(steps.stream, np.int64)]
        if most_wanted(lanes.step, last, mine) <= capacity:  # there is room for all that is worth keeping
            until[mine] = last[mine]
            results += int(counts[mine].sum())
        else:
            network = build_network(lanes, streams, capacity, steps.warmup)
            results += int(kept_until(lanes, network, _cheapest_flow(network, capacity), until))
    return until, results


def _lanes(steps: Steps) -> Lanes:
    stream = np.ascontiguousarray(steps.stream, np.int64)
    # In order of appearance: of equally good decisions the same are found whatever the codes of the keys.
    key = pd.factorize(np.asarray(steps.key))[0].astype(np.int64)
    step = np.ascontiguousarray(steps.step, np.int64)
    clock = np.ascontiguousarray(steps.clock)
    dies = last_steps(stream, clock, step, steps.window, np.array(steps.horizons, clock.dtype))
    return sort_lanes(stream, key, step, dies, int(key.max(initial=-1)) + 1)


def _cheapest_flow(network: Network, capacity: int) -> np.ndarray:
    """How much flows on each arc when `capacity` tuples' worth of room earns the most."""
    require("ortools", "The optimum of a join")
    from ortools.graph.python import min_cost_flow  # takes its time to load, and few need it

    end = int(network.chain[0])
    solver = min_cost_flow.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(
        network.tail, network.head, network.room, -network.gain
    )
    solver.set_nodes_supplies(np.array([0, end]), np.array([capacity, -capacity]))
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise PenstockError(f"The flow solver found no optimum but {status}; this should not happen.")
    return np.asarray(solver.flows(arcs))
