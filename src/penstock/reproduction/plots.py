"""The common plot style of the figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.extras import require

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A policy or strategy has its colour and its mark wherever it is drawn; the keys are in lower case.
COLOURS = {
    "gdj": "#1f5fa8",
    "prob": "#d1782a",
    "prob (perfect lfu)": "#d1782a",
    "age": "#4d9a55",
    "age:k=tuple": "#4d9a55",
    "fifo": "#8a8a8a",
    "rand": "#b9a32f",
    "lru": "#8b5fb0",
    "lfu": "#a0522d",
    "life": "#c2577f",
    "clock": "#2a9d9d",
    "clock-exp": "#e07b91",
    "heeb": "#b03a3a",
    "heeb, learnt": "#1f5fa8",
    "heeb, season": "#3f7f3f",
    "heeb, season of two years": "#8fbc5a",
    "hist": "#2a9d9d",
    "flowexpect": "#6b4c9a",
    "opt": "#202020",
    "lfd": "#202020",
    "iterative": "#8a8a8a",
    "object": "#d1782a",
    "semantic": "#4d9a55",
    "columnar": "#b03a3a",
}
SPARE = ("#1f5fa8", "#d1782a", "#4d9a55", "#b03a3a", "#8b5fb0", "#2a9d9d", "#b9a32f", "#8a8a8a")
MARKERS = "osD^vPX*<>"
NAMES = {"age:k=tuple": "age, per tuple"}


def panels(columns: int, rows: int = 1, *, width: float = 4.2, height: float = 3.3) -> tuple[Figure, Any]:
    """A drawing with axes side by side.

    >>> from penstock.reproduction.plots import panels
    >>> drawing, axes = panels(2)
    >>> len(axes)
    2
    """
    require("matplotlib", "The drawing of a figure", extra="reproduction")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.subplots(rows, columns, squeeze=False)
    return drawing, list(axes.flat)


def lines(ax: Axes, table: pd.DataFrame, x: str, y: str, by: str, **style: Any) -> None:
    """A line per value of `by`, in the order of the table.

    >>> import pandas as pd
    >>> from penstock.reproduction.plots import lines, panels
    >>> _, (ax,) = panels(1)
    >>> lines(ax, pd.DataFrame({"m": [1, 2], "recall": [0.1, 0.4], "policy": "gdj"}), "m", "recall", "policy")
    >>> [line.get_label() for line in ax.lines]
    ['gdj']
    """
    drawn: list[Any] = []
    for number, (label, part) in enumerate(table.groupby(by, sort=False)):
        part = part.sort_values(x)
        points = part[[x, y]].to_numpy(float)
        hidden = any(points.shape == other.shape and np.allclose(points, other) for other in drawn)
        drawn.append(points)
        name = str(label).lower()
        place = list(COLOURS).index(name) if name in COLOURS else number
        ax.plot(
            part[x],
            part[y],
            marker=MARKERS[place % len(MARKERS)],
            markersize=4,
            linewidth=1.5,
            linestyle=(0, (2, 2)) if hidden else "-",  # both can be seen where one lies on another
            label=NAMES.get(name, str(label)),
            color=COLOURS.get(name, SPARE[number % len(SPARE)]),
            **style,
        )
    if table[x].dtype.kind in "iu":
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10]))


def finish(ax: Axes, title: str, xlabel: str, ylabel: str, *, legend: Any = "best", **limits: Any) -> None:
    """Title, labels and a quiet frame.

    >>> from penstock.reproduction.plots import finish, panels
    >>> _, (ax,) = panels(1)
    >>> finish(ax, "Memory", "tick", "tuples", legend=None)
    >>> ax.get_title()
    'Memory'
    """
    ax.set_title(title, fontsize=10)
    ax.set_xlabel(xlabel, fontsize=9)
    ax.set_ylabel(ylabel, fontsize=9)
    ax.tick_params(labelsize=8)
    ax.grid(color="0.92", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if limits:
        ax.set(**limits)
    if ax.get_yscale() == "linear" and max(map(abs, ax.get_ylim())) >= 10_000:
        ax.yaxis.set_major_formatter("{x:,.0f}")
    if legend and ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=8, loc=legend)


def one_legend(drawing: Figure, axes: Sequence[Axes]) -> None:
    """One legend below all panels, instead of one in each, where it would lie on the lines.

    >>> import pandas as pd
    >>> from penstock.reproduction.plots import lines, one_legend, panels
    >>> drawing, axes = panels(2)
    >>> for ax in axes:
    ...     lines(
    ...         ax,
    ...         pd.DataFrame({"m": [1, 2], "recall": [0.1, 0.4], "policy": "gdj"}),
    ...         "m",
    ...         "recall",
    ...         "policy",
    ...     )
    >>> one_legend(drawing, axes)
    >>> [text.get_text() for text in drawing.legends[0].get_texts()]
    ['gdj']
    """
    found: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        found |= {label: handle for handle, label in zip(handles, labels, strict=True) if label not in found}
        if (legend := ax.get_legend()) is not None:
            legend.remove()
    drawing.legend(
        list(found.values()), list(found), loc="outside lower center", ncols=8, frameon=False, fontsize=8
    )


def log_x(ax: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis that is marked at these values and nowhere else.

    >>> from penstock.reproduction.plots import log_x, panels
    >>> _, (ax,) = panels(1)
    >>> log_x(ax, [25, 600_000])
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['25', '600k']
    """
    ax.set_xscale("log")
    ax.set_xticks(list(values), [f"{v / 1000:g}k" if v >= 10_000 else f"{v:g}" for v in values])
    ax.minorticks_off()


def bars(ax: Axes, labels: Sequence[str], values: Sequence[float], form: str = "{:.2f}") -> None:
    """Bars with their values above.

    >>> from penstock.reproduction.plots import bars, panels
    >>> _, (ax,) = panels(1)
    >>> bars(ax, ["a", "b"], [1.0, 2.0])
    >>> [text.get_text() for text in ax.texts]
    ['1.00', '2.00']
    """
    colours = [COLOURS.get(label.partition("\n")[0].lower(), SPARE[0]) for label in labels]
    drawn = ax.bar(range(len(labels)), list(values), color=colours, width=0.65)
    ax.bar_label(drawn, [form.format(value) for value in values], fontsize=8, padding=2)
    ax.margins(y=0.12)  # room for the highest label
    ax.set_xticks(range(len(labels)), list(labels))


def heat(
    ax: Axes,
    table: pd.DataFrame,
    *,
    form: str = "{:.3f}",
    low: float | None = None,
    high: float | None = None,
    by_column: bool = False,
) -> None:
    """A heat map with its numbers; rows and columns are those of the table. What is missing stays blank.

    With `by_column` each column has a scale of its own, from its least to its most.

    >>> import pandas as pd
    >>> from penstock.reproduction.plots import heat, panels
    >>> _, (ax,) = panels(1)
    >>> heat(ax, pd.DataFrame({"5 %": {"lru": 0.5, "clock": 0.7, "opt": None}}))
    >>> [text.get_text() for text in ax.texts]
    ['0.500', '0.700']
    """
    values = table.to_numpy(float)
    scaled = values
    if by_column:
        least, most = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        scaled = (values - least) / np.where(most > least, most - least, 1)
    shown = ax.imshow(scaled, cmap="YlGnBu", aspect="auto", vmin=low, vmax=high)
    ax.set_xticks(range(table.shape[1]), [str(name) for name in table.columns])
    ax.set_yticks(range(table.shape[0]), [str(name) for name in table.index])
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            if values[i, j] != values[i, j]:
                continue
            dark = float(shown.norm(scaled[i, j])) > 0.6  # type: ignore[arg-type]
            ax.text(
                j, i, form.format(values[i, j]), ha="center", va="center", fontsize=8,
                color="white" if dark else "black",
            )  # fmt: skip
