"""GreedyDual-Join over several joins, streams and attributes: figures 6, 7 and 8."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from penstock.budget import Fraction
from penstock.joins import join_many
from penstock.reproduction.figure import Claim, Figure, Row, Scope, Trial
from penstock.reproduction.inputs import trades
from penstock.reproduction.plots import COLOURS, finish, lines, one_legend, panels
from penstock.workloads import gdj_attributes, gdj_pair

GENERATOR = "generator of section 5.1.1"


# --- Trials -------------------------------------------------------------------------------------------


def two_joins(policy: str, allocation: str, rate: float, seed: int) -> list[Row]:
    """A directly and an inversely correlated pair, four streams in one memory."""
    pairs = {
        kind: gdj_pair(rate=rate, alpha=1.0, correlation=kind, seed=seed + number)  # type: ignore[arg-type]
        for number, kind in enumerate(("direct", "inverse"))
    }
    streams = {f"{kind}{side}": frame for kind, pair in pairs.items() for side, frame in enumerate(pair)}
    stats = join_many(
        streams,
        on=[((f"{kind}0", "key"), (f"{kind}1", "key")) for kind in pairs],
        time="ts",
        within=60,
        budget=Fraction(0.2),
        policy=policy,
        allocation=allocation,
        seed=seed,
    ).stats
    direct, inverse = stats.per_join
    figures = {"results": stats.results, "direct": direct, "inverse": inverse, "recall": stats.recall}
    return [figures | {"source": GENERATOR}]


def many_streams(data: str | None, policy: str, streams: int, rows: int, seed: int) -> list[Row]:
    """Trades dealt out to streams, joined on symbol and price within a minute."""
    frame, source = trades(data)
    frame = frame.iloc[:rows]
    key = pd.factorize(frame["symbol"].astype(str) + " " + frame["price"].astype(str))[0]
    keyed = pd.DataFrame({"key": key, "ts": frame["ms"].to_numpy()})
    dealt = np.random.default_rng(seed).integers(streams, size=len(keyed))
    stats = join_many(
        {f"s{i}": keyed[dealt == i].reset_index(drop=True) for i in range(streams)},
        on="key",
        time="ts",
        within=60_000,
        budget=Fraction(0.2),
        policy=policy,
        allocation="equal",
        seed=seed,
    ).stats
    return [{"results": stats.results, "exact": stats.exact, "recall": stats.recall, "source": source}]


def many_attributes(
    policy: str, attributes: int, rate: float, seed: int, skews: list[float] | None = None
) -> list[Row]:
    """Joins of two streams on each of their attributes; `skews` are those of the second on either side."""
    given: dict[str, Any] = {}
    if skews is not None:
        given = {"left_alphas": (0.0, skews[0]), "right_alphas": (0.0, skews[1])}
    left, right = gdj_attributes(attributes, rate=rate, seed=seed, **given)
    stats = join_many(
        {"left": left, "right": right},
        on=[(("left", f"a{i}"), ("right", f"a{i}")) for i in range(1, attributes + 1)],
        time="ts",
        within=60,
        budget=Fraction(0.2),
        policy=policy,
        allocation="equal",
        seed=seed,
    ).stats
    return [{"results": stats.results, "exact": stats.exact, "recall": stats.recall, "source": GENERATOR}]


# --- Figures ------------------------------------------------------------------------------------------


def figure_6(scope: Scope) -> Figure:
    """One memory for two joins."""
    ways = [("rand", "proportional"), ("rand", "unified"), ("prob", "proportional"), ("prob", "unified"),
            ("gdj", "proportional"), ("gdj", "unified")]  # fmt: skip
    rate = scope.pick(4.0, 20.0)
    trials = [
        Trial(two_joins, {"policy": p, "allocation": a, "rate": rate, "seed": scope.seed}) for p, a in ways
    ]

    def draw(table: Any) -> Any:
        drawing, (ax,) = panels(1, width=7)
        at, colours = range(len(table)), [COLOURS[policy] for policy in table.policy]
        ax.bar(at, table.direct, width=0.65, color=colours, label="directly correlated pair")
        top = ax.bar(
            at, table.inverse, width=0.65, bottom=table.direct, label="inversely correlated pair",
            color="white", edgecolor=colours, hatch="////",
        )  # fmt: skip
        ax.bar_label(top, [f"{n:,}" for n in table.results], fontsize=8, padding=2)
        ax.margins(y=0.12)
        ax.set_xticks(at, [f"{p.upper()}\n{a}" for p, a in zip(table.policy, table.allocation, strict=True)])
        finish(ax, "Results of two joins in one memory, buffer 20 %", "", "results", legend="upper left")
        return drawing

    def claims(table: Any) -> list[Claim]:
        got = table.set_index(["policy", "allocation"]).results
        ratio = got["rand", "unified"] / got["rand", "proportional"]
        ours, theirs = got["gdj", "unified"], got["prob", "proportional"]
        split, both = got["gdj", "proportional"], got["prob", "unified"]
        return [
            Claim(
                "RAND is the same unified or not", f"unified has {ratio:.2f} of it", bool(0.9 < ratio < 1.1)
            ),
            Claim(
                "UNIFIED-GDJ significantly outperforms PROP-PROB",
                f"{ours:,} against {theirs:,} results, {ours / theirs:.2f} times",
                bool(ours > 1.1 * theirs),
            ),
            Claim(
                "credits tell which join is worth the memory: unified GDJ has more than a GDJ per stream",
                f"{ours:,} against {split:,} (unified PROB: {both:,})",
                bool(ours > split),
            ),
        ]

    return Figure("figure-6", "Unified buffers", "figure 6, section 5.3.3", trials, draw, claims)


def figure_7(scope: Scope) -> Figure:
    """Many streams, many attributes."""
    policies = ("gdj", "prob", "rand")
    base = {"data": scope.folder, "rows": scope.pick(30_000, 224_473), "seed": scope.seed}
    trials = [Trial(many_streams, base | {"policy": p, "streams": n}) for p in policies for n in (2, 3, 4, 5)]
    wide = {"rate": scope.pick(2.0, 10.0), "seed": scope.seed}
    trials += [
        Trial(many_attributes, wide | {"policy": p, "attributes": n})
        for p in policies
        for n in (1, 2, 3, 4, 5)
    ]

    def draw(table: Any) -> Any:
        drawing, (left, right) = panels(2)
        lines(left, table[table.streams.notna()], "streams", "recall", "policy")
        finish(left, "(a) many streams, stock", "streams", "recall", yscale="log", xticks=(2, 3, 4, 5))
        lines(right, table[table.attributes.notna()], "attributes", "results", "policy")
        finish(right, "(b) many attributes, generated", "attributes", "results", ylim=(0, None))
        right.set_xticks((1, 2, 3, 4, 5))
        one_legend(drawing, (left, right))
        return drawing

    def claims(table: Any) -> list[Claim]:
        found = []
        for what, said in (("streams", "join of streams"), ("attributes", "joins on attributes")):
            by = table[table[what].notna()].pivot(index=what, columns="policy", values="recall")
            for other in ("prob", "rand"):
                ahead = by["gdj"] / by[other]
                found.append(
                    Claim(
                        f"{said}: GDJ outperforms {other.upper()} for every number of them",
                        "times as many results: " + ", ".join(f"{n:g}: {v:.2f}" for n, v in ahead.items()),
                        bool((ahead > 1).all()),
                    )
                )
        return found

    return Figure("figure-7", "Many streams and attributes", "figure 7, section 5.3.4", trials, draw, claims)


def figure_8(scope: Scope) -> Figure:
    """Skew of the second attribute of both streams."""
    skews = scope.pick((0.1, 0.8, 1.5), (0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5))
    base = {"attributes": 2, "rate": scope.pick(2.0, 10.0), "seed": scope.seed}
    trials = [
        Trial(many_attributes, base | {"policy": p, "skews": [x, y]})
        for p in ("fifo", "prob", "gdj")
        for x in skews
        for y in skews
    ]

    def shaped(table: Any) -> dict[str, Any]:
        table = table.assign(x=table.skews.str[0], y=table.skews.str[1])
        return {
            str(p): part.pivot(index="y", columns="x", values="results")
            for p, part in table.groupby("policy", sort=False)
        }

    def draw(table: Any) -> Any:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Drawing

        surfaces = shaped(table)
        drawing = Drawing(figsize=(12, 3.8))
        FigureCanvasAgg(drawing)
        high = max(float(each.to_numpy().max()) for each in surfaces.values())
        for number, (policy, surface) in enumerate(surfaces.items()):
            ax: Any = drawing.add_subplot(1, 3, number + 1, projection="3d")
            xs, ys = np.meshgrid(surface.columns, surface.index)
            ax.plot_surface(xs, ys, surface.to_numpy(), cmap="viridis", linewidth=0.2, vmin=0, vmax=high)
            ax.set(title=policy.upper(), xlabel="skew left", ylabel="skew right", zlim=(0, high))
            ax.set_zlabel("results", labelpad=8)
            ax.zaxis.set_major_formatter("{x:,.0f}")
            ax.tick_params(labelsize=7)
        drawing.subplots_adjust(left=0.01, right=0.95, top=0.9, bottom=0.06, wspace=0.12)
        return drawing

    def claims(table: Any) -> list[Claim]:
        surfaces = shaped(table)
        gdj, prob = surfaces["gdj"], surfaces["prob"]
        ahead = gdj / prob
        even, steep = ahead.iloc[0, 0], ahead.iloc[-1, -1]
        share = float((ahead > 1).to_numpy().mean())
        grown = all(s.iloc[-1, -1] > s.iloc[0, 0] for s in surfaces.values())
        return [
            Claim("all produce more with more skew", "from the corner of least to that of most", grown),
            Claim(
                "with small skews PROB may be better, with larger ones GDJ is",
                f"GDJ has {even:.2f} times PROB's results at the least skew, {steep:.2f} at the most; it is "
                f"ahead at {share:.0%} of the points",
                bool(steep > 1),
            ),
        ]

    return Figure("figure-8", "Skew of two attributes", "figure 8, section 5.3.4", trials, draw, claims)
