"""The peak need of the exact join, and the notes of a plan about need and allocation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from penstock.engine.store import LANDMARK, ROWS
from penstock.joins.arrivals import Arrivals
from penstock.joins.plan_result import PlanRow
from penstock.window import Resolved

FAR_BELOW = 0.1  # difference in recall that causes a note on the allocation


def peak_need(arrivals: Arrivals, window: Resolved) -> int:
    """Return the maximum number of tuples in the windows at once; a pool of that size evicts nothing.

    >>> import penstock as ps
    >>> from penstock.joins.arrivals import arrivals_of
    >>> from penstock.joins.need import peak_need
    >>> left, right = {"key": [1] * 5, "ts": [0, 50, 51, 52, 99]}, {"key": [1], "ts": [53]}
    >>> peak_need(arrivals_of(left, right, "key", "ts", "ms"), ps.Within(9, 9).resolve("ms"))
    4
    """
    if not len(arrivals):
        return 0
    held = np.zeros(len(arrivals), np.int64)
    for stream, horizon in enumerate(window.horizons):
        mine = arrivals.stream == stream
        arrived = np.cumsum(mine)
        if window.kind == ROWS:
            held += np.minimum(arrived, horizon + 1)
            continue
        now = arrivals.time
        if window.kind == LANDMARK:
            now = now // horizon
            first = now
        else:
            first = now - min(horizon, arrivals.span)  # a longer horizon keeps all, and might exceed 64 bits
        held += arrived - np.searchsorted(now[mine], first, side="left")
    return int(held.max())


def need_note(need: int, peak: int, rows: Sequence[PlanRow]) -> str | None:
    """Return a note if 100 % of the need is not enough for all results.

    >>> from penstock.joins.need import need_note
    >>> need_note(40, 40, []) is None
    True
    >>> need_note(10, 25, []).partition(":")[0]
    '100 % of the need may not be enough for all results'
    """
    if peak <= need:
        return None
    whole = [row.recall for row in rows if row.tuples == need and not row.bound]
    if whole and max(whole) >= 1:
        return None
    times = f", {peak / need:.1f} times as many" if need else ""
    verb = "is not" if whole else "may not be"
    most = f" The best recall in {need:,} tuples is {_percent(max(whole))}." if whole else ""
    return (
        f"100 % of the need {verb} enough for all results: it is the average, {need:,} tuples, and up to "
        f"{peak:,} are in the windows at once{times}.{most} One pool of {peak:,} tuples loses nothing."
    )


def allocation_note(
    rows: Sequence[PlanRow], divided: dict[str, str], rerun: Callable[[PlanRow, str], float]
) -> str | None:
    """Return a note on a policy that is far below another because its memory is divided.

    `divided` has the allocation of each policy that cannot manage one pool. Whether the division is the
    cause is measured: `rerun` returns the recall of another run under that allocation.
    """
    worst: tuple[float, PlanRow, PlanRow] | None = None
    for row in rows:
        others = [
            each for each in rows
            if each.budget == row.budget and each.policy not in divided and not each.bound
        ]  # fmt: skip
        if row.policy not in divided or not others:
            continue
        best = max(others, key=lambda each: each.recall)
        gap = best.recall - row.recall
        if gap >= FAR_BELOW and (worst is None or gap > worst[0]):
            worst = gap, row, best
    if worst is None:
        return None
    gap, row, best = worst
    allocation = divided[row.policy]
    alike = rerun(best, allocation)
    if best.recall - alike < gap / 2:
        return None
    return (
        f"{row.policy} is far below {best.policy} in {row.budget} ({_percent(row.recall)} against "
        f"{_percent(best.recall)}) because of its allocation: it cannot manage one pool, so its memory is "
        f"divided between the streams ({allocation!r}), while {best.policy} shares one pool (unified). "
        f"With divided memory, {best.policy} reaches {_percent(alike)}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
