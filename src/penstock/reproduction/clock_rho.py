"""CLOCK_exp with a decay rate that is tuned while the query runs, against fixed rates.

The paper hopes to investigate automated tuning in the future (section 4.4).
"""

from __future__ import annotations

from typing import Any

from penstock.reproduction.clock_trials import BY_SIZE, LABELS, TUNED, grid, workloads
from penstock.reproduction.figure import Claim, Figure, Scope
from penstock.reproduction.plots import heat, panels

FIXED = ("0.25", "0.5", "0.75", "0.8", "0.95", "0.99", "0.998")
CHANGE = "regimes"  # a change of regime, apart from the paper's workloads
ENOUGH = 0.99


def rho_auto(scope: Scope) -> Figure:
    """Recall of `rho=auto` and of fixed rates, for every cache of the figures and a change of regime."""
    shares: dict[str, Any] = {
        name: sorted({*scope.pick(*BY_SIZE), *scope.pick(*TUNED[name])} - {1.0}, reverse=True)
        for name in workloads(scope)
    }
    shares[CHANGE] = scope.pick((0.1,), (0.2, 0.1, 0.05))
    policies = [f"clock-exp:rho={rho}" for rho in (*FIXED, "auto")]
    trials = grid(scope, policies, shares)

    def draw(table: Any) -> Any:
        columns = 2 if len(shares) == 4 else len(shares)
        drawing, axes = panels(columns, len(shares) // columns, width=5.2, height=3.0)
        for number, (ax, name) in enumerate(zip(axes, shares, strict=True)):
            by = table[table.workload == name].pivot(index="policy", columns="share", values="recall")
            by = by.loc[policies, list(shares[name])]
            labels = by.rename(columns="{:.0%}".format, index=lambda policy: policy.split(":")[1])
            heat(ax, labels, by_column=True)
            ax.axhline(len(FIXED) - 0.5, color="white", linewidth=2.5)
            ax.set_title(f"{name} ({LABELS[name]})", fontsize=10)
            if number >= len(shares) - columns:
                ax.set_xlabel("cache, share of the most that is needed", fontsize=9)
        return drawing

    return Figure(
        "rho-auto",
        "A rate that tunes itself",
        "hoped for in section 4.4",
        trials,
        draw,
        judge,
        note="Each column has a scale of its own, from its least (light) to its most (dark).",
    )


def judge(table: Any) -> list[Claim]:
    """Against the best rate of each workload, that of each cell, and all of them where the stream changes."""
    usual = table[table.workload != CHANGE]
    by = usual.pivot(index=["workload", "share"], columns="policy", values="recall")
    tuned = by["clock-exp:rho=auto"]
    fixed = by.drop(columns="clock-exp:rho=auto")
    best = fixed.groupby(level="workload", sort=False).sum().max(axis=1)
    mine = tuned.groupby(level="workload", sort=False).sum()
    each = ", ".join(f"{name} {mine[name] / best[name]:.3f}" for name in best.index)
    cells = tuned / fixed.max(axis=1)
    found = [
        Claim(
            f"(ours) rho=auto has {ENOUGH} of the best fixed rate of each workload, over all of them",
            f"{mine.sum() / best.sum():.4f}; by workload: {each}",
            bool(mine.sum() >= ENOUGH * best.sum()),
        ),
        Claim(
            f"(ours) it has {ENOUGH} of the best fixed rate of each workload and cache, over all of them",
            f"{tuned.sum() / fixed.max(axis=1).sum():.4f}; a single one has {cells.min():.3f} at least",
            bool(tuned.sum() >= ENOUGH * fixed.max(axis=1).sum()),
        ),
    ]
    changed = table[table.workload == CHANGE].pivot(index="share", columns="policy", values="recall")
    ahead = changed["clock-exp:rho=auto"] / changed.drop(columns="clock-exp:rho=auto").max(axis=1)
    found.append(
        Claim(
            "(ours) it beats every fixed rate where the stream changes its nature",
            "of the best fixed rate: " + ", ".join(f"{r:.4f} at {s:.0%}" for s, r in ahead.items()),
            bool((ahead > 1).all()),
        )
    )
    return found
