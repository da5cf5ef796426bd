"""The as-of join in plain Python: for each left row, look at every right row."""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[object, float]  # key and time; None is a null key


def exact_answers(
    left: Sequence[Row],
    right: Sequence[Row],
    tolerance: float | None,
    direction: str = "backward",
    exact: bool = True,
) -> list[int | None]:
    """The right row of each left row, None if there is none.

    Of several rows of one time, `backward` takes the last and `forward` the first.
    """
    return [_answer(one, right, tolerance, direction, exact) for one in left]


def _answer(
    one: Row, right: Sequence[Row], tolerance: float | None, direction: str, exact: bool
) -> int | None:
    key, time = one
    if key is None:
        return None
    fits = [
        (number, then)
        for number, (other, then) in enumerate(right)
        if other == key and (tolerance is None or abs(then - time) <= tolerance) and (exact or then != time)
    ]
    before = [(then, number) for number, then in fits if then <= time]
    after = [(then, number) for number, then in fits if then >= time]
    back = max(before, default=None)
    ahead = min(after, default=None)
    if direction == "backward":
        chosen = back
    elif direction == "forward" or back is None or (ahead is not None and ahead[0] - time < time - back[0]):
        chosen = ahead
    else:
        chosen = back
    return None if chosen is None else chosen[1]
