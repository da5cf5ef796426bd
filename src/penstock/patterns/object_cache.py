"""The strategy `object`: section III of the paper, a list of results per sub-query, complete up to a bound.

A cache has a partition for each combination of values of its correlated equality predicates. A partition
holds every result that ends before its `rightBound`. A sub-query that reaches further first computes the
results that end between the two, then scans the list. Results leave as the window slides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.patterns.analysis import Node
from penstock.patterns.cache_pool import ENTRY_BYTES, RESULT_BYTES
from penstock.patterns.caching import Caches, Caching, Result, labels
from penstock.patterns.iterative import Ends
from penstock.patterns.show import label


@dataclass
class Partition:
    """The results of a sub-query for one key."""

    left: int  # results begin after this position
    right: int  # and are complete up to, without, this one: the paper's rightBound
    results: list[Result] = field(default_factory=list)
    owner: int = 0  # the pattern that began it

    @property
    def bytes(self) -> int:
        """About what it takes."""
        return ENTRY_BYTES + RESULT_BYTES * len(self.results)


@dataclass(frozen=True)
class ObjectCache:
    """What the cache of a sub-query holds, in times."""

    subquery: str
    key: tuple[Any, ...]
    right_bound: Any
    results: int


class ObjectCaches(Caches):
    """The partitions of all sub-queries."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.partitions: dict[tuple[Any, ...], Partition] = {}

    def store(self, name: tuple[Any, ...], partition: Partition) -> None:
        """A partition has grown; others may have to go for it, or itself."""
        for gone in self.pool.store(name, partition.bytes):
            self.partitions.pop(gone, None)

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
        partition = self._loaded(name, part, low, high)
        return self.bound(part, [r for r in partition.results if low < r.start and since <= r.end < high])

    def count(self, part: Node, low: int, high: int) -> int:
        """How many results lie in an interval: one scan."""
        name = self._name(self.parts[id(part)])
        if name is None or high - low < 2:
            return 0
        partition = self._loaded(name, part, low, high)
        return sum(1 for r in partition.results if low < r.start and r.end < high)

    def free(self, negation: int, node: Node, low: int, high: int) -> bool:
        """Whether no kept result of a negated part lies in an interval."""
        partition = self._loaded(self._negation_name(negation, node), node, low, high)
        return not any(low < r.start and r.end < high for r in partition.results)

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
            partition.results += self.compute(part, max(partition.left, self.base - 1), high, partition.right)
            partition.right = high
        else:
            self.pool.computed += 1
            left = min(low, self.window)
            partition = Partition(left, high, self.compute(part, left, high, -1), self.number)
            self.caches.partitions[name] = partition
        self.caches.store(name, partition)
        return partition
