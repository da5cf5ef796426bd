"""Every policy on every stream: which share of the exact join's results each finds in how much memory.

Recall counts from the third window on. A stream is marked `tuned` where policies were tuned while looking
at it, `apart` where it was held apart; real ones are there if the folder of the data is given.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd

from penstock.budget import Fraction
from penstock.errors import BudgetError
from penstock.experiments.base import Experiment, Options
from penstock.experiments.streams import PARTS, Stream, regimes, streams
from penstock.joins import JoinState, WindowJoin, arrivals_of
from penstock.policies import registered

BUDGETS = (0.05, 0.2, 0.5)
MOST_MATCHES = 200_000  # above which the optimum is left out
SLOW = (
    "heeb",
    "heeb-hist",
    "flowexpect",
)  # O(buffer) per arrival, or more: see the experiments of their paper
CHOSEN = ("learned", "auto")  # the ones to be measured against the rest


def fixed() -> list[str]:
    """The published policies that are compared: all that run by their name alone and in O(log n).

    >>> from penstock.experiments.policies import fixed
    >>> "gdj" in fixed(), "auto" in fixed()
    (True, False)
    """
    return [
        kind.name
        for kind in registered()
        if not (kind.needs_model or kind.bound or kind.chooses)
        and kind.name not in (*SLOW, *CHOSEN)
        and kind.__module__.startswith("penstock.")
    ]


def compare(stream: Stream, budget: float, policies: list[str]) -> pd.DataFrame:
    """One row per policy: the recall on a stream, from the third window on.

    >>> from penstock.experiments.policies import compare
    >>> from penstock.experiments.streams import streams
    >>> [zipf] = streams(names=["zipf"], quick=True)
    >>> found = compare(zipf, 0.2, ["fifo", "prob"]).set_index("policy").recall
    >>> bool(found["prob"] > 2 * found["fifo"])
    True
    """
    arrivals = arrivals_of(stream.left, stream.right, stream.on, "ts", "ms")
    rows = []
    for policy in policies:
        join = WindowJoin(stream.within, Fraction(budget), policy=policy, warmup=stream.warmup)
        if join.policy.bound:
            counted = dataclasses.replace(join, warmup=0).exact_counts(arrivals, join.within.resolve("ms"))
            if counted.sum() > MOST_MATCHES:
                continue
        try:
            stats = join.run_arrivals(arrivals).stats
        except BudgetError:
            continue
        rows.append(
            {
                "stream": stream.name,
                "kind": "tuned" if stream.tuned else "apart",
                "real": stream.real,
                "budget": f"{100 * budget:g} %",
                "policy": policy,
                "recall": stats.recall,
                "bytes": stats.peak_bytes,
                "seconds": stats.seconds,
                "follows": stats.choice.policy if stats.choice is not None else policy,
                "switches": stats.choice.switches if stats.choice is not None else 0,
            }
        )
    return pd.DataFrame(rows)


_RUNS: dict[tuple[bool, Path | None], pd.DataFrame] = {}  # two experiments show the same runs


def recall(options: Options) -> pd.DataFrame:
    """Recall of every policy, stream and budget.

    >>> from penstock.experiments import Options, policies
    >>> policies.recall.__name__
    'recall'
    """
    if (options.quick, options.data) not in _RUNS:
        found = streams(options.data, quick=options.quick)
        names = [*fixed(), *CHOSEN, "opt"]
        parts: list[pd.DataFrame] = []
        for stream in found:
            for budget in BUDGETS:
                label = f"{stream.name}, {100 * budget:g} %"
                options.report(len(parts), len(found) * len(BUDGETS), label)
                parts.append(compare(stream, budget, names))
        _RUNS[options.quick, options.data] = pd.concat(parts, ignore_index=True)
    return _RUNS[options.quick, options.data]


def ratios(table: pd.DataFrame) -> pd.DataFrame:
    """The recall of each policy relative to the best published one of its cell.

    >>> import pandas as pd
    >>> from penstock.experiments.policies import ratios
    >>> rows = [("a", "5 %", "lru", 0.4), ("a", "5 %", "prob", 0.5), ("a", "5 %", "learned", 0.6)]
    >>> table = pd.DataFrame(rows, columns=["stream", "budget", "policy", "recall"])
    >>> ratios(table).ratio.round(3).tolist()
    [0.8, 1.0, 1.2]
    """
    mine = table[table["policy"].isin(fixed())]
    best = mine.groupby(["stream", "budget"])["recall"].max().rename("best")
    joined = table.join(best, on=["stream", "budget"])
    return joined.assign(ratio=(joined["recall"] / joined["best"]).where(joined["best"] > 0, 1.0))


def bars(options: Options) -> pd.DataFrame:
    """Per policy, over the cells of all, of tuned, and of held-apart streams: how near the best it is.

    >>> from penstock.experiments import policies
    >>> [each.name for each in policies.EXPERIMENTS]
    ['recall', 'bars', 'regimes']
    """
    table = ratios(recall(options))
    rows = []
    for kind in ("all", "tuned", "apart"):
        part = table if kind == "all" else table[table["kind"] == kind]
        for policy, mine in part[part["policy"] != "opt"].groupby("policy", sort=False):
            ratio = mine["ratio"]
            found = {
                "mean": ratio.mean(),
                "least": ratio.min(),
                "share at 0.98": (ratio >= 0.98).mean(),
                "share at 0.95": (ratio >= 0.95).mean(),
                "mean recall": mine["recall"].mean(),
            }
            rows += [
                {"streams": kind, "policy": policy, "what": name, "value": float(value)}
                for name, value in found.items()
            ]
    return pd.DataFrame(rows)


def regime_change(options: Options) -> pd.DataFrame:
    """Recall window by window while the stream changes from Zipf to a walk to bursts, at 20 %.

    >>> from penstock.experiments.policies import regime_change
    >>> regime_change.__name__
    'regime_change'
    """
    part, within = (4_000, 800) if options.quick else (40_000, 5_000)
    left, right = regimes(part)
    arrivals = arrivals_of(left, right, "key", "ts", "ms")
    names = [*fixed(), *CHOSEN]
    rows = []
    for number, policy in enumerate(names):
        options.report(number, len(names), policy)
        join = WindowJoin(within, Fraction(0.2), policy=policy)
        exact = join.exact_counts(arrivals, join.within.resolve("ms"))
        state = JoinState(join.configure(arrivals))
        found = state.process(arrivals.stream, arrivals.key, arrivals.time, arrivals.row).counts
        for first in range(0, len(exact), within):
            window = slice(first, first + within)
            rows.append(
                {
                    "window": first // within + 1,
                    "part": PARTS[min(first // part, 2)],
                    "policy": policy,
                    "recall": float(found[window].sum() / max(1, exact[window].sum())),
                }
            )
    return pd.DataFrame(rows)


def plot_regimes(table: pd.DataFrame, path: Path) -> None:
    """Draw recall window by window, the policies to be measured in front.

    >>> from penstock.experiments.policies import plot_regimes
    >>> plot_regimes.__name__
    'plot_regimes'
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for policy, mine in table.groupby("policy", sort=False):
        chosen = policy in CHOSEN
        axes.plot(
            mine["window"],
            mine["recall"],
            label=str(policy),
            linewidth=2.5 if chosen else 1.0,
            alpha=1.0 if chosen else 0.6,
        )
    changes = table.groupby("part", sort=False)["window"].min()
    for first in changes[1:]:
        axes.axvline(first - 0.5, color="grey", linestyle=":")
    axes.set(xlabel="window", ylabel="recall", ylim=(0, 1), title="Zipf, then a walk, then bursts; 20 %")
    axes.legend(ncols=4, fontsize="small")
    figure.savefig(path, dpi=150)


EXPERIMENTS = (
    Experiment(
        "recall",
        "Recall from the third window on, by stream (tuned: looked at while tuning; apart: not) and budget",
        recall,
        "stream,kind,budget",
        "policy",
        "recall",
    ),
    Experiment(
        "bars",
        "Recall relative to the best published policy of each cell",
        bars,
        "streams,policy",
        "what",
        "value",
    ),
    Experiment(
        "regimes",
        "Recall window by window, Zipf, then a random walk, then bursts of keys",
        regime_change,
        "part,window",
        "policy",
        "recall",
    ),
)

__all__ = ["EXPERIMENTS", "bars", "compare", "fixed", "plot_regimes", "ratios", "recall", "regime_change"]
