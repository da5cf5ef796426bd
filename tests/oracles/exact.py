"""The exact join: every left row is compared with every right row."""

from __future__ import annotations

from typing import Any


def exact_pairs(
    left: list[Any], right: list[Any], within: Any, warmup: int = 0, step: str = "arrival"
) -> list[tuple[int, int]]:
    """All (left row, right row) that join, in the order in which an unbounded join finds them.

    A pair is found in the step of the later of the two; those of the first `warmup` steps are left
    out. Null keys join nothing and are no arrivals.
    """
    # Order of processing: time, left before right, row.
    order = sorted(
        (time, s, row)
        for s, stream in enumerate((left, right))
        for row, (time, key) in enumerate(stream)
        if key is not None
    )
    times = sorted({time for time, _, _ in order})
    position = {(s, row): i for i, (_, s, row) in enumerate(order)}
    step_of = {(s, row): times.index(time) if step == "tick" else i for i, (time, s, row) in enumerate(order)}

    found = []
    for i, (left_time, left_key) in enumerate(left):
        for j, (right_time, right_key) in enumerate(right):
            if left_key is None or right_key is None or left_key != right_key:
                continue
            earlier, later = sorted([(0, i), (1, j)], key=position.__getitem__)
            same_step = step_of[earlier] == step_of[later]
            if step_of[later] < warmup:
                continue
            if isinstance(within, tuple) and within[0] == "rows":
                # Of the earlier one's stream, fewer than n arrived since, the step included.
                since = [
                    other
                    for other in position
                    if other[0] == earlier[0]
                    and position[other] > position[earlier]
                    and step_of[other] <= step_of[later]
                ]
                joins = same_step or len(since) < within[1]
            elif isinstance(within, tuple) and within[0] == "landmark":
                joins = left_time // within[1] == right_time // within[1]
            else:
                before, after = within if isinstance(within, tuple) else (within, within)
                joins = right_time - left_time <= after and left_time - right_time <= before
            if joins:
                # Within a step the buffer is probed before the arrivals match each other.
                when = (step_of[later], same_step, position[later], position[earlier])
                found.append((when, (i, j)))
    return [pair for _, pair in sorted(found)]
