"""The strategy `semantic`: section IV of the paper, results with the intervals they are complete for.

Intervals that begin at the same event share one list of results in the order of their ends: a shorter
interval is a prefix of it. An index of beginnings finds, for an interval, one that contains it (an answer),
or one that it overlaps to the right (the rest is computed). An interval that is only overlapped by a later
one is computed whole: results may cross its end.

Of a negated sub-query nothing is kept but up to where it `isEmpty`, and its first counterexample.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.patterns.analysis import Node
from penstock.patterns.cache_pool import ENTRY_BYTES, RESULT_BYTES
from penstock.patterns.caching import Caching, Result
from penstock.patterns.iterative import Ends
from penstock.patterns.show import label

NEIGHBOURS = 4  # earlier beginnings that are looked at


@dataclass
class Intervals:
    """All intervals that begin at one event."""

    upto: int  # results are complete up to, without, this position
    results: list[Result] = field(default_factory=list)  # by end
    ends: list[int] = field(default_factory=list)
    rights: list[int] = field(default_factory=list)  # where the intervals end
    empty: bool | None = None  # of a negated sub-query: whether nothing was found up to there
    hit: Ends | None = None  # its first counterexample

    @property
    def bytes(self) -> int:
        """About what it takes."""
        return ENTRY_BYTES + RESULT_BYTES * len(self.results)

    def extend(self, results: list[Result], right: int) -> None:
        """Further results, all with later ends, and the interval for which they complete it."""
        results.sort(key=lambda result: result.end)
        self.results += results
        self.ends += [result.end for result in results]
        self.upto = right
        self.rights.append(right)


@dataclass
class Index:
    """The intervals of a sub-query for one key, by where they begin."""

    by_left: dict[int, Intervals] = field(default_factory=dict)
    lefts: list[int] = field(default_factory=list)

    def before(self, left: int) -> Iterator[Intervals]:
        """Intervals that begin earlier, the nearest first."""
        at = bisect_left(self.lefts, left)
        for i in range(at - 1, max(-1, at - 1 - NEIGHBOURS), -1):
            yield self.by_left[self.lefts[i]]

    def add(self, left: int, intervals: Intervals) -> None:
        """Intervals with a new beginning."""
        self.by_left[left] = intervals
        insort(self.lefts, left)

    def drop(self, left: int) -> None:
        """Forget the intervals that begin here."""
        if self.by_left.pop(left, None) is not None:
            del self.lefts[bisect_left(self.lefts, left)]


@dataclass(frozen=True)
class SemanticCache:
    """A cache interval, in times: of results, or of a negated sub-query whether it is empty."""

    subquery: str
    key: tuple[Any, ...]
    interval: tuple[Any, Any]
    results: int
    empty: bool | None = None


class SemanticCaching(Caching):
    """Evaluates a pattern with interval-driven caches."""

    name = "semantic"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.indexes: dict[tuple[Any, ...], Index] = {}
        self.flags: dict[tuple[int, int, int], bool] = {}  # isEmpty, by negation and interval
        self.seen = 0  # answers from them
        self.plain = [not sides and not choices for sides, choices in self.outside]

    def results(self, part: Node, low: int, high: int, since: int) -> Iterator[Ends]:
        """The results of a nested part, from the intervals that cover its window."""
        found = self._covered(part, low, high)
        if found is None:
            return iter(())
        wanted = found.results[bisect_left(found.ends, since) : bisect_left(found.ends, high)]
        return self.bound(part, iter(wanted))

    def count(self, part: Node, low: int, high: int) -> int:
        """How many results an interval has: a search among the ends."""
        found = self._covered(part, low, high)
        return 0 if found is None else bisect_left(found.ends, high)

    def _covered(self, part: Node, low: int, high: int) -> Intervals | None:
        key = self._key(part)
        if key is None or high - low < 2:
            return None
        name = (self.layout.number[id(part)], *key)
        index = self.indexes.get(name)
        if index is None:
            index = self.indexes[name] = Index()
        mine = index.by_left.get(low)
        if mine is not None and high <= mine.upto:
            self.pool.hits += 1
            self.pool.use((name, low))
            return mine
        if mine is not None:
            self.pool.partial += 1
            self.pool.use((name, low))
            mine.extend(list(self.compute(part, low, high, mine.upto)), high)
        else:
            mine = self._started(index, part, low, high)
            index.add(low, mine)
        self._store(name, low, mine)
        return mine

    def _started(self, index: Index, part: Node, low: int, high: int) -> Intervals:
        """Intervals with a new beginning: from one that contains it, from one it overlaps, or computed."""
        best = None
        for other in index.before(low):
            if other.upto > low + 1 and (best is None or other.upto > best.upto):
                best = other
            if other.upto >= high:
                break
        mine = Intervals(low)
        if best is None:
            self.pool.computed += 1
            mine.extend(list(self.compute(part, low, high, -1)), high)
            return mine
        shared = [result for result in best.results if result.start > low]
        if best.upto >= high:
            self.pool.hits += 1
            mine.extend([result for result in shared if result.end < high], high)
            return mine
        self.pool.partial += 1
        mine.extend(shared, best.upto)
        mine.rights.clear()
        mine.extend(list(self.compute(part, low, high, best.upto)), high)
        return mine

    def free(self, negation: int, node: Node, low: int, high: int) -> bool:
        """Whether a negated part is empty in an interval: from its flags, or found out."""
        name = (self.layout.number[id(node)], *self._negation_key(negation))
        index = self.indexes.get(name)
        if index is None:
            index = self.indexes[name] = Index()
        mine = index.by_left.get(low)
        if mine is None:
            mine = Intervals(low + 1, empty=True)
            for other in index.before(low):
                mine.upto = max(mine.upto, other.upto)
                if other.hit is not None and other.hit[0] > low:
                    mine.hit = other.hit
                    break
            index.add(low, mine)
            self._store(name, low, mine)
        if high <= mine.upto or (mine.hit is not None and mine.hit[1] < high):
            self.pool.hits += 1
            self.pool.use((name, low))
            return high <= mine.upto
        if mine.upto > low + 1:
            self.pool.partial += 1
        else:
            self.pool.computed += 1
        found = next(self.compute(node, low, high, mine.upto, negated=True), None)
        if found is None:
            mine.upto = high
            mine.rights.append(high)
        else:
            mine.hit, mine.empty = (found.start, found.end), False
        return found is None

    def figures(self) -> dict[str, int]:
        """Hits, recomputations, bytes."""
        figures = super().figures()
        return figures | {"hits": figures["hits"] + self.seen}

    def absent(self, negation: int, low: int, high: int) -> bool:
        """An interval that was asked for before, where no key matters, is one look into a table."""
        flag = self.flags.get((negation, low, high))
        if flag is not None:
            self.seen += 1
            return flag
        flag = super().absent(negation, low, high)
        if self.kept[negation] and self.plain[negation] and self.pool.budget is None:
            self.flags[negation, low, high] = flag
        return flag

    def _store(self, name: tuple[Any, ...], low: int, intervals: Intervals) -> None:
        for gone, left in self.pool.store((name, low), intervals.bytes):
            if gone in self.indexes:
                self.indexes[gone].drop(left)

    def _purge(self) -> None:
        self.flags = {key: flag for key, flag in self.flags.items() if key[1] >= self.base - 1}
        for name, index in list(self.indexes.items()):
            while index.lefts and index.lefts[0] < self.base - 1:
                self.pool.drop((name, index.lefts[0]))
                index.drop(index.lefts[0])
            if not index.lefts:
                del self.indexes[name]

    def contents(self) -> list[SemanticCache]:
        """What the caches hold now, interval by interval."""
        parts = {number: node for node, number in self.layout.nodes()}
        return [
            SemanticCache(
                label(self.analysis, parts[name[0]]),
                name[1:],
                (self.time_of(low), self.time_of(right)),
                bisect_left(intervals.ends, right),
                intervals.empty,
            )
            for name, index in self.indexes.items()
            for low, intervals in index.by_left.items()
            for right in intervals.rights
        ]
