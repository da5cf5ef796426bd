"""Compare planners on one pattern of arrivals: cost, ratio to the optimum, disk traffic, and a plot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import PenstockError
from penstock.extras import require
from penstock.queues.planning import simulation_kernel
from penstock.queues.planning.costs import Cost, UnitCost
from penstock.queues.planning.offline import least_accesses, optimum
from penstock.queues.planning.planners import PAGING, planner
from penstock.queues.planning.simulation import Simulation, arrivals_of, order_of, simulate


@dataclass(frozen=True)
class Comparison:
    """The runs of planners on the same arrivals. `best` is the optimum if `exact`, else a lower bound."""

    memory: int
    arrivals: np.ndarray
    order: Any
    runs: dict[str, Simulation]
    costs: dict[str, float]
    best: float | None
    exact: bool

    def ratio(self, name: str) -> float | None:
        """Return cost over the optimum or the lower bound; None if there is no cost to compare with."""
        return self.costs[name] / self.best if self.best else None

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per planner, for tables and JSON."""
        return [
            {
                "planner": name,
                "cost": self.costs[name],
                "ratio": self.ratio(name),
                "reads": run.reads,
                "writes": run.writes,
                "tuples_read": run.read,
                "tuples_written": run.written,
                "written_again": run.rewritten,
                "peak": run.peak,
            }
            for name, run in self.runs.items()
        ]

    def plot(self, path: str | Path) -> None:
        """Plot accesses over time, one line per planner, and the waiting tuples above."""
        require("matplotlib", "Comparison.plot()")
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 6), layout="constrained")
        FigureCanvasAgg(figure)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2))
        total = self.arrivals.sum(axis=1)
        waiting, now = np.zeros(len(total)), 0
        for tick, count in enumerate(total):
            now = max(0, now + int(count) - 1)
            waiting[tick] = now
        above.plot(waiting, color="0.4", lw=1)
        above.axhline(self.memory, color="tab:red", lw=1, ls="--", label="memory")
        above.set_ylabel("tuples waiting")
        above.legend(loc="upper right", frameon=False)
        for name, run in self.runs.items():
            course = _course(name, self.memory, self.arrivals, self.order)
            if course is not None:
                below.step(np.arange(len(course)), course, where="post", label=f"{name} ({run.cost():g})")
        below.set_xlabel("tick")
        below.set_ylabel("reads and writes")
        below.legend(loc="upper left", frameon=False, fontsize=8)
        figure.savefig(path, dpi=120)


def _course(name: str, memory: int, arrivals: np.ndarray, order: Any) -> np.ndarray | None:
    """Accesses up to each tick."""
    spec = planner(name)
    if spec.kind == PAGING:
        return None
    sized = spec.sized(memory, arrivals.shape[1])
    course = np.zeros(len(arrivals), np.int64)
    counts = np.zeros(simulation_kernel.COUNTS, np.int64)
    wanted = order_of(order, arrivals.shape[1])
    simulation_kernel.simulate(sized, arrivals, wanted, counts, course)
    return course


def compare(
    arrivals: Any,
    policies: list[str],
    *,
    memory: int,
    model: Cost | None = None,
    consume: Any = "round-robin",
    limit: int = 100_000,
) -> Comparison:
    """Run planners on the same arrivals, and find the optimum if the problem is small enough.

    >>> from penstock.queues import compare
    >>> found = compare([3, 0, 3, 3, 0, 0, 3, 3, 1, 1], ["half", "half-late"], memory=6)
    >>> found.best, found.exact, found.ratio("half"), found.ratio("half-late")
    (2.0, True, 2.0, 2.5)
    """
    counted = arrivals_of(arrivals)
    price = model or UnitCost()
    runs = {name: simulate(counted, name, memory=memory, consume=consume) for name in policies}
    costs = {name: run.cost(price) for name, run in runs.items()}
    best: float | None
    exact = True
    try:
        best = optimum(counted, memory=memory, model=price, consume=consume, limit=limit)
    except PenstockError:
        exact = False
        accesses = least_accesses(counted, memory=memory) if counted.shape[1] == 1 else 0
        best = price.of(accesses, accesses) if accesses else None
    return Comparison(memory, counted, consume, runs, costs, best, exact)
