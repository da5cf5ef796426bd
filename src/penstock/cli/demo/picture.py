"""The picture of the demo: the burst as each side reads it, their memory, the limit and the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.cli.demo.race import Side
from penstock.cli.demo.scenario import MIB, Scenario
from penstock.cli.demo.view import TITLES

COLOURS = {"spark": "#b5611a", "penstock": "#1f5fa8"}


def draw(scenario: Scenario, sides: list[Side], path: Path) -> None:
    """Draw both sides over the seconds of the demo."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (rows, memory) = plt.subplots(
        2, 1, sharex=True, figsize=(8, 5.6), height_ratios=(1, 2), layout="constrained"
    )
    for side in sides:
        _draw_rows(rows, side, scenario)
        _draw_memory(memory, side)
    rows.set(
        ylabel="rows of the minute\nbeing joined", ylim=(0, None), title="The same burst, the same memory"
    )
    rows.yaxis.set_major_formatter(lambda value, _: f"{value / 1_000:,.0f} k")
    memory.axhline(scenario.limit / MIB, color="#444", linestyle="--", linewidth=1)
    memory.annotate(
        "limit", (0, scenario.limit / MIB), xytext=(2, -11), textcoords="offset points", color="#444"
    )
    memory.set(xlabel="seconds", ylabel="memory of all processes, MiB", ylim=(0, 1.18 * scenario.limit / MIB))
    memory.legend(frameon=False, loc="lower right")
    for axes in (rows, memory):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(0, max(side.fate_at for side in sides) * 1.04)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_rows(axes: Any, side: Side, scenario: Scenario) -> None:
    """Draw the rows of each batch while it runs, as steps."""
    if side.began is None:
        return
    ends = [batch["at"] for batch in side.batches]
    starts = [side.began, *ends]
    for number, start in enumerate(starts[: scenario.files]):
        end = ends[number] if number < len(ends) else side.fate_at
        done = number < len(ends)
        axes.fill_between(
            [start, end], 2 * scenario.rows_of(number), step="post", color=COLOURS[side.name],
            alpha=0.35 if done else 0.15, linewidth=0, hatch=None if done else "///",
        )  # fmt: skip
        axes.plot([start, end], [2 * scenario.rows_of(number)] * 2, color=COLOURS[side.name], linewidth=1.5)


def _draw_memory(axes: Any, side: Side) -> None:
    """Draw the memory, and how it ended."""
    seconds = [at for at, _ in side.samples]
    sizes = [memory.total / MIB for _, memory in side.samples]
    colour = COLOURS[side.name]
    axes.plot(seconds, sizes, color=colour, label=TITLES[side.name])
    if not sizes or side.fate is None:
        return
    word = {"done": "done", "died": "died", "stopped": "stopped"}[side.fate]
    marker = {"done": "o", "died": "X", "stopped": "s"}[side.fate]
    axes.plot(
        side.fate_at, sizes[-1], marker=marker, color=colour, markersize=10 if side.fate != "done" else 6
    )
    axes.annotate(
        f"{word} after {side.fate_at:.0f} s", (side.fate_at, sizes[-1]), xytext=(-6, 10),
        textcoords="offset points", ha="right", color=colour, fontweight="bold",
    )  # fmt: skip
