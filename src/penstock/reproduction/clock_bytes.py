"""The cost of CLOCK's scores: recall in equal memory, scores and tables included, and in equal tuples.

The paper leaves it open (section 5): with the same memory FIFO and LRU may cache more bindings than CLOCK.
"""

from __future__ import annotations

from typing import Any

from penstock.reproduction.clock_trials import LABELS, grid, workloads
from penstock.reproduction.figure import Claim, Figure, Scope
from penstock.reproduction.plots import finish, lines, log_x, one_legend, panels

POLICIES = ("rand", "fifo", "lru", "clock", "clock-exp", "prob", "gdj")
RIVALS = ("fifo", "rand", "lru")
LABEL = {"tuples": "tuples, % of the most that is needed", "bytes": "bytes that FIFO takes for so many, %"}


def equal_bytes(scope: Scope) -> Figure:
    """Recall in as many bytes as FIFO takes, beside recall with as many tuples."""
    sizes = scope.pick((0.1, 0.4), (0.02, 0.05, 0.1, 0.2, 0.4, 0.6))
    names = workloads(scope)
    shares = dict.fromkeys(names, sizes)
    trials = [trial for budget in ("tuples", "bytes") for trial in grid(scope, POLICIES, shares, budget)]

    def draw(table: Any) -> Any:
        drawing, axes = panels(len(names), 2, width=4.2, height=3.0)
        for at, (budget, name) in enumerate((b, n) for b in LABEL for n in names):
            ax, first = axes[at], at % len(names) == 0
            part = table[(table.workload == name) & (table.budget == budget)]
            lines(ax, part, "percent", "recall", "policy")
            title = f"{name} ({LABELS[name]}): equal {budget}"
            finish(ax, title, LABEL[budget], "recall" if first else "", ylim=(0, 1.02))
            log_x(ax, [100 * size for size in sizes])
        one_legend(drawing, axes)
        return drawing

    return Figure(
        "equal-bytes",
        "Recall in equal memory",
        "left open in section 5",
        trials,
        lambda table: draw(table.assign(percent=100 * table.share)),
        judge,
        note="A budget in bytes counts tables, triples and scores; a fifth of PROB's is a sketch of counts. "
        "A policy whose tables alone are larger finds nothing.",
    )


def judge(table: Any) -> list[Claim]:
    """Whether scores take room, and whether CLOCK is still ahead where it is with equal tuples."""
    cells = ["workload", "share"]
    held = table[table.budget == "bytes"].pivot(index=cells, columns="policy", values="tuples")
    room = held.div(held["fifo"], axis=0).mean()
    shown = ", ".join(
        f"{policy} {room[policy]:.0%}" for policy in POLICIES if policy not in ("fifo", "clock")
    )
    found = []
    for rival, more in (("fifo", f" (others: {shown})"), ("lru", "")):
        fewer = held["clock"] < held[rival]
        share = (held["clock"] / held[rival].clip(lower=1)).mean()
        found.append(
            Claim(
                f"CLOCK invests memory in scores: {rival.upper()} may cache more in the same memory",
                f"CLOCK has {share:.0%} of its tuples, fewer at {fewer.sum()} of {len(held)} sizes{more}",
                bool(fewer.all()),
            )
        )
    for name, part in table.groupby("workload", sort=False):
        by = part.pivot(index=["budget", "share"], columns="policy", values="recall")
        for rival in RIVALS:
            ahead = by["clock"] - by[rival]
            tuples, taken = ahead["tuples"], ahead["bytes"]
            lead = tuples[tuples > 0].index
            kept = int((taken[lead] > 0).sum())
            found.append(
                Claim(
                    f"{name}: (ours) scores do not cost CLOCK its lead over {rival.upper()}",
                    f"ahead at {len(lead)} of {len(tuples)} sizes with equal tuples, {tuples.mean():+.3f} "
                    f"recall on average; at {kept} of these with equal bytes, {taken.mean():+.3f}",
                    kept == len(lead) if len(lead) else None,
                )
            )
    return found
