"""`Pattern`: a nested complex-event query, from text or built in Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import PatternError
from penstock.patterns.compile.analysis import Analysis, analyse
from penstock.patterns.compile.show import explain, to_dot
from penstock.patterns.language.nodes import Attr, E, Group, Part, ReturnItem
from penstock.patterns.language.parser import parse_pattern
from penstock.patterns.language.span import Span, span_of
from penstock.patterns.options import PatternOptions

if TYPE_CHECKING:
    from penstock.columns import Table
    from penstock.patterns.result import PatternRun
    from penstock.patterns.state import PatternState


@dataclass(frozen=True)
class Pattern:
    """Events that follow each other, occur together or are absent, within a window.

    Parameters
    ----------
    expression
        `Seq`, `And`, `Or` or `E`; negations are `Not` inside of them.
    within
        A duration, a number in the unit of the time column, or `"500 events"`.
    returns
        What to return: names of variables, or `"a.price AS paid"`. Default: all variables.

    Examples
    --------
    >>> import penstock as ps
    >>> pattern = ps.Pattern.parse("PATTERN SEQ(Wash w, !Dry, Operate o, w.tool = o.tool) WITHIN 1 hour")
    >>> events = {
    ...     "type": ["Wash", "Dry", "Wash", "Operate", "Operate"],
    ...     "ts": [0, 1_000, 2_000, 3_000, 4_000],
    ...     "tool": [1, 1, 2, 1, 2],
    ... }
    >>> pattern.run(events).matches.to_pylist()
    [{'w': 2, 'o': 4}]
    >>> str(pattern)
    'PATTERN SEQ(Wash w, !Dry, Operate o, w.tool = o.tool) WITHIN 1 hour'
    """

    expression: Part
    within: Span
    returns: tuple[ReturnItem, ...] = ()
    analysis: Analysis = field(init=False, repr=False, compare=False)

    def __init__(self, expression: Part, within: Any = None, returns: Any = ()) -> None:
        if not isinstance(expression, E | Group):
            raise PatternError(
                f"A pattern is a Seq, And, Or or E; {expression!r} was given, which is something else or a "
                "negation. Use Pattern.parse for text."
            )
        object.__setattr__(self, "expression", expression)
        object.__setattr__(self, "within", span_of(within))
        object.__setattr__(self, "returns", _items(returns))
        object.__setattr__(self, "analysis", analyse(expression, self.returns))

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Parse a pattern from its text.

        >>> import penstock as ps
        >>> ps.Pattern.parse("PATTERN AND(A, !B, C) WITHIN 500 EVENTS RETURN A, C.price AS price").returns[
        ...     1
        ... ].name
        'price'
        """
        parsed = parse_pattern(text)
        try:
            return cls(*parsed)
        except PatternError as error:
            raise error.shown(text) from None

    def __str__(self) -> str:
        returned = f" RETURN {', '.join(map(str, self.returns))}" if self.returns else ""
        return f"PATTERN {self.expression} WITHIN {self.within}{returned}"

    @property
    def variables(self) -> list[str]:
        """The variables of a match, in the order of the text.

        >>> import penstock as ps
        >>> ps.Pattern.parse("PATTERN SEQ(UP, !DOWN, UP) WITHIN 5").variables
        ['UP', 'UP_2']
        """
        return [slot.name for slot in self.analysis.columns]

    def explain(self) -> str:
        """Return the plan as text.

        >>> import penstock as ps
        >>> print(ps.Pattern.parse("PATTERN SEQ(A a, !B, C c, a.x > 3) WITHIN 1 s").explain())
        PATTERN SEQ(A a, !B, C c, a.x > 3) WITHIN 1 s
        window: 1 s between the first and the last event (times)
        SEQ
          A as a  [a.x > 3]
          none of (after a, before c) B as B
          C as c
        """
        return explain(self.analysis, self.within, str(self))

    def to_dot(self) -> str:
        """Return the pattern as a Graphviz graph.

        >>> import penstock as ps
        >>> ps.Pattern.parse("PATTERN SEQ(A, B) WITHIN 5").to_dot().splitlines()[0]
        'digraph pattern {'
        """
        return to_dot(self.analysis)

    def run(
        self,
        events: Table,
        type: str = "type",
        time: str = "ts",
        *,
        strategy: str = "columnar",
        unit: str = "ms",
        count_only: bool = False,
        limit: int | None = None,
        max_events: int | None = None,
        budget: Any = None,
        policy: Any = None,
        seed: int | None = None,
    ) -> PatternRun:
        """Find all matches in a table of events.

        `type` and `time` name its columns; `unit` is the unit of numeric times. `count_only` counts without
        building matches. `limit` stops the search after that many matches, the first of the result;
        `stats.cut` is then 1 if there are more. `max_events` raises an error rather than hold more events.
        `budget` (bytes), `policy` (default `lru`) and `seed` (default 0) are for the caches of the strategies
        `object` and `semantic`; other strategies reject them, and a policy or a seed needs a budget.

        >>> import penstock as ps
        >>> events = {"type": ["A", "B", "A", "B"], "ts": [0, 1, 2, 3]}
        >>> run = ps.Pattern.parse("PATTERN SEQ(A, B) WITHIN 2").run(events)
        >>> run.matches.to_pylist(), run.stats.matches
        ([{'A': 0, 'B': 1}, {'A': 2, 'B': 3}], 2)
        """
        state = self.start(
            type,
            time,
            strategy=strategy,
            unit=unit,
            count_only=count_only,
            limit=limit,
            max_events=max_events,
            budget=budget,
            policy=policy,
            seed=seed,
        )
        return state.whole(events)

    def start(
        self,
        type: str = "type",
        time: str = "ts",
        *,
        strategy: str = "columnar",
        unit: str = "ms",
        count_only: bool = False,
        limit: int | None = None,
        max_events: int | None = None,
        budget: Any = None,
        policy: Any = None,
        seed: int | None = None,
    ) -> PatternState:
        """Return a state that takes events in batches, for unbounded streams.

        >>> import penstock as ps
        >>> state = ps.Pattern.parse("PATTERN SEQ(A, B) WITHIN 2").start()
        >>> state.process({"type": ["A"], "ts": [0]}).num_rows
        0
        >>> state.process({"type": ["B"], "ts": [1]}).to_pylist()
        [{'A': 0, 'B': 1}]
        """
        from penstock.patterns.state import PatternState

        return PatternState(
            self,
            PatternOptions(
                type=type,
                time=time,
                strategy=strategy,
                unit=unit,
                count_only=count_only,
                limit=limit,
                max_events=max_events,
                budget=budget,
                policy=policy,
                seed=seed,
            ),
        )


def _items(given: Any) -> tuple[ReturnItem, ...]:
    """Parse RETURN items from texts, attributes or items."""
    if not isinstance(given, str | Attr | ReturnItem | Iterable):
        raise PatternError(f"returns takes variables such as 'a' or 'a.price AS paid'; {given!r} was given.")
    parts = [given] if isinstance(given, str | Attr | ReturnItem) else list(given)
    items: list[ReturnItem] = []
    for part in parts:
        if isinstance(part, str):
            _, _, found = parse_pattern(f"PATTERN A WITHIN 1 RETURN {part}")
            items += found
        elif isinstance(part, Attr):
            items.append(ReturnItem(part))
        elif isinstance(part, ReturnItem):
            items.append(part)
        else:
            raise PatternError(
                f"returns takes variables such as 'a' or 'a.price AS paid'; {part!r} was given."
            )
    return tuple(items)
