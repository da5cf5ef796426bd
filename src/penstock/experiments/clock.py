"""CLOCK: memory needed from moment to moment, recall by cache size, under stress, and tuning.

The paper's SRBench and ViSTA-TV streams are not public in the form it used; both are generated here in the
shape that it describes, and joined by the window join.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from penstock.budget import Tuples
from penstock.experiments.figure import Claim, Figure, Row, Scope, Trial
from penstock.experiments.inputs import sensors, television
from penstock.experiments.plots import finish, heat, lines, one_legend, panels
from penstock.joins import JoinRun, WindowJoin

WORKLOADS = {"sensors": "SRBench", "television": "ViSTA-TV"}
# The moment over which the load is measured: a second for sensors, a minute for viewers.
MOMENT = {"sensors": 1_000, "television": 60_000}
EXPONENTIAL = ("0.25", "0.5", "0.75", "0.95")


def streams_of(workload: str, size: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, Any, str]:
    """The two streams, their window and their source."""
    if workload == "sensors":
        pair = sensors(None, size, seed)
        return pair.left, pair.right, pair.within, pair.source
    return television(size, seed)


# --- Trials -------------------------------------------------------------------------------------------


def need(workload: str, size: int, points: int, seed: int) -> list[Row]:
    """How many tuples must be kept for the exact answer, at moments spread evenly."""
    left, right, within, source = streams_of(workload, size, seed)
    before, after = within if isinstance(within, tuple) else (within, within)
    end = max(left.ts.max(), right.ts.max())
    at = np.linspace(0, end, points + 1)[1:]
    kept = np.zeros(len(at), np.int64)
    for times, horizon in ((left.ts.to_numpy(), after), (right.ts.to_numpy(), before)):
        came, gone = np.searchsorted(times, at, "right"), np.searchsorted(times, at - horizon, "left")
        kept += came - gone
    unit = 1_000 if workload == "sensors" else 3_600_000
    return [
        {"time": float(t / unit), "tuples": int(n), "source": source} for t, n in zip(at, kept, strict=True)
    ]


def recalls(workload: str, policy: str, share: float, size: int, seed: int) -> list[Row]:
    """Recall after the first third, overall and in the moments with more than the average load."""
    left, right, within, source = streams_of(workload, size, seed)
    whole, peak = _exact(workload, size, seed)
    tuples = max(4, int(share * peak))
    found = _when(_run(left, right, within, tuples, policy, seed), left, right)
    began = (left.ts.max() - left.ts.min()) / 3
    moment = MOMENT[workload]
    both = np.concatenate((left.ts, right.ts)) // moment
    load = np.bincount(both)
    stressed = load > len(both) / (both.max() + 1)
    busy = [int(stressed[each[each >= began] // moment].sum()) for each in (found, whole)]
    calm = [int((each >= began).sum()) for each in (found, whole)]
    return [
        {
            "tuples": tuples,
            "results": calm[0],
            "exact": calm[1],
            "recall": calm[0] / max(1, calm[1]),
            "stressed": busy[0] / max(1, busy[1]),
            "source": source,
        }
    ]


def _run(
    left: pd.DataFrame, right: pd.DataFrame, within: Any, tuples: int, policy: str, seed: int
) -> JoinRun:
    join = WindowJoin(within=within, budget=Tuples(tuples), policy=policy, allocation="unified", seed=seed)
    return join.run(left, right, on="key", time="ts", collect=True)


def _when(run: JoinRun, left: pd.DataFrame, right: pd.DataFrame) -> np.ndarray:
    """When each result came: the time of its later tuple."""
    assert run.pairs is not None
    rows = [run.pairs[f"{side}_row"].to_numpy() for side in ("left", "right")]
    return np.maximum(left.ts.to_numpy()[rows[0]], right.ts.to_numpy()[rows[1]])


@cache
def _exact(workload: str, size: int, seed: int) -> tuple[np.ndarray, int]:
    left, right, within, _ = streams_of(workload, size, seed)
    run = _run(left, right, within, len(left) + len(right), "fifo", seed)
    return _when(run, left, right), run.stats.peak_tuples


# --- Figures ------------------------------------------------------------------------------------------


def _size(scope: Scope, workload: str) -> int:
    return int(scope.pick(12_000, 60_000) if workload == "sensors" else scope.pick(12_000, 40_000))


def figure_2(scope: Scope) -> Figure:
    """Memory over time."""
    points = {"sensors": 48, "television": 72}
    trials = [
        Trial(need, {"workload": w, "size": _size(scope, w), "points": p, "seed": scope.seed})
        for w, p in points.items()
    ]

    def draw(table: Any) -> Any:
        drawing, axes = panels(2, width=5)
        units = ("seconds", "hours")
        for ax, letter, workload, unit in zip(axes, "ab", WORKLOADS, units, strict=True):
            part = table[table.workload == workload]
            ax.fill_between(part.time, part.tuples, step="mid", color="#1f5fa8", alpha=0.25)
            ax.plot(part.time, part.tuples, drawstyle="steps-mid", color="#1f5fa8", linewidth=1.2)
            title = f"({letter}) {workload} ({WORKLOADS[workload]})"
            finish(ax, title, unit, "tuples to keep", legend=None, ylim=(0, None))
        return drawing

    def claims(table: Any) -> list[Claim]:
        found = []
        for workload, part in table.groupby("workload", sort=False):
            mean, peak = part.tuples.mean(), part.tuples.max()
            found.append(
                Claim(
                    f"{WORKLOADS[str(workload)]}: in spite of the window the memory that is needed "
                    "fluctuates significantly",
                    f"mean {mean:,.0f} tuples, most {peak:,}, {peak / mean:.1f} times the mean",
                    bool(peak > 1.5 * mean),
                )
            )
        return found

    return Figure("figure-2", "Memory needed over time", "figure 2, section 4.2", trials, draw, claims)


def _grid(scope: Scope, policies: Any, shares: dict[str, Any]) -> list[Trial]:
    return [
        Trial(
            recalls,
            {"workload": w, "policy": p, "share": s, "size": _size(scope, w), "seed": scope.seed},
        )
        for w, each in shares.items()
        for p in policies
        for s in each
    ]


def figure_3(scope: Scope) -> Figure:
    """Recall by the size of the cache."""
    return _by_size(scope, "figure-3", "recall", "Recall by cache size", "figure 3, section 4.3")


def figure_4(scope: Scope) -> Figure:
    """Recall while the load is above its average."""
    return _by_size(scope, "figure-4", "stressed", "Recall under stress", "figure 4, section 4.3")


def _by_size(scope: Scope, name: str, measure: str, title: str, where: str) -> Figure:
    sizes = scope.pick((0.05, 0.2, 0.6), (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0))
    trials = _grid(scope, ("rand", "fifo", "lru", "clock"), dict.fromkeys(WORKLOADS, sizes))

    def draw(table: Any) -> Any:
        drawing, axes = panels(2, width=5)
        for ax, letter, workload in zip(axes, "ab", WORKLOADS, strict=True):
            lines(ax, table[table.workload == workload], "share", measure, "policy")
            label = "cache, share of the most that is needed"
            title = f"({letter}) {workload} ({WORKLOADS[workload]})"
            finish(ax, title, label, "recall", ylim=(0, 1.02))
        one_legend(drawing, axes)
        return drawing

    def claims(table: Any) -> list[Claim]:
        found = []
        for workload, part in table.groupby("workload", sort=False):
            by = part.pivot(index="share", columns="policy", values=measure)
            for other, said in (
                ("fifo", "data-agnostic FIFO"),
                ("rand", "data-agnostic RANDOM"),
                ("lru", "LRU"),
            ):
                gain = by["clock"] / by[other].clip(lower=1e-9)
                small = gain.index < 0.7
                found.append(
                    Claim(
                        f"{WORKLOADS[str(workload)]}: CLOCK outperforms {said}",
                        f"up to {gain.max():.2f} times its recall, at the smallest cache {gain.iloc[0]:.2f}",
                        bool((gain[small] > 1).all()),
                    )
                )
            wide = by.iloc[-1]
            if measure == "recall":
                found.append(
                    Claim(
                        f"{WORKLOADS[str(workload)]}: with large caches all strategies are alike",
                        f"between {wide.min():.2f} and {wide.max():.2f} at {by.index[-1]:.0%}",
                        bool(wide.max() - wide.min() < 0.1),
                    )
                )
        return found

    return Figure(name, title, where, trials, draw, claims)


def figure_5(scope: Scope) -> Figure:
    """How fast scores fade."""
    shares: dict[str, Any] = {"sensors": (0.6, 0.4, 0.2, 0.1, 0.05), "television": (0.5, 0.25, 0.15, 0.01)}
    if scope.quick:
        shares = {"sensors": (0.4, 0.1), "television": (0.25, 0.05)}
    policies = ("lru", *(f"clock-exp:rho={rho}" for rho in EXPONENTIAL), "clock")
    trials = _grid(scope, policies, shares)

    def draw(table: Any) -> Any:
        drawing, axes = panels(2, width=5)
        for ax, workload in zip(axes, WORKLOADS, strict=True):
            by = table[table.workload == workload].pivot(index="policy", columns="share", values="recall")
            by = by.loc[list(policies), list(shares[workload])]
            heat(
                ax,
                by.rename(columns="{:.0%}".format, index=lambda name: name.replace(":rho=", " ")),
                by_column=True,
            )
            ax.set_title(f"{workload} ({WORKLOADS[workload]}): recall, dark is best of its size", fontsize=10)
            ax.set_xlabel("cache, share of the most that is needed", fontsize=9)
        return drawing

    def claims(table: Any) -> list[Claim]:
        found = []
        for workload, rho in (("sensors", "0.95"), ("television", "0.5")):
            part = table[(table.workload == workload) & (table.share <= 0.25)]
            mean = part.groupby("policy").recall.mean()
            faded = mean[[f"clock-exp:rho={each}" for each in EXPONENTIAL]]
            best = str(faded.idxmax()).split("=")[1]
            found += [
                Claim(
                    f"{WORKLOADS[workload]}: for small caches a rate of {rho} is best",
                    f"{best} is, by {faded.max() - faded[f'clock-exp:rho={rho}']:.3f} recall",
                    best == rho,
                ),
                Claim(
                    f"{WORKLOADS[workload]}: the rate has a profound influence",
                    f"recall from {faded.min():.3f} to {faded.max():.3f} (LRU {mean['lru']:.3f})",
                    bool(faded.max() - faded.min() > 0.03),
                ),
            ]
        return found

    return Figure("figure-5", "Tuning the decay", "figure 5, section 4.4", trials, draw, claims)


FIGURES = (figure_2, figure_3, figure_4, figure_5)
