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

from penstock.patterns.compile.analysis import EVENT, Node
from penstock.patterns.compile.show import label
from penstock.patterns.published.cache_pool import ENTRY_BYTES
from penstock.patterns.published.caching import Caching, Result, SubqueryCaches, bytes_of, labels
from penstock.patterns.published.iterative import Ends

PLACE_BYTES, RIGHT_BYTES = 500, 40  # what a place in an index takes, and the end of an interval
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
    owner: int = 0  # the pattern that began it

    @property
    def bytes(self) -> int:
        """What it takes; results that it shares with other intervals count for each of them."""
        return ENTRY_BYTES + PLACE_BYTES + bytes_of(self.results) + RIGHT_BYTES * len(self.rights)

    def extend(self, results: list[Result], upto: int) -> None:
        """Further results, by end, all with later ends; it is complete up to there with them."""
        self.results += results
        self.ends += [result.end for result in results]
        self.upto = upto

    def share(self, other: Intervals, low: int, high: int) -> None:
        """Take over what an interval that begins earlier has of results that end up to there."""
        upto = min(other.upto, high)
        first, last = bisect_left(other.ends, self.upto), bisect_left(other.ends, upto)
        self.extend([result for result in other.results[first:last] if result.start > low], upto)


@dataclass
class IntervalIndex:
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


class SemanticCaches(SubqueryCaches):
    """The intervals of all sub-queries."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.indexes: dict[tuple[Any, ...], IntervalIndex] = {}
        self.flags: dict[tuple[int, int, int], bool] = {}  # isEmpty, by sub-query and interval
        self.seen = 0  # answers from them

    def index(self, name: tuple[Any, ...]) -> IntervalIndex:
        """The intervals of a sub-query for one key."""
        found = self.indexes.get(name)
        if found is None:
            found = self.indexes[name] = IntervalIndex()
        return found

    def store(self, name: tuple[Any, ...], low: int, intervals: Intervals) -> None:
        """Intervals have grown; others may have to go for them, or themselves."""
        for evicted, left in self.pool.store((name, low), intervals.bytes):
            if evicted in self.indexes:
                self.indexes[evicted].drop(left)

    def purge(self, base: int) -> None:
        """Forget what begins before the window."""
        self.flags = {key: flag for key, flag in self.flags.items() if key[1] >= base - 1}
        for name, index in list(self.indexes.items()):
            while index.lefts and index.lefts[0] < base - 1:
                self.pool.drop((name, index.lefts[0]))
                index.drop(index.lefts[0])
            if not index.lefts:
                del self.indexes[name]

    def figures(self) -> dict[str, int]:
        """Hits, recomputations, bytes."""
        figures = super().figures()
        return figures | {"hits": figures["hits"] + self.seen}

    def contents(self, evaluations: list[Any]) -> list[SemanticCache]:
        """What the caches hold now, interval by interval."""
        parts = labels(evaluations)
        found = []
        for (number, *key), index in self.indexes.items():
            each, node = parts[number]
            for low, intervals in index.by_left.items():
                for right in intervals.rights:
                    interval = each.time_of(low), each.time_of(right)
                    size = bisect_left(intervals.ends, right)
                    said = label(each.analysis, node)
                    found.append(SemanticCache(said, tuple(key), interval, size, intervals.empty))
        return found


class SemanticCaching(Caching):
    """Evaluates a pattern with interval-driven caches."""

    name = "semantic"
    caches: SemanticCaches

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Negated sub-queries without a key: an interval that was asked for before is one look into a table.
        self.flagged: list[int | None] = []
        for negation, (sides, choices) in enumerate(self.outside):
            node = self.analysis.negations[negation]
            plain = self.kept[negation] and not sides and not choices and self.pool.budget is None
            known = plain and node.kind != EVENT
            self.flagged.append(self.parts[id(node)].number if known else None)

    def results(self, part: Node, low: int, high: int, since: int) -> Iterator[Ends]:
        """The results of a nested part, from the intervals that cover its window."""
        found = self._covered(part, low, high)
        if found is None:
            return iter(())
        wanted = found.results[bisect_left(found.ends, since) : bisect_left(found.ends, high)]
        return self.bound(part, wanted)

    def count(self, part: Node, low: int, high: int) -> int:
        """How many results an interval has: a search among the ends."""
        found = self._covered(part, low, high)
        return 0 if found is None else bisect_left(found.ends, high)

    def _covered(self, part: Node, low: int, high: int) -> Intervals | None:
        """The intervals that begin at an event, complete up to another."""
        name = self._name(self.parts[id(part)])
        if name is None or high - low < 2:
            return None
        index = self.caches.index(name)
        mine = index.by_left.get(low)
        if mine is not None:
            self.pool.use((name, low))
            self.caches.shared += mine.owner != self.number
            if high <= mine.upto:
                self.pool.hits += 1
                return mine
        mine = self._grown(index, mine, part, low, high)
        if low not in index.by_left:
            index.add(low, mine)
        self.caches.store(name, low, mine)
        return mine

    def _grown(
        self, index: IntervalIndex, mine: Intervals | None, part: Node, low: int, high: int
    ) -> Intervals:
        """Complete an interval from those that begin earlier, as far as they reach, and compute the rest."""
        begun = mine is not None
        if mine is None:
            mine = Intervals(low, owner=self.number)
        best = None
        for other in index.before(low):
            if best is None or other.upto > best.upto:
                best = other
            if other.upto >= high:
                break
        if best is not None and best.upto > max(mine.upto, low + 1):
            mine.share(best, low, high)
            self.caches.shared += best.owner != self.number
            begun = True
        if mine.upto >= high:
            self.pool.hits += 1
        else:
            if begun:
                self.pool.partial += 1
            else:
                self.pool.computed += 1
            results = self.compute(part, low, high, mine.upto)
            results.sort(key=lambda result: result.end)
            mine.extend(results, high)
        mine.rights.append(high)
        return mine

    def free(self, negation: int, node: Node, low: int, high: int) -> bool:
        """Whether a negated part is empty in an interval: from its flags, or found out."""
        name = self._negation_name(negation, node)
        index = self.caches.index(name)
        mine = index.by_left.get(low)
        if mine is None:
            mine = Intervals(low + 1, empty=True, owner=self.number)
            for other in index.before(low):
                mine.upto = max(mine.upto, other.upto)
                if other.hit is not None and other.hit[0] > low:
                    mine.hit = other.hit
                    break
            index.add(low, mine)
            self.caches.store(name, low, mine)
        if high <= mine.upto or (mine.hit is not None and mine.hit[1] < high):
            self.pool.hits += 1
            self.pool.use((name, low))
            self.caches.shared += mine.owner != self.number
            return high <= mine.upto
        if mine.upto > low + 1:
            self.pool.partial += 1
        else:
            self.pool.computed += 1
        found = next(iter(self.compute(node, low, high, mine.upto, negated=True)), None)
        if found is None:
            mine.upto = high
            mine.rights.append(high)
            self.caches.store(name, low, mine)
        else:
            mine.hit, mine.empty = (found.start, found.end), False
        return found is None

    def absent(self, negation: int, low: int, high: int) -> bool:
        """Whether a negated part is empty, from the table of flags if it was asked before."""
        number = self.flagged[negation]
        if number is None:
            return super().absent(negation, low, high)
        flags = self.caches.flags
        flag = flags.get((number, low, high))
        if flag is not None:
            self.caches.seen += 1
            return flag
        flag = high - low < 2 or self.free(negation, self.analysis.negations[negation], low, high)
        flags[number, low, high] = flag
        return flag
