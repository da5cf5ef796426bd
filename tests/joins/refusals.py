"""What a refusal is: an error of the right kind, with words that help."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import PenstockError

GOOD: dict[str, Any] = {"within": 10, "budget": ps.Tuples(4), "policy": "fifo"}
TABLE = {"key": [1, 2], "ts": [0, 1]}


def refuse(error: type[Exception], *words: str, **changes: Any) -> None:
    """A join with these changes is refused when it is built, in a message with all these words."""
    with pytest.raises(error) as caught:
        ps.WindowJoin(**(GOOD | changes))
    assert_says(caught.value, *words)


def refuse_run(
    error: type[Exception],
    *words: str,
    left: Any = None,
    right: Any = None,
    on: Any = "key",
    time: Any = "ts",
    **changes: Any,
) -> None:
    """The join can be built, but not run on these streams."""
    join = ps.WindowJoin(**(GOOD | changes))
    with pytest.raises(error) as caught:
        join.run(TABLE if left is None else left, TABLE if right is None else right, on=on, time=time)
    assert_says(caught.value, *words)


def assert_says(error: Exception, *words: str) -> None:
    assert isinstance(error, PenstockError)
    for word in words:
        assert word in str(error), f"{word!r} is not in: {error}"
