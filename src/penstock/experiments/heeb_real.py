"""REAL, Figure 15: a relation keyed by temperature, asked for the daily maximum; and a model that knows more.

The paper's model is AR(1), fitted to the whole series. Temperatures have seasons, of which AR(1) knows
nothing: to it, a warm day in winter is as likely to be followed by warm ones as in summer. `Seasonal` takes
the mean from a yearly wave, fitted to the whole series as AR(1) is, or to its first two years alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import penstock as ps
from penstock import caching, models
from penstock.errors import ColumnError
from penstock.experiments.base import Options

FILE = "melbourne_daily_max_temp.csv"
SIZES = (10, 20, 30, 50, 75, 100, 150, 200, 250, 300)
YEAR = 365
STEP = 0.1  # degrees; every tenth is a key
RAND_RUNS = 10


def temperatures(data: Path | None) -> tuple[np.ndarray, str]:
    """Daily maxima in tenths of a degree, and where they are from; a stream of the same shape if absent.

    >>> from penstock.experiments.heeb_real import temperatures
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

    >>> from penstock.experiments.heeb_real import real_models, temperatures
    >>> sorted(real_models(temperatures(None)[0]))
    ['HEEB', 'HEEB, season', 'HEEB, season of two years']
    """
    return {
        "HEEB": models.AR1.fit(days),
        "HEEB, season": models.Seasonal.fit(days, period=YEAR),
        "HEEB, season of two years": models.Seasonal.fit(days[: 2 * YEAR], period=YEAR),
    }


def figure_15(options: Options) -> pd.DataFrame:
    """Hits of every policy for memory sizes from 10 to 300; alpha is the size.

    >>> from penstock.experiments import Options
    >>> from penstock.experiments.heeb_real import figure_15
    >>> table = figure_15(Options(quick=True)).pivot(index="policy", columns="memory", values="hits")
    >>> bool((table.loc["HEEB, season"] > table.loc["LRU"]).all())
    True
    """
    days, source = temperatures(options.data)
    sizes = (10, 50, 150) if options.quick else SIZES
    fitted = real_models(days)
    rows: list[dict[str, Any]] = []
    for done, size in enumerate(sizes):
        options.report(done, len(sizes), f"REAL, memory {size}")
        policies: dict[str, Any] = {"PROB (perfect LFU)": "prob", "LFU": "lfu", "LRU": "lru"}
        policies |= {name: ps.policies.Heeb(model=model, alpha=size) for name, model in fitted.items()}
        policies |= {"HEEB, learnt": "heeb", "HIST": "heeb-hist", "LFD": "lfd:bypass=true"}
        hits: dict[str, float] = {
            "RAND": float(
                np.mean([caching.replay(days, "rand", size, seed=seed).hits for seed in range(RAND_RUNS)])
            )
        }
        hits |= {name: float(caching.replay(days, policy, size).hits) for name, policy in policies.items()}
        rows += [
            {"policy": name, "memory": size, "hits": found, "requests": len(days), "data": source}
            for name, found in hits.items()
        ]
    return pd.DataFrame(rows)
