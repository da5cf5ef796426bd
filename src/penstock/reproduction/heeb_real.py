"""REAL, Figure 15: a relation keyed by temperature, queried for the daily maximum; and a richer model.

The paper's model is AR(1), fitted to the whole series. Temperatures have seasons, of which AR(1) knows
nothing: to it, a warm day in winter is as likely to be followed by warm ones as in summer. `Seasonal` takes
the mean from a yearly wave, fitted to the whole series as AR(1) is, or to its first two years alone.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import penstock as ps
from penstock import caching, models
from penstock.errors import ColumnError
from penstock.reproduction.figure import Figure, Row, Scope, Trial
from penstock.reproduction.heeb_claims import judge_15
from penstock.reproduction.tables import draw

FILE = "melbourne_daily_max_temp.csv"
SIZES = (10, 20, 30, 50, 75, 100, 150, 200, 250, 300)
YEAR = 365
STEP = 0.1  # degrees; every tenth is a key
RAND_RUNS = 10


def temperatures(data: Path | None) -> tuple[np.ndarray, str]:
    """Daily maxima in tenths of a degree, and where they are from; a stream of the same shape if absent.

    >>> from penstock.reproduction.heeb_real import temperatures
    >>> days, source = temperatures(None)
    >>> len(days), source
    (3650, 'generated')
    """
    path = None if data is None else Path(data) / FILE
    if path is None or not path.exists():
        turn = 2 * np.pi * (np.arange(YEAR) - 25) / YEAR
        shape = models.Seasonal(tuple(20 + 6 * np.cos(turn)), phi=0.46, sd=3.9, step=STEP)
        return np.rint(shape.sample(10 * YEAR, seed=15) / STEP).astype(np.int64), "generated"
    table = pd.read_csv(path)
    if "maxtemp" not in table:
        raise ColumnError(f"'{path}' has no column 'maxtemp'.")
    return np.rint(table["maxtemp"].to_numpy(np.float64) / STEP).astype(np.int64), FILE


def real_models(days: np.ndarray) -> dict[str, models.Model]:
    """The models that HEEB is given, in tenths of a degree.

    >>> from penstock.reproduction.heeb_real import real_models, temperatures
    >>> sorted(real_models(temperatures(None)[0]))
    ['HEEB', 'HEEB, season', 'HEEB, season of two years']
    """
    return {
        "HEEB": models.AR1.fit(days),
        "HEEB, season": models.Seasonal.fit(days, period=YEAR),
        "HEEB, season of two years": models.Seasonal.fit(days[: 2 * YEAR], period=YEAR),
    }


# --- Trials -------------------------------------------------------------------------------------------

PLAIN = {"PROB (perfect LFU)": "prob", "LFU": "lfu", "LRU": "lru", "RAND": "rand"}
INFORMED = ("HEEB", "HEEB, season", "HEEB, season of two years")
OTHERS = {"HEEB, learnt": "heeb", "HIST": "heeb-hist", "LFD": "lfd:bypass=true"}


def hits(policy: str, memory: int, seed: int, data: str | None) -> list[Row]:
    """The hits of a policy; HEEB's alpha is the size of the memory.

    >>> from penstock.reproduction.heeb_real import hits
    >>> season, lru = (hits(policy, 50, 0, None)[0]["hits"] for policy in ("HEEB, season", "LRU"))
    >>> season > lru
    True
    """
    days, fitted, source = _days(data)
    chosen: Any = (PLAIN | OTHERS).get(policy)
    if chosen is None:
        chosen = ps.policies.Heeb(model=fitted[policy], alpha=memory)
    found = caching.replay(days, chosen, memory, seed=seed).hits
    return [{"hits": found, "requests": len(days), "source": source}]


@lru_cache(maxsize=2)
def _days(data: str | None) -> tuple[np.ndarray, dict[str, models.Model], str]:
    days, source = temperatures(None if data is None else Path(data))
    return days, real_models(days), source


# --- Figures ------------------------------------------------------------------------------------------


def figure_15(scope: Scope) -> Figure:
    """Hits of every policy for memory sizes from 10 to 300."""
    trials = [
        Trial(hits, {"policy": policy, "memory": size, "seed": seed, "data": scope.folder})
        for size in scope.pick((10, 50, 150), full=SIZES)
        for policy in (*PLAIN, *INFORMED, *OTHERS)
        for seed in range(RAND_RUNS if policy == "RAND" else 1)
    ]

    def mean(table: Any) -> Any:
        return table.groupby(["policy", "memory"], sort=False)["hits"].mean().reset_index()

    title, layout = "REAL: hits over the memory", ("policy", "memory", "hits")
    return Figure(
        "figure-15",
        title,
        "figure 15",
        trials,
        lambda table: draw(table, title, *layout, memory="memory, entries"),
        lambda table: judge_15(mean(table)),
        layout=layout,
    )
