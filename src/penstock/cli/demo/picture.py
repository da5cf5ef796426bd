"""The picture of the demo: the burst as each side reads it, their memory and state, the limit and the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.cli.demo.race import Side
from penstock.cli.demo.scenario import MIB, Scenario
from penstock.cli.demo.view import FATES, TITLES

COLOURS = {"spark": "#b5611a", "penstock": "#1f5fa8"}
MARKERS = {"done": "o", "died": "X", "stopped": "s"}


def draw(scenario: Scenario, sides: list[Side], path: Path) -> None:
    """Draw both sides over the seconds of the demo."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (*strips, memory, state) = plt.subplots(
        len(sides) + 2, 1, sharex=True, figsize=(8, 7.4), layout="constrained",
        height_ratios=(*[0.8] * len(sides), 2.6, 1.6),
    )  # fmt: skip
    figure.suptitle("The same burst, the same memory limit", fontweight="bold")
    for strip, side in zip(strips, sides, strict=True):
        _draw_rows(strip, side, scenario)
    for side in sides:
        _draw_memory(memory, side)
        _draw_state(state, side)
    limit = scenario.limit / MIB
    memory.axhline(limit, color="#444", linestyle="--", linewidth=1)
    memory.annotate("limit", (0, limit), xytext=(3, 4), textcoords="offset points", color="#444")
    memory.set(ylim=(0, 1.2 * limit))
    memory.set_title("Memory of all processes, MiB", loc="left", fontsize=10)
    memory.legend(frameon=False, loc="lower right")
    state.set(ylim=(0, None), xlabel="seconds")
    state.set_title(
        "Of it for the rows that the join keeps, as each reports it, MiB", loc="left", fontsize=10
    )
    for axes in (*strips, memory, state):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(0, max(side.fate_at for side in sides) * 1.06)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_rows(axes: Any, side: Side, scenario: Scenario) -> None:
    """Draw a bar for each minute of the stream, as wide as it took; one that was not finished is hatched."""
    ends = [batch["at"] for batch in side.batches]
    starts = [side.began or 0.0, *ends]
    for number, start in enumerate(starts[: scenario.files]):
        done = number < len(ends)
        width = (ends[number] if done else side.fate_at) - start
        axes.bar(
            start, 2 * scenario.rows_of(number), width, align="edge", edgecolor="white", linewidth=0.6,
            color=COLOURS[side.name], alpha=0.75 if done else 0.3, hatch=None if done else "///",
        )  # fmt: skip
    axes.set_title(f"{TITLES[side.name]}: rows of the minute that it reads", loc="left", fontsize=10)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1_000:,.0f} k")
    axes.set_ylim(0, 2.2 * max(scenario.rows_of(file) for file in range(scenario.files)))


def _draw_memory(axes: Any, side: Side) -> None:
    """Draw the memory, and how it ended."""
    seconds = [at for at, _ in side.samples]
    sizes = [memory.total / MIB for _, memory in side.samples]
    axes.plot(seconds, sizes, color=COLOURS[side.name], label=TITLES[side.name])
    if not sizes or side.fate is None:
        return
    good = side.fate == "done"
    axes.plot(
        side.fate_at, sizes[-1], marker=MARKERS[side.fate], color=COLOURS[side.name],
        markersize=7 if good else 12, linestyle="none",
    )  # fmt: skip
    axes.annotate(
        f"{FATES[side.fate].lower()} after {side.fate_at:.0f} s", (side.fate_at, sizes[-1]),
        xytext=(0, -18 if good else 12), textcoords="offset points", ha="right", va="center",
        color=COLOURS[side.name], fontweight="bold",
    )  # fmt: skip


def _draw_state(axes: Any, side: Side) -> None:
    """Draw what the join keeps after each minute, up to the moment when it ended."""
    seconds = [side.began or 0.0, *(batch["at"] for batch in side.batches)]
    sizes = [0.0, *(batch["state"] / MIB for batch in side.batches)]
    axes.plot(seconds, sizes, color=COLOURS[side.name], marker=".")
    if side.fate in ("died", "stopped"):
        axes.plot(
            side.fate_at, sizes[-1], marker=MARKERS[side.fate], color=COLOURS[side.name], markersize=12,
            linestyle="none",
        )  # fmt: skip
        axes.plot([seconds[-1], side.fate_at], [sizes[-1]] * 2, color=COLOURS[side.name], linestyle=":")
