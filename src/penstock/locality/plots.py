"""Plots of locality: popularity by rank, stack distances against a permuted copy, inter-arrival times.

Matplotlib is imported when a plot is drawn. Without `ax`, a figure of its own is made, outside of pyplot's
global state, so that plots work without a display; `ax.figure.savefig(...)` writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from penstock.arguments import draws
from penstock.errors import PenstockError
from penstock.extras import require
from penstock.locality._keys import Keys, encode
from penstock.locality.gaps import inter_arrival
from penstock.locality.popularity import Popularity, popularity
from penstock.locality.stack import StackDistance, stack_distance

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ORIGINAL: dict[str, Any] = {"color": "#1f5fa8", "linewidth": 1.8, "label": "original"}
_PERMUTED: dict[str, Any] = {"color": "#d1782a", "linewidth": 1.8, "linestyle": "--", "label": "permuted"}


def plot_popularity(stream: Keys | Popularity, *, ax: Axes | None = None) -> Axes:
    """References by rank on a log-log scale, with the fitted Zipf law.

    Parameters
    ----------
    stream
        The keys, or what `popularity` made of them.
    ax
        Axes to draw on; a new figure by default.

    Examples
    --------
    >>> from penstock.locality import plot_popularity
    >>> plot_popularity("aaaabbcd").get_xlabel()
    'rank of the key'

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), figure 2.1 (a).
    """
    profile = stream if isinstance(stream, Popularity) else popularity(stream)
    ax = ax if ax is not None else _new_axes()
    rank = np.arange(1, len(profile.counts) + 1)
    ax.loglog(rank, profile.counts, ".", color=_ORIGINAL["color"], label="counted", rasterized=True)
    if np.isfinite(profile.slope):
        margin = "" if np.isnan(profile.error) else f" ± {profile.error:.3f}"
        ends = np.array([rank[0], rank[-1]])
        style = {**_PERMUTED, "label": f"Zipf fit, slope {profile.slope:.3f}{margin}"}
        ax.loglog(ends, profile.fitted(ends), **style)
    # The fit may fall far below one reference; what was counted sets the scale.
    ax.set_ylim(bottom=max(0.5, 0.6 * profile.counts[-1]))
    return _finish(ax, "Popularity", "rank of the key", "references to the key", "upper right")


def plot_stack_distance(
    stream: Keys | StackDistance, *, ax: Axes | None = None, seed: int | np.random.Generator = 0
) -> Axes:
    """The distribution of stack distances, that is the hit rate by cache size, with that of a permuted copy.

    The gap between the curves is what correlation over short time scales adds.

    Parameters
    ----------
    stream
        The keys, or what `stack_distance` made of them.
    ax
        Axes to draw on; a new figure by default.
    seed
        Seed of the permutation.

    Examples
    --------
    >>> from penstock.locality import plot_stack_distance
    >>> plot_stack_distance("abcabcaabbcc").get_ylabel()
    'share of references (LRU hit rate)'

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), figure 2.1 (b).
    """
    found = stream if isinstance(stream, StackDistance) else stack_distance(stream, seed=seed)
    ax = ax if ax is not None else _new_axes()
    for permuted, style in ((False, _ORIGINAL), (True, _PERMUTED)):
        sizes, rates = found.cdf(permuted=permuted)
        sizes = np.concatenate(([1], sizes, [max(found.distinct, 1)]))
        rates = np.concatenate(([0.0], rates, rates[-1:] if len(rates) else [0.0]))
        ax.step(sizes, rates, where="post", **style)
    ax.set_xscale("log")
    ax.set_xlim(1, max(found.distinct, 2))
    ax.set_ylim(0, 1.02)
    across, up = "stack distance (cache size in keys)", "share of references (LRU hit rate)"
    return _finish(ax, "Stack distance", across, up, "upper left")


def plot_inter_arrival(
    keys: Keys, times: Any = None, *, ax: Axes | None = None, seed: int | np.random.Generator = 0
) -> Axes:
    """How many gaps between references to the same key are longer than x, on a log-log scale.

    A straight line is a power law. Beside it, the gaps of the same keys in random order at the same times.

    Parameters
    ----------
    keys, times
        As in `inter_arrival`.
    ax
        Axes to draw on; a new figure by default.
    seed
        Seed of the permutation.

    Examples
    --------
    >>> from penstock.locality import plot_inter_arrival
    >>> plot_inter_arrival("abcabcaabbcc").get_xlabel()
    'gap x, in references'

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), section 2.1.
    """
    codes = encode(keys).codes
    original = inter_arrival(codes, times)
    permuted = inter_arrival(draws(seed).permutation(codes), times)
    unit = "references" if times is None else "the unit of the times"
    if original.dtype.kind == "m":
        original, permuted = (gaps / np.timedelta64(1, "s") for gaps in (original, permuted))
        unit = "seconds"
    positive = original[original > 0]
    if len(positive) == 0:
        raise PenstockError(
            f"{len(codes)} references with {len(original)} gaps, none above 0, were given; there is nothing "
            "to plot. Hint: leave out the times to count gaps in references."
        )
    ax = ax if ax is not None else _new_axes()
    for gaps, style in ((original, _ORIGINAL), (permuted, _PERMUTED)):
        ax.step(*_exceeding(gaps, positive.min() / 2), where="post", **style)
    ax.set_xscale("log")
    ax.set_yscale("log")
    across, up = f"gap x, in {unit}", "share of gaps longer than x"
    return _finish(ax, "Inter-arrival times", across, up, "lower left")


def plot_locality(keys: Keys, times: Any = None, *, seed: int | np.random.Generator = 0) -> Figure:
    """All three side by side.

    Parameters
    ----------
    keys, times
        As in `inter_arrival`.
    seed
        Seed of the permutations.

    Examples
    --------
    >>> from penstock.locality import plot_locality
    >>> [ax.get_title() for ax in plot_locality("abcabcaabbcc").axes]
    ['Popularity', 'Stack distance', 'Inter-arrival times']

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), section 2.
    """
    require("matplotlib", "plot_locality()")
    from matplotlib.figure import Figure

    codes = encode(keys).codes
    figure = Figure(figsize=(14, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    plot_popularity(codes, ax=left)
    plot_stack_distance(codes, ax=middle, seed=seed)
    plot_inter_arrival(codes, times, ax=right, seed=seed)
    return figure


def _new_axes() -> Axes:
    require("matplotlib", "A plot of locality")
    from matplotlib.figure import Figure

    return Figure(figsize=(6, 4.2), layout="constrained").add_subplot()


def _exceeding(gaps: NDArray[Any], start: float) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """`start` and the gaps above it, each with the share of gaps above it; the largest is left out."""
    ordered = np.sort(gaps)
    values = np.append(start, np.unique(ordered[ordered > start])[:-1])
    return values, 1.0 - np.searchsorted(ordered, values, side="right") / len(ordered)


def _finish(ax: Axes, title: str, xlabel: str, ylabel: str, corner: Any) -> Axes:
    ax.set_title(title)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.grid(True, which="major", alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc=corner, frameon=False)
    return ax
