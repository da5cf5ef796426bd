"""Measurements on the CLOCK paper's queries: the memory they need, and recall by policy and cache."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from penstock.budget import Bytes, Tuples
from penstock.errors import BudgetError
from penstock.reproduction.clock_queries import SRBENCH, workload_of
from penstock.reproduction.figure import Row, Scope, Trial
from penstock.reproduction.inputs import file_of

LABELS = {
    "sensors": "SRBench's shape",
    "srbench": "SRBench, a real sample",
    "television": "ViSTA-TV's shape",
    "regimes": "viewers, then popular keys",
}
# Readings or viewings, quick and full: eight minutes of sensors as in the paper, a tenth of its viewers.
SIZES = {
    "sensors": (24_000, 120_000),
    "srbench": (0, 0),  # as many as there are
    "television": (40_000, 188_000),
    "regimes": (60_000, 120_000),
}
# Caches as shares of the most tuples that the exact answer keeps, quick and full: for recall by size
# (figures 3 and 4), and for the decay (figure 5).
BY_SIZE = ((0.05, 0.2, 0.6), (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0))
TUNED = {
    "sensors": ((0.4, 0.1), (0.6, 0.4, 0.2, 0.1, 0.05)),
    "srbench": ((0.4, 0.1), (0.6, 0.4, 0.2, 0.1, 0.05)),
    "television": ((0.25, 0.05), (0.5, 0.25, 0.15, 0.05, 0.01)),
}


def workloads(scope: Scope) -> list[str]:
    """Those of the paper whose streams can be had.

    >>> from penstock.reproduction import Scope
    >>> from penstock.reproduction.clock_trials import workloads
    >>> workloads(Scope())
    ['sensors', 'television']
    """
    there = file_of(scope.folder, SRBENCH) is not None
    return [name for name in ("sensors", "srbench", "television") if there or name != "srbench"]


def given(scope: Scope, name: str, **more: Any) -> dict[str, Any]:
    """What a trial of a workload is given: its size and seed, and the folder if its stream is a real one.

    >>> from penstock.reproduction import Scope
    >>> from penstock.reproduction.clock_trials import given
    >>> given(Scope(quick=True), "sensors")
    {'workload': 'sensors', 'size': 24000, 'seed': 0, 'data': None}
    """
    data = scope.folder if name == "srbench" else None
    return {"workload": name, "size": scope.pick(*SIZES[name]), "seed": scope.seed, "data": data} | more


def grid(scope: Scope, policies: Any, shares: dict[str, Any], budget: str = "tuples") -> list[Trial]:
    """A trial per workload, policy and share of the memory that the exact answer needs.

    >>> from penstock.reproduction import Scope
    >>> from penstock.reproduction.clock_trials import grid
    >>> len(grid(Scope(), ("lru", "clock"), {"sensors": (0.1, 0.2)}))
    4
    """
    return [
        Trial(recalls, given(scope, name, policy=policy, share=share, budget=budget))
        for name, each in shares.items()
        for policy in policies
        for share in each
    ]


class Exact(NamedTuple):
    """The answer with unlimited memory: results per arrival, which arrivals count, and the most kept."""

    counts: np.ndarray
    after: np.ndarray  # the warm-up
    stressed: np.ndarray  # of those, the arrivals in moments with more than the average load
    peak: int


@cache
def exact(name: str, size: int, seed: int, data: str | None) -> Exact:
    """The exact answer of a workload.

    >>> from penstock.reproduction.clock_trials import exact
    >>> found = exact("sensors", 2_000, 0, None)
    >>> bool(found.stressed.sum() < found.after.sum() < len(found.counts))
    True
    """
    found = workload_of(name, size, seed, data)
    run = found.run()
    after = np.arange(len(run.counts)) >= int(found.warmup * len(run.counts))
    moment = ((run.times - run.times[0]) // found.moment).astype(np.int64)
    load = np.bincount(moment)
    return Exact(run.counts, after, after & (load[moment] > load.mean()), run.stats.peak_tuples)


def need(workload: str, size: int, seed: int, data: str | None, points: int) -> list[Row]:
    """The tuples in the caches of the exact answer: mean and most over the arrivals of equal spans of time.

    >>> from penstock.reproduction.clock_trials import need
    >>> rows = need("sensors", 2_000, 0, None, points=4)
    >>> len(rows), all(0 < row["mean"] <= row["most"] for row in rows)
    (4, True)
    """
    found = workload_of(workload, size, seed, data)
    run = found.run(log=True)
    assert run.events is not None
    n = len(run.times)
    gone = np.bincount(run.events["step"].to_numpy(), minlength=n)[:n]
    kept = np.arange(1, n + 1) - np.cumsum(gone)
    begun = run.times - run.times[0]
    span = max(1.0, np.ceil(begun[-1] / points))
    part = np.minimum(begun // span, points - 1).astype(np.int64)
    rows = []
    for i in range(points):
        mine = kept[part == i]
        mean, most = (float(mine.mean()), int(mine.max())) if len(mine) else (0.0, 0)
        rows.append(
            {"time": float((i + 1) * span / 1_000), "mean": mean, "most": most, "source": found.source}
        )
    return rows


def recalls(
    workload: str, size: int, seed: int, data: str | None, policy: str, share: float, budget: str
) -> list[Row]:
    """Recall after the warm-up, overall and under stress.

    The cache has a share of the tuples that the exact answer needs; or, in `bytes`, the memory that FIFO
    takes for so many.

    >>> from penstock.reproduction.clock_trials import recalls
    >>> (row,) = recalls("sensors", 2_000, 0, None, policy="clock", share=0.5, budget="tuples")
    >>> 0 < row["stressed"] <= row["recall"] < 1
    True
    """
    whole = exact(workload, size, seed, data)
    found = workload_of(workload, size, seed, data)
    tuples, taken = max(2, int(share * whole.peak)), None
    if budget == "bytes":
        taken = _bytes_of_fifo(workload, size, seed, data, tuples)
    try:
        run = found.run(budget=Tuples(tuples) if taken is None else Bytes(taken), policy=policy, seed=seed)
    except BudgetError:  # not one tuple fits in beside the tables
        counts, held = np.zeros_like(whole.counts), 0
    else:
        counts, held = run.counts, run.stats.budget or 0
    both = (counts, whole.counts)
    of = [int(each[which].sum()) for which in (whole.after, whole.stressed) for each in both]
    return [
        {
            "tuples": held,
            "bytes": taken,
            "results": of[0],
            "exact": of[1],
            "recall": of[0] / max(1, of[1]),
            "stressed": of[2] / max(1, of[3]),
            "source": found.source,
        }
    ]


@cache
def _bytes_of_fifo(name: str, size: int, seed: int, data: str | None, tuples: int) -> int:
    run = workload_of(name, size, seed, data).run(budget=Tuples(tuples), policy="fifo")
    return run.stats.peak_bytes
