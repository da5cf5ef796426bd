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
from penstock.patterns.caching import Caching, Result
from penstock.patterns.iterative import Ends
from penstock.patterns.show import label


@dataclass
class Partition:
    """The results of a sub-query for one key."""

    left: int  # results begin after this position
    right: int  # and are complete up to, without, this one: the paper's rightBound
    results: list[Result] = field(default_factory=list)

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


class ObjectCaching(Caching):
    """Evaluates a pattern with object caches."""

    name = "object"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.partitions: dict[tuple[Any, ...], Partition] = {}

    def results(self, part: Node, low: int, high: int, since: int) -> Iterator[Ends]:
        """The results of a nested part, from its partition."""
        key = self._key(part)
        if key is None or high - low < 2:
            return iter(())
        name = (self.layout.number[id(part)], *key)
        partition = self._loaded(name, part, low, high)
        wanted = [r for r in partition.results if low < r.start and since <= r.end < high]
        return self.bound(part, iter(wanted))

    def count(self, part: Node, low: int, high: int) -> int:
        """How many results lie in an interval: one scan."""
        key = self._key(part)
        if key is None or high - low < 2:
            return 0
        partition = self._loaded((self.layout.number[id(part)], *key), part, low, high)
        return sum(1 for r in partition.results if low < r.start and r.end < high)

    def free(self, negation: int, node: Node, low: int, high: int) -> bool:
        """Whether no kept result of a negated part lies in an interval."""
        name = (self.layout.number[id(node)], *self._negation_key(negation))
        partition = self._loaded(name, node, low, high)
        return not any(low < r.start and r.end < high for r in partition.results)

    def _loaded(self, name: tuple[Any, ...], part: Node, low: int, high: int) -> Partition:
        """The partition, complete for an interval."""
        partition = self.partitions.get(name)
        if partition is not None and low >= partition.left:
            if high <= partition.right:
                self.pool.hits += 1
                self.pool.use(name)
                return partition
            self.pool.partial += 1
            self.pool.use(name)
            partition.results += self.compute(part, max(partition.left, self.base - 1), high, partition.right)
            partition.right = high
        else:
            self.pool.computed += 1
            left = min(low, self.window)
            partition = self.partitions[name] = Partition(
                left, high, list(self.compute(part, left, high, -1))
            )
        for gone in self.pool.store(name, partition.bytes):
            self.partitions.pop(gone, None)
        return partition

    def _purge(self) -> None:
        for name, partition in list(self.partitions.items()):
            if partition.right <= self.base:
                del self.partitions[name]
                self.pool.drop(name)
                continue
            partition.left = max(partition.left, self.base - 1)
            partition.results = [r for r in partition.results if r.start >= self.base]
            self.pool.store(name, partition.bytes)

    def contents(self) -> list[ObjectCache]:
        """What the caches hold now."""
        parts = {number: node for node, number in self.layout.nodes()}
        return [
            ObjectCache(label(self.analysis, parts[name[0]]), name[1:], self.time_of(p.right), len(p.results))
            for name, p in self.partitions.items()
        ]
