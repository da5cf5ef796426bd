"""The curves of HEEB's sections 5 and 7: expected cumulative benefits, also by distance under a walk."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from penstock import models
from penstock.reproduction.figure import Claim, Figure, Row, Scope, Trial
from penstock.reproduction.plots import finish, lines, panels

NOW = 20  # the present step of a trend f(t) = t
R_NOISE, S_NOISE = 10, 15  # bounds of the noise of R and of S
PLACES = {"x": 1, "y": -4, "z": 6}  # of the tuples of figure 2, seen from the peak of the other stream
DRIFTS = (0, 2, 4)


# --- Trials -------------------------------------------------------------------------------------------


def example(ahead: int) -> list[Row]:
    """The ECBs of three tuples under a trend with normal noise.

    >>> from penstock.reproduction.heeb_curves import example
    >>> [row["tuple"] for row in example(ahead=1)]
    ['x', 'y', 'z']
    """
    other = models.LinearTrend(slope=1, intercept=0, noise=models.BoundedNormal(sd=2, bound=15))
    found = models.ecb(other, [NOW + place for place in PLACES.values()], ahead, range(NOW + 1))
    return _rows(found, "tuple", list(PLACES))


def caching(noise: int, ahead: int) -> list[Row]:
    """The ECBs of tuples in the window of the references, by where they are in it.

    >>> from penstock.reproduction.heeb_curves import caching
    >>> rows = caching(noise=2, ahead=3)
    >>> [round(row["benefit"], 3) for row in rows if row["place"] == -2]
    [0.0, 0.0, 0.0]
    """
    places = list(range(-noise, noise + 1))
    found = models.ecb(
        _uniform(noise), [NOW + place for place in places], ahead, range(NOW + 1), problem="caching"
    )
    return _rows(found, "place", places)


def joining(ahead: int) -> list[Row]:
    """The ECBs of all tuples of R and of S that may still be there, by stream and place.

    >>> from penstock.reproduction.heeb_curves import joining
    >>> sorted({row["category"] for row in joining(ahead=1)})
    ['R1', 'R2', 'S1', 'S2', 'S3']
    """
    rows = []
    for stream, own, other in (("R", R_NOISE, S_NOISE), ("S", S_NOISE, R_NOISE)):
        places = list(range(-S_NOISE - 2, own + 1))
        found = models.ecb(_uniform(other), [NOW + place for place in places], ahead, range(NOW + 1))
        rows += [
            {"stream": stream, "category": _category(stream, row["place"]), **row}
            for row in _rows(found, "place", places)
        ]
    return rows


def walk(drift: int, alpha: int, reach: int) -> list[Row]:
    """What a tuple is worth to a cache by its distance from where the references walk.

    >>> from penstock.reproduction.heeb_curves import walk
    >>> max(walk(drift=0, alpha=10, reach=3), key=lambda row: row["benefit"])["distance"]
    0
    """
    distances = np.arange(-reach, reach + 1)
    model = models.RandomWalk(drift=drift, sd=1)
    found = models.benefit(model, distances, [0], alpha=alpha, problem="caching")
    pairs = zip(distances.tolist(), found.tolist(), strict=True)
    return [{"distance": distance, "benefit": value} for distance, value in pairs]


def _uniform(noise: int) -> models.LinearTrend:
    return models.LinearTrend(slope=1, intercept=0, noise=models.BoundedUniform(noise))


def _category(stream: str, place: int) -> str:
    """The paper's, of a tuple of a stream at this distance from the trend."""
    if stream == "R":
        return "R1" if place <= -S_NOISE else "R2"
    if place <= -R_NOISE:
        return "S1"
    return "S2" if place <= R_NOISE + 1 else "S3"


def _rows(found: np.ndarray, name: str, labels: list[Any]) -> list[Row]:
    return [
        {name: label, "steps": step + 1, "benefit": float(found[step, i])}
        for i, label in enumerate(labels)
        for step in range(len(found))
    ]


# --- Figures ------------------------------------------------------------------------------------------


def figure_2(scope: Scope) -> Figure:
    """Three tuples: one to discard, and two that cannot be compared."""

    def draw(table: Any) -> Any:
        return _curves(table, "tuple", "ECBs of three tuples")

    def claims(table: Any) -> list[Claim]:
        x, y, z = (table[table.tuple == name].benefit.to_numpy() for name in PLACES)
        cross = int(np.argmax(z > x)) + 1
        compared = models.comparable(x, z)
        safe = models.dominated_subset(np.stack([x, y, z], axis=1), most=2)
        return [
            Claim(
                "x has more benefit than y over any time",
                f"over all of {len(x)} steps: {models.dominates(x, y)}",
                models.dominates(x, y),
            ),
            Claim(
                "between x and z it depends on how long they stay",
                f"z passes x after {cross} steps" if not compared else "one dominates the other",
                not compared,
            ),
            Claim("only y can be discarded for certain", f"tuples {safe} of x, y, z", safe == [1]),
        ]

    return Figure(
        "figure-2", "Example ECBs", "figure 2", [Trial(example, {"ahead": 20})], draw, claims
    )  # fmt: skip


def figure_4(scope: Scope) -> Figure:
    """Caching under a trend with uniform noise."""

    def draw(table: Any) -> Any:
        shown = table[table.place.isin([-10, -6, -2, 2, 6, 10])]
        return _curves(shown, "place", "Caching: ECBs by place in the window")

    def claims(table: Any) -> list[Claim]:
        curves = {place: part.benefit.to_numpy() for place, part in table.groupby("place")}
        steps = np.arange(1, table.steps.max() + 1)
        size = 2 * R_NOISE + 1
        # The window has passed a tuple at this place after so many steps.
        formula = {v: 1 - (1 - 1 / size) ** np.minimum(steps, v + R_NOISE) for v in curves}
        far = max(float(np.abs(curves[v] - formula[v]).max()) for v in curves)
        ordered = all(models.dominates(curves[v + 1], curves[v]) for v in curves if v + 1 in curves)
        return [
            Claim(
                "the ECB grows as 1 - (1 - 1/(2w+1))^dt until the window has passed",
                f"at most {far:.1e} apart",
                far < 1e-9,
            ),
            Claim(
                "the tuple with the smallest value can always be discarded",
                f"of {len(curves)} values each dominates the next smaller: {ordered}",
                ordered,
            ),
        ]

    trials = [Trial(caching, {"noise": R_NOISE, "ahead": 30})]
    return Figure("figure-4", "Caching ECBs, linear trend, uniform noise", "figure 4", trials, draw, claims)


def figure_5(scope: Scope) -> Figure:
    """Joining under a trend with uniform noise."""
    representatives = {"R1": -16, "R2": 0, "S1": -12, "S2": 3, "S3": 14}

    def draw(table: Any) -> Any:
        chosen = [(name[0], place) for name, place in representatives.items()]
        keep = [pair in chosen for pair in zip(table.stream, table.place, strict=True)]
        return _curves(table[keep], "category", "Joining: an ECB of each category")

    def claims(table: Any) -> list[Claim]:
        curves = {key: part.benefit.to_numpy() for key, part in table.groupby(["category", "place"])}
        by = {name: [key for key in curves if key[0] == name] for name in representatives}
        nothing = max(float(curves[key].max()) for name in ("R1", "S1") for key in by[name])
        within = [
            models.comparable(curves[a], curves[b])
            for name in representatives
            for a, b in product(by[name], by[name])
        ]
        said, other_way = _across(curves, by["R2"], by["S2"])
        return [
            Claim("R1 and S1 give nothing any more", f"at most {nothing:g}", nothing == 0.0),
            Claim(
                "within a category ECBs are comparable",
                f"{sum(within)} of {len(within)} pairs",
                all(within),
            ),
            Claim(
                "a tuple of R2 dominates one of S2 exactly if its window share is not smaller",
                f"in {said:.0%} of the pairs; that the one of S2 dominates exactly if its share is not "
                f"smaller, in {other_way:.0%}: the tuple of S2 gains faster at first",
                said == 1.0,
            ),
        ]

    trials = [Trial(joining, {"ahead": 45})]
    return Figure("figure-5", "Joining ECBs, linear trend, uniform noise", "figure 5", trials, draw, claims)


def _across(curves: dict[Any, np.ndarray], r2: list[Any], s2: list[Any]) -> tuple[float, float]:
    """In which share of the pairs the paper's condition tells dominance, and its converse does."""
    said, converse = [], []
    for x, y in product(r2, s2):
        mine = (x[1] + S_NOISE) / (2 * S_NOISE + 1)
        theirs = (y[1] + R_NOISE) / (2 * R_NOISE + 1)
        said.append(models.dominates(curves[x], curves[y]) == (mine >= theirs - 1e-12))
        converse.append(models.dominates(curves[y], curves[x]) == (theirs >= mine - 1e-12))
    return float(np.mean(said)), float(np.mean(converse))


def figure_6(scope: Scope) -> Figure:
    """The precomputed benefit of a random walk."""
    trials = [Trial(walk, {"drift": drift, "alpha": 10, "reach": 20}) for drift in DRIFTS]

    def draw(table: Any) -> Any:
        drawing, (ax,) = panels(1, width=7)
        lines(ax, table.assign(drift="drift " + table.drift.astype(str)), "distance", "benefit", "drift")
        finish(ax, "h of a random walk, normal steps of variance 1", "distance from the last value", "h")
        return drawing

    def claims(table: Any) -> list[Claim]:
        curves = {drift: part.set_index("distance").benefit for drift, part in table.groupby("drift")}
        still = curves[0]
        falls = bool((np.diff(still.loc[0:].to_numpy()) < 0).all())
        even = float(np.abs(still.to_numpy() - still.to_numpy()[::-1]).max())
        right = {drift: float(curve.loc[1:].sum() / curve.sum()) for drift, curve in curves.items()}
        peaks = [
            step for step in (4, 8, 12) if curves[4][step] > max(curves[4][step - 2], curves[4][step + 2])
        ]
        shares = ", ".join(f"{share:.0%} at drift {drift}" for drift, share in right.items())
        return [
            Claim(
                "without drift the farthest from the last value is worth least",
                f"falls with the distance: {falls}; left and right differ by {even:.0e} at most",
                falls and even < 1e-9,
            ),
            Claim(
                "a larger drift favours tuples to the right",
                f"to the right is {shares}",
                right[0] < right[2] <= right[4],
            ),
            Claim(
                "and those that are away by a multiple of the drift",
                f"at drift 4 there are peaks at {peaks}",
                peaks == [4, 8, 12],
            ),
        ]

    return Figure("figure-6", "Precomputed h, random walk with drift", "figure 6", trials, draw, claims)


def _curves(table: pd.DataFrame, by: str, title: str) -> Any:
    drawing, (ax,) = panels(1, width=6)
    lines(ax, table, "steps", "benefit", by)
    finish(ax, title, "steps from now", "expected benefit", ylim=(0, None))
    return drawing
