"""The strategy `object`: section III of the paper, a list of results per sub-query, complete up to a bound.

A cache has a partition for each combination of values of its correlated equality predicates. A partition
holds every result that ends before its `rightBound`. A sub-query that reaches further first computes the
results that end between the two, then scans those that end in its interval: the list is in the order of
ends, so they lie side by side. Results leave as the window slides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from penstock.patterns.compile.analysis import Node
from penstock.patterns.compile.show import label
from penstock.patterns.published.cache_pool import ENTRY_BYTES
from penstock.patterns.published.caching import Caching, Result, SubqueryCaches, bytes_of, labels
from penstock.patterns.published.iterative import Ends

END = attrgetter("end")


@dataclass
class Partition:
    """The results of a sub-query for one key."""

    left: int  # results begin after this position
    right: int  # and are complete up to, without, this one: the paper's rightBound
    results: list[Result] = field(default_factory=list)  # in the order of their ends
    owner: int = 0  # the pattern that began it

    def extend(self, right: int, results: list[Result]) -> None:
        """Complete it up to a position with the results that end from the old bound on."""
        self.results += sorted(results, key=END)
        self.right = right

    def inside(self, low: int, high: int, since: int = -1) -> list[Result]:
        """The results in an open interval that do not end before `since`."""
        first = bisect_left(self.results, max(since, low + 1), key=END)
        last = bisect_left(self.results, high, first, key=END)
        return [each for each in self.results[first:last] if low < each.start]

    @property
    def bytes(self) -> int:
        """What it takes."""
        return ENTRY_BYTES + bytes_of(self.results)


@dataclass(frozen=True)
class ObjectCache:
    """What the cache of a sub-query holds, in times."""

    subquery: str
    key: tuple[Any, ...]
    right_bound: Any
    results: int


class ObjectCaches(SubqueryCaches):
    """The partitions of all sub-queries."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.partitions: dict[tuple[Any, ...], Partition] = {}

    def store(self, name: tuple[Any, ...], partition: Partition) -> None:
        """A partition has grown; others may have to go for it, or itself."""
        for evicted in self.pool.store(name, partition.bytes):
            self.partitions.pop(evicted, None)

    def purge(self, base: int) -> None:
        """Forget what is behind the window."""
        for name, partition in list(self.partitions.items()):
            if partition.right <= base:
                del self.partitions[name]
                self.pool.drop(name)
                continue
            partition.left = max(partition.left, base - 1)
            partition.results = [r for r in partition.results if r.start >= base]
            self.pool.store(name, partition.bytes)

    def contents(self, evaluations: list[Any]) -> list[ObjectCache]:
        """What the caches hold now."""
        parts = labels(evaluations)
        found = []
        for (number, *key), partition in self.partitions.items():
            each, node = parts[number]
            right = each.time_of(partition.right)
            found.append(ObjectCache(label(each.analysis, node), tuple(key), right, len(partition.results)))
        return found


class ObjectCaching(Caching):
    """Evaluates a pattern with object caches."""

    name = "object"
    caches: ObjectCaches

    def results(self, part: Node, low: int, high: int, since: int) -> Iterator[Ends]:
        """The results of a nested part, from its partition."""
        name = self._name(self.parts[id(part)])
        if name is None or high - low < 2:
            return iter(())
        return self.bound(part, self._loaded(name, part, low, high).inside(low, high, since))

    def count(self, part: Node, low: int, high: int) -> int:
        """How many results lie in an interval: one scan."""
        name = self._name(self.parts[id(part)])
        if name is None or high - low < 2:
            return 0
        return len(self._loaded(name, part, low, high).inside(low, high))

    def free(self, negation: int, node: Node, low: int, high: int) -> bool:
        """Whether no kept result of a negated part lies in an interval."""
        return not self._loaded(self._negation_name(negation, node), node, low, high).inside(low, high)

    def _loaded(self, name: tuple[Any, ...], part: Node, low: int, high: int) -> Partition:
        """The partition, complete for an interval."""
        partition = self.caches.partitions.get(name)
        if partition is not None and low >= partition.left:
            self.caches.shared += partition.owner != self.number
            self.pool.use(name)
            if high <= partition.right:
                self.pool.hits += 1
                return partition
            self.pool.partial += 1
            left = max(partition.left, self.base - 1)
            partition.extend(high, self.compute(part, left, high, partition.right))
        else:
            self.pool.computed += 1
            left = min(low, self.window)
            partition = self.caches.partitions[name] = Partition(left, left, owner=self.number)
            partition.extend(high, self.compute(part, left, high, -1))
        self.caches.store(name, partition)
        return partition
