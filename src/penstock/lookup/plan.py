"""`plan_lookup`: find the cache size and policy for a trace of requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from penstock.arguments import is_number, shown
from penstock.caching.arguments import caching_policy, entries_of
from penstock.caching.cache import Cache
from penstock.caching.run import requests_of
from penstock.errors import PenstockError
from penstock.extras import require
from penstock.policies import caching_names

SHARES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5)  # of the distinct keys, if no sizes are given


@dataclass(frozen=True)
class LookupRow:
    """The hits of one policy with one size."""

    policy: str
    size: int  # entries
    hits: int
    requests: int
    offline: bool  # the policy knows the whole trace in advance

    @property
    def hit_rate(self) -> float:
        """The share of hits; 0 without requests."""
        return self.hits / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class LookupPlan:
    """Hits for every policy and size; `answer` is the smallest size that reaches the target."""

    rows: list[LookupRow]
    keys: int  # distinct
    target: float | None = None
    answer: LookupRow | None = None

    @property
    def table(self) -> pd.DataFrame:
        """Hit rates, with policies as rows and sizes as columns."""
        frame = pd.DataFrame([{"policy": r.policy, "size": r.size, "rate": r.hit_rate} for r in self.rows])
        order = list(dict.fromkeys(row.policy for row in self.rows))
        return frame.pivot(index="policy", columns="size", values="rate").loc[order]

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the rows as JSON, and write them to a file if given."""
        text = json.dumps([{**asdict(row), "hit_rate": row.hit_rate} for row in self.rows], indent=2) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def plot(self, path: str | Path) -> None:
        """Plot the hit rate against the size, a line per policy, as PNG."""
        require("matplotlib", "LookupPlan.plot()")
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for policy, rates in self.table.iterrows():
            offline = any(row.offline for row in self.rows if row.policy == policy)
            axes.plot(rates.index, 100 * rates, "--" if offline else "-", marker="o", label=str(policy))
        if self.target is not None:
            axes.axhline(100 * self.target, color="grey", linewidth=0.8)
        axes.set(xscale="log", xlabel="entries", ylabel="hit rate in %", ylim=(0, 100))
        axes.legend()
        figure.savefig(path, format="png")


def plan_lookup(
    requests: Any,
    *,
    sizes: Sequence[int] | None = None,
    policies: Sequence[str] | None = None,
    target: float | None = None,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> LookupPlan:
    """Replay a trace of requests, a sequence of keys or a table of key columns, through several caches.

    With a target, `answer` is the smallest size, among all sizes, with which an online policy reaches that
    hit rate. Policies that know the future only show what is possible.

    >>> import penstock as ps
    >>> plan = ps.plan_lookup([1, 2, 1, 3, 1, 2] * 9, sizes=[1, 2], policies=["lru", "lfd"], target=0.9)
    >>> [(row.policy, row.size, row.hits) for row in plan.rows]
    [('lru', 1, 0), ('lru', 2, 34), ('lfd', 1, 0), ('lfd', 2, 34)]
    >>> plan.answer.policy, plan.answer.size
    ('lru', 3)
    """
    given = requests_of(requests)
    codes = given.codes
    keys = len(np.unique(codes))
    if target is not None and not (is_number(target) and 0 < target <= 1):
        raise PenstockError(f"target={shown(target)} is not a hit rate; give one above 0 and up to 1.")
    for option, several in (("sizes", sizes), ("policies", policies)):
        if several is not None and not isinstance(several, Iterable):
            raise PenstockError(f"{option}={shown(several)} is not allowed; give a list, or None.")
    if progress is not None and not callable(progress):
        raise PenstockError(
            f"progress={shown(progress)} is not allowed; it is a function of (done, total, label)."
        )
    if sizes is None:
        sizes = sorted({max(1, round(share * keys)) for share in SHARES})
    wanted = list(dict.fromkeys(entries_of(size) for size in sizes))
    names = caching_names() if policies is None else [*policies]
    for policy in names:
        caching_policy(policy)
    names = list(dict.fromkeys(names))
    if not wanted or not names:
        raise PenstockError("A plan needs at least one size and one policy.")
    specs = {name: caching_policy(name) for name in names}

    def replayed(name: str, size: int) -> LookupRow:
        cache = Cache(specs[name], size, requests=codes, seed=seed, number=given.number)
        cache.request(codes, values=given.values)
        return LookupRow(name, size, cache.hits, len(codes), specs[name].needs_future)

    rows: list[LookupRow] = []
    for name in names:
        for size in wanted:
            if progress is not None:
                progress(len(rows), len(names) * len(wanted), f"{name}, {size:,}")
            rows.append(replayed(name, size))
    answer = None
    if target is not None:
        online = [name for name in names if not specs[name].needs_future]
        answer = _smallest(online, rows, max(1, keys), target, replayed)
    return LookupPlan(rows, keys, target, answer)


def _smallest(
    names: list[str],
    rows: list[LookupRow],
    keys: int,
    target: float,
    replayed: Callable[[str, int], LookupRow],
) -> LookupRow | None:
    """Bisect policy by policy; only sizes below the best so far are tried."""
    best: LookupRow | None = None
    for name in names:
        mine = sorted((row for row in rows if row.policy == name), key=lambda row: row.size)
        low = max((row.size for row in mine if row.hit_rate < target), default=0)
        enough = min((row for row in mine if row.hit_rate >= target), key=lambda r: r.size, default=None)
        high = enough if enough is not None else replayed(name, max(keys, low + 1))
        if high.hit_rate < target:
            continue
        low = min(low, high.size - 1)
        while high.size - low > 1 and (best is None or low + 1 < best.size):
            middle = replayed(name, (low + high.size) // 2)
            if middle.hit_rate >= target:
                high = middle
            else:
                low = middle.size
        if best is None or high.size < best.size:
            best = high
    return best
