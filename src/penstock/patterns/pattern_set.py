"""`PatternSet`: many patterns over one stream that is read once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import PatternError, hint
from penstock.patterns.options import PatternOptions
from penstock.patterns.pattern import Pattern

if TYPE_CHECKING:
    from penstock.columns import Table
    from penstock.patterns.result import PatternRun
    from penstock.patterns.state import PatternSetState


class PatternSet:
    """Patterns that share a stream: its events are read, kept and searched for all of them together.

    Each finds what it would find alone. Common work is done once: columns, events of a slot, negated parts
    and whole alternatives under `columnar`; the results of equal sub-queries under the caching strategies.
    Parts are equal if their events, predicates and windows are; the names of variables do not matter.

    Parameters
    ----------
    patterns
        Patterns or their texts by name, or a list of them, which are then named "0", "1", ...

    Examples
    --------
    >>> import penstock as ps
    >>> shop = ps.PatternSet(
    ...     {
    ...         "lost": "PATTERN SEQ(Cart c, !Pay, Leave l, c.who = l.who = Pay.who) WITHIN 1 hour",
    ...         "quick": "PATTERN SEQ(Cart c, Pay p, c.who = p.who) WITHIN 1 minute RETURN p.who AS who",
    ...     }
    ... )
    >>> events = {
    ...     "type": ["Cart", "Cart", "Pay", "Leave", "Leave"],
    ...     "ts": [0, 5_000, 20_000, 30_000, 40_000],
    ...     "who": ["ann", "bob", "ann", "ann", "bob"],
    ... }
    >>> runs = shop.run(events)
    >>> runs["lost"].matches.to_pylist(), runs["quick"].matches.to_pylist()
    ([{'c': 1, 'l': 4}], [{'who': 'ann'}])
    """

    def __init__(self, patterns: Mapping[str, Pattern | str] | Iterable[Pattern | str]) -> None:
        if isinstance(patterns, str | Pattern):
            raise PatternError("A PatternSet takes several patterns: a list, or a mapping from names.")
        named = dict(patterns) if isinstance(patterns, Mapping) else dict(_numbered(patterns))
        if not named:
            raise PatternError("A PatternSet needs at least one pattern; none was given.")
        self.patterns: dict[str, Pattern] = {}
        for name, pattern in named.items():
            if not isinstance(pattern, str | Pattern):
                raise PatternError(f"{name}: {pattern!r} is neither a pattern nor the text of one.")
            self.patterns[str(name)] = Pattern.parse(pattern) if isinstance(pattern, str) else pattern

    def run(
        self, events: Table, type: str = "type", time: str = "ts", **options: Any
    ) -> dict[str, PatternRun]:
        """Find all matches of all patterns in a table of events; the options are those of `Pattern.run`.

        A `limit` applies to each pattern (`stats.cut` is 1 if it has more), `max_events` and `budget` to all
        together. In the stats, `matches` and `cut` are per pattern, the others are for the whole set.

        >>> import penstock as ps
        >>> pair = ps.PatternSet(["PATTERN SEQ(A, B) WITHIN 5", "PATTERN SEQ(A a, B b) WITHIN 5"])
        >>> runs = pair.run({"type": ["A", "B"], "ts": [0, 1]})
        >>> runs["0"].stats.matches, runs["1"].matches.to_pylist(), runs["1"].stats.shared > 0
        (1, [{'a': 0, 'b': 1}], True)
        """
        return self.start(type, time, **options).whole(events)

    def start(self, type: str = "type", time: str = "ts", **options: Any) -> PatternSetState:
        """Return a state that takes events in batches, for unbounded streams.

        >>> import penstock as ps
        >>> state = ps.PatternSet(["PATTERN SEQ(A, B) WITHIN 2"]).start()
        >>> state.process({"type": ["A", "B"], "ts": [0, 1]})["0"].to_pylist()
        [{'A': 0, 'B': 1}]
        """
        from penstock.patterns.state import PatternSetState

        known = [field.name for field in dataclasses.fields(PatternOptions)]
        for name in options:
            if name not in known:
                raise PatternError(f"There is no option {name!r}{hint(name, known)}")
        return PatternSetState(self.patterns, PatternOptions(type=type, time=time, **options))


def _numbered(patterns: Iterable[Pattern | str]) -> Iterable[tuple[str, Pattern | str]]:
    return ((str(i), pattern) for i, pattern in enumerate(patterns))
