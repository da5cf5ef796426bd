"""GreedyDual-Join: locality, tuning, buffers, windows and sampling. More than two streams: `gdj_many`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from penstock.budget import Fraction
from penstock.joins import WindowJoin
from penstock.reproduction.figure import Claim, Figure, Row, Scope, Trial
from penstock.reproduction.gdj_many import figure_6, figure_7, figure_8
from penstock.reproduction.inputs import PAIRS, Pair, stock, synthetic
from penstock.reproduction.plots import finish, lines, log_x, one_legend, panels

STREAMS = ("stock", "weather", "synthetic")
POLICIES = ("gdj", "prob", "age:k=tuple", "fifo", "rand")


# --- Trials -------------------------------------------------------------------------------------------


def joined(
    data: str | None,
    streams: str,
    policy: str,
    fraction: float,
    seed: int,
    rows: int | None = None,
    window: int | None = None,
    keys: int = 100,
    drop: float = 0.0,
) -> list[Row]:
    """One bounded join: results, recall and distortion."""
    pair = synthetic(keys=keys) if streams == "synthetic" else PAIRS[streams](data)
    return [measured(pair.first(rows), policy, fraction, seed, window, drop)]


def measured(
    pair: Pair, policy: str, fraction: float, seed: int, window: int | None = None, drop: float = 0.0
) -> Row:
    """The figures of a join with memory in proportion to the rates, as the paper has it."""
    join = WindowJoin(
        within=window or pair.within,
        budget=Fraction(fraction),
        policy=policy,
        allocation="proportional",
        drop_rate=drop,
        seed=seed,
    )
    stats = join.run(pair.left, pair.right, on="key", time="ts").stats
    distortion = stats.distortion()
    return {
        "results": stats.results,
        "exact": stats.exact,
        "recall": stats.recall,
        "sse": distortion.sse,
        "kl": distortion.kl,
        "source": pair.source,
    }


def locality(data: str | None, seed: int) -> list[Row]:
    """Popularity by rank, and the distribution of stack distances with that of a permuted copy."""
    from penstock.locality import popularity, stack_distance

    pair = stock(data)
    both = pd.concat((pair.left, pair.right)).sort_values("ts", kind="stable")
    profile = popularity(both.key)
    found: list[Row] = [
        {"panel": "popularity", "x": r + 1, "y": int(c)} for r, c in enumerate(profile.counts)
    ]
    found.append({"panel": "slope", "x": 0, "y": profile.slope})
    distance = stack_distance(both.key, seed=seed)
    sizes = np.unique(np.geomspace(1, len(profile.counts), 60).astype(int))
    for name in ("original", "permuted"):
        rates = distance.hit_rate(sizes, permuted=name == "permuted")
        found += [{"panel": name, "x": int(s), "y": float(h)} for s, h in zip(sizes, rates, strict=True)]
    return [row | {"source": pair.source} for row in found]


def best_ages(data: str | None) -> list[Row]:
    """How the best ages of tuples are distributed, in minutes of the window's ten."""
    from penstock.structures.age_curves import BINS, trace_ages

    pair = stock(data)
    sides = [side.assign(stream=i) for i, side in enumerate((pair.left, pair.right))]
    both = pd.concat(sides).sort_values(["ts", "stream"], kind="stable")
    best = np.zeros(len(both))
    trace_ages(
        both.stream.to_numpy(),
        both.key.to_numpy(),
        both.ts.to_numpy(),
        int(both.key.max()) + 1,
        np.full(2, pair.within),
        np.zeros((2, BINS)),
        np.full(2, pair.within / BINS),
        best,
    )
    of_values = pd.Series(best[best > 0]).groupby(both.key.to_numpy()[best > 0]).mean() / 60_000
    shares, edges = np.histogram(of_values, bins=40, range=(0, 10))
    spread = {"mean": float(of_values.mean()), "deviation": float(of_values.std()), "source": pair.source}
    return [
        {"minutes": float(edge), "values": int(count)} | spread
        for edge, count in zip(edges[:-1], shares, strict=True)
    ]


# --- Figures ------------------------------------------------------------------------------------------


def figure_2_1(scope: Scope) -> Figure:
    """Popularity and stack distance of stock trades."""

    def draw(table: Any) -> Any:
        drawing, (left, right) = panels(2)
        part = table[table.panel == "popularity"]
        left.loglog(part.x, part.y, ".", color="#1f5fa8", markersize=3)
        slope = table[table.panel == "slope"].y.iloc[0]
        finish(left, f"(a) popularity, slope {slope:.2f}", "rank", "references", legend=None)
        lines(right, table[table.panel.isin(["original", "permuted"])], "x", "y", "panel")
        right.set_xscale("log")
        finish(right, "(b) stack distance", "distance, keys", "share of references", ylim=(0, 1))
        return drawing

    def claims(table: Any) -> list[Claim]:
        slope = abs(table[table.panel == "slope"].y.iloc[0])
        tenth = (table.panel == "popularity").sum() / 10
        at = {
            name: float(np.interp(tenth, part.x, part.y))
            for name, part in table[table.panel.isin(["original", "permuted"])].groupby("panel")
        }
        times = at["original"] / max(at["permuted"], 1e-9)
        return [
            Claim(
                "popularity is Zipf-like (the paper's symbols have a slope of 0.71 on log-log scales)",
                f"slope {slope:.2f}",
                bool(slope > 0.5),
            ),
            Claim(
                "for a cache of 10 % of the working set, locality could be twice as effective as frequency",
                f"hit rate {at['original']:.2f} against {at['permuted']:.2f} permuted, {times:.1f} times",
                times >= 1.8,
            ),
        ]

    return Figure(
        "figure-2.1",
        "Locality of stock trades",
        "figure 2.1, section 2.1",
        [Trial(locality, {"data": scope.folder, "seed": scope.seed})],
        draw,
        claims,
        note="A reference is a trade of a symbol at a price, the key of the joins; the paper's are symbols.",
    )


def figure_2(scope: Scope) -> Figure:
    """The distribution of the best age of tuples."""

    def draw(table: Any) -> Any:
        drawing, (ax,) = panels(1, width=5.5)
        ax.bar(table.minutes, table["values"] / table["values"].sum(), 0.23, align="edge", color="#1f5fa8")
        finish(ax, "Best age by value", "best age, minutes (window 10)", "share of the values", legend=None)
        return drawing

    def claims(table: Any) -> list[Claim]:
        mean, deviation = table["mean"].iloc[0], table.deviation.iloc[0]
        return [
            Claim(
                "the best age varies so much between values that no one age represents them",
                f"mean {mean:.2f} minutes, standard deviation {deviation:.2f}",
                bool(deviation > 0.5 * mean),
            )
        ]

    trials = [Trial(best_ages, {"data": scope.folder})]
    return Figure("figure-2", "Best ages of stock tuples", "figure 2, section 3.2", trials, draw, claims)


def _grid(scope: Scope, streams: Any, policies: Any, fractions: Any, **more: Any) -> list[Trial]:
    rows = scope.pick(12_000, None)
    base = {"data": scope.folder, "seed": scope.seed, "rows": rows} | more
    return [
        Trial(joined, base | {"streams": s, "policy": p, "fraction": f})
        for s in streams
        for p in policies
        for f in fractions
    ]


def figure_3(scope: Scope) -> Figure:
    """Methods of credit, and the initial credit."""
    methods = [f"gdj:method={m}" for m in (1, 2, 3)]
    ranks = scope.pick(
        (0.5, 0.8, 0.9, 0.95, 0.99), (0.1, 0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995)
    )
    initial = {f"gdj:initial={rank}": rank for rank in ranks}
    trials = _grid(
        scope, ["stock"], methods, scope.pick((0.1, 0.3, 0.5), (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9))
    )
    trials += _grid(scope, STREAMS, initial, [0.2])

    def draw(table: Any) -> Any:
        drawing, (left, right) = panels(2)
        lines(left, table[table.policy.isin(methods)], "fraction", "recall", "policy")
        finish(left, "(a) methods, stock", "buffer, share of the window", "recall", ylim=(0, None))
        part = table[table.policy.isin(initial)]
        lines(right, part.assign(rank=part.policy.map(initial)), "rank", "recall", "streams")
        finish(
            right, "(b) initial credit, buffer 20 %", "quantile of the credits", "recall", ylim=(0, None),
            legend="lower left",
        )  # fmt: skip
        return drawing

    def claims(table: Any) -> list[Claim]:
        by = table[table.policy.isin(methods)].pivot(index="fraction", columns="policy", values="recall")
        apart = float((by[methods[0]] - by[methods[1]]).abs().max())
        same = bool((by[methods[0]] == by[methods[2]]).all())
        part = table[table.policy.isin(initial)]
        best = part.loc[part.groupby("streams").recall.idxmax()].set_index("streams").policy.map(initial)
        told = ", ".join(f"{name} {best[name]:g}" for name in STREAMS)
        return [
            Claim("method 1 gives similar results to method 2", f"at most {apart:.3f} apart", apart < 0.05),
            Claim(
                "method 3 decreases by the same amount, so it evicts what method 1 evicts",
                "the same recall at every buffer size" if same else "recalls differ",
                same,
            ),
            Claim(
                "the best initial credit is high and differs: stock 0.995, weather 0.836, synthetic 0.998",
                told,
                bool((best >= 0.8).all()),
            ),
        ]

    return Figure("figure-3", "Tuning GDJ", "figure 3, section 5.2", trials, draw, claims)


def figure_4(scope: Scope) -> Figure:
    """The size of the buffer."""
    fractions = scope.pick((0.1, 0.2, 0.4, 0.7, 1.0), tuple(i / 10 for i in range(1, 11)))
    trials = _grid(scope, STREAMS, POLICIES, fractions)

    def draw(table: Any) -> Any:
        drawing, axes = panels(3)
        for ax, letter, streams in zip(axes, "abc", STREAMS, strict=True):
            lines(ax, table[table.streams == streams], "fraction", "recall", "policy")
            finish(ax, f"({letter}) {streams}", "buffer, share of the window", "recall", ylim=(0, 1.02))
        one_legend(drawing, axes)
        return drawing

    return Figure(
        "figure-4",
        "Size of the buffer",
        "figure 4, section 5.3.1",
        trials,
        draw,
        lambda table: ahead_of_others(table[table.fraction < 1], "fraction"),
    )


def ahead_of_others(table: Any, x: str) -> list[Claim]:
    """GDJ above each of the others at every point; it does not always hold, least of all for PROB."""
    found = []
    for streams, part in table.groupby("streams", sort=False):
        by = part.pivot(index=x, columns="policy", values="recall")
        for other in [name for name in by.columns if name != "gdj"]:
            ahead = by["gdj"] - by[other]
            found.append(
                Claim(
                    f"{streams}: GDJ outperforms {other.split(':')[0].upper()}",
                    f"ahead at {int((ahead > 0).sum())} of {len(ahead)} points, by {ahead.mean():+.3f} "
                    "recall on average",
                    bool((ahead > 0).all()),
                )
            )
    return found


def figure_5(scope: Scope) -> Figure:
    """Windows and domains."""
    windows: dict[str, Any] = {
        "stock": scope.pick((120_000, 600_000, 1_200_000), (60_000, 300_000, 600_000, 1_200_000)),
        "weather": scope.pick((300, 600, 1_200), (150, 300, 600, 1_200, 2_400)),
        "synthetic": scope.pick((30, 60, 120), (15, 30, 60, 120, 240)),
    }
    domains = scope.pick((50, 100, 400), (25, 50, 100, 200, 400, 800))
    policies = ("gdj", "prob", "age:k=tuple", "rand")
    trials = [
        trial
        for streams, each in windows.items()
        for window in each
        for trial in _grid(scope, [streams], policies, [0.2], window=window)
    ]
    trials += [t for n in domains for t in _grid(scope, ["synthetic"], policies, [0.2], keys=n)]

    def shaped(table: Any) -> pd.DataFrame:
        if "window" not in table:
            table = table.assign(window=np.nan)
        by_domain = table.window.isna()
        named = table.streams.where(~by_domain, "domain")
        return table.assign(streams=named, x=table.window.where(~by_domain, table["keys"]))

    def draw(table: Any) -> Any:
        drawing, axes = panels(4, width=3.2)
        table = shaped(table)
        in_ms = table.streams == "stock"
        table = table.assign(x=table.x.where(~in_ms, table.x / 60_000))
        for ax, letter, streams in zip(axes, "abcd", (*windows, "domain"), strict=True):
            part = table[table.streams == streams]
            lines(ax, part, "x", "recall", "policy")
            log_x(ax, sorted(part.x.unique()))
            what = "values in the domain" if streams == "domain" else "window, minutes"
            finish(ax, f"({letter}) {streams}", what, "recall", ylim=(0, None))
        one_legend(drawing, axes)
        return drawing

    def claims(table: Any) -> list[Claim]:
        table = shaped(table)
        mine = table[table.policy == "gdj"].groupby("streams", sort=False).recall
        told = ", ".join(f"{name} {part.max() - part.min():.2f}" for name, part in mine)
        steady = all(part.max() - part.min() < 0.2 for _, part in mine)
        said = "neither window nor domain size plays an effectual role: the behaviour is persistent"
        first = Claim(said, f"GDJ's recall varies by: {told}", steady)
        return [first, *ahead_of_others(table, "x")]

    return Figure(
        "figure-5", "Windows and domains, buffer 20 %", "figure 5, section 5.3.2", trials, draw, claims
    )


def figure_9(scope: Scope) -> Figure:
    """Sampling: output against distortion as squared error."""
    return _sampling(scope, "figure-9", "sse", "sum of squared errors")


def figure_10(scope: Scope) -> Figure:
    """Sampling: output against distortion as Kullback-Leibler distance."""
    return _sampling(scope, "figure-10", "kl", "Kullback-Leibler distance")


def _sampling(scope: Scope, name: str, measure: str, title: str) -> Figure:
    drops = scope.pick((0.0, 0.4, 0.8), (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8))
    policies, streams = ("gdj", "prob", "fifo"), ("stock", "weather")
    trials = [t for drop in drops for t in _grid(scope, streams, policies, [0.2], drop=drop)]

    def draw(table: Any) -> Any:
        drawing, axes = panels(4, width=3.2)
        for i, each in enumerate(streams):
            part = table[table.streams == each]
            lines(axes[2 * i], part, "drop", "results", "policy")
            finish(axes[2 * i], f"({'ac'[i]}) {each}", "drop rate", "results", ylim=(0, None))
            lines(axes[2 * i + 1], part, "drop", measure, "policy")
            finish(axes[2 * i + 1], f"({'bd'[i]}) {each}", "drop rate", title, ylim=(0, None))
        one_legend(drawing, axes)
        return drawing

    def claims(table: Any) -> list[Claim]:
        found = []
        for each, part in table.groupby("streams", sort=False):
            by = part.pivot(index="drop", columns="policy", values=measure)
            more = part.pivot(index="drop", columns="policy", values="results")
            first, last = by["gdj"].iloc[0], by["gdj"].iloc[-1]
            found.append(
                Claim(
                    f"{each}: with a drop rate of 80 % GDJ distorts less than with none",
                    f"{last:.2g} against {first:.2g}",
                    bool(last < first),
                )
            )
            better = (by["gdj"] <= by["prob"]) | (more["gdj"] >= more["prob"])
            both = (by["gdj"] <= by["prob"]) & (more["gdj"] >= more["prob"])
            found.append(
                Claim(
                    f"{each}: GDJ has more results than PROB and distorts less",
                    f"both at {int(both.sum())} of {len(both)} drop rates, one at {int(better.sum())}",
                    bool(both.all()),
                )
            )
        return found

    where = f"{name.replace('-', ' ')}, section 5.4"
    return Figure(name, f"Sampling: results and {title}", where, trials, draw, claims)


FIGURES = (
    figure_2_1,
    figure_2,
    figure_3,
    figure_4,
    figure_5,
    figure_6,
    figure_7,
    figure_8,
    figure_9,
    figure_10,
)
