"""What the batches of a join add up to, and the advice that follows from it."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Any

from penstock.spark.figures import MOST, Figures

REMEMBERED = 1_000  # batches in the history
HOT = 4.0  # a bucket with more than this many times its share of the evictions is worth a word


class Tally:
    """What the batches of a join add up to.

    >>> from penstock.spark.tally import Tally
    >>> tally = Tally()
    >>> row = {"bucket": 0, "results": 30, "missed": 10.0, "evicted_left": 7, "buffered_left": 4}
    >>> tally.add(row | {"buckets": [row]}, batch=0)
    >>> tally.totals()["results"], tally.totals()["recall"], tally.totals()["evicted_per_bucket"]
    (30, 0.75, {0: 7})
    """

    def __init__(self) -> None:
        self.history: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        self._sums = Figures()
        self._batches = 0
        self._rows = 0
        self._first, self._until = math.inf, -math.inf  # when the first batch began and the last one ended
        self._last: dict[int, dict[str, Any]] = {}  # of each bucket, what it last said
        self._evicted: Counter[int] = Counter()
        self._hits = self._requests = self._malformed = 0  # of lookups
        self._waiting: dict[str, int] = {}  # in queues, after the last batch

    def add(self, figures: dict[str, Any], **about: Any) -> None:
        """One more batch: its figures as `figures_of` gives them, and what else is known of it."""
        buckets = figures.get("buckets") or []
        for each in buckets:
            self._last[each["bucket"]] = each
            self._evicted[each["bucket"]] += _evicted(each)
        batch = Figures.from_flat(figures)
        # A bucket without rows says nothing, and keeps what it had.
        last = [Figures.from_flat(each) for each in self._last.values()]
        batch.buffered = {name: sum(each.buffered.get(name, 0) for each in last) for name in batch.buffered}
        for name in MOST:
            setattr(batch, name, sum(getattr(each, name) for each in last))
        self._sums.add(batch)
        self._batches += 1
        self._rows += about.get("rows", 0)
        self._hits += about.get("hits", 0)
        self._requests += about.get("requests", 0)
        self._malformed += about.get("malformed", 0)
        self._waiting = about.get("waiting", self._waiting)
        if "began" in about:
            self._first = min(self._first, about["began"])
            self._until = max(self._until, about["began"] + about["seconds"])
        evicted = {each["bucket"]: _evicted(each) for each in buckets}
        self.history.append(
            about
            | batch.flat()
            | {
                "recall": recall(batch.results, batch.missed),
                "overall_recall": recall(self._sums.results, self._sums.missed),
            }
            | _hottest(evicted)
        )

    def totals(self) -> dict[str, Any]:
        """The figures of all batches; of what is buffered the last, of the bytes the most."""
        elapsed = self._until - self._first
        return self._sums.flat() | {
            "batches": self._batches,
            "rows": self._rows,
            "rows_per_second": self._rows / elapsed if elapsed > 0 else None,
            "hits": self._hits,
            "requests": self._requests,
            "malformed": self._malformed,
            "waiting": dict(self._waiting),
            "recall": recall(self._sums.results, self._sums.missed),
            **_hottest(self._evicted),
            "evicted_per_bucket": dict(sorted(self._evicted.items())),
            "advice": self.advice(),
        }

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(self._sums.buffered)

    def advice(self) -> str | None:
        """What to do if one bucket has far more than its share of the evictions."""
        bucket, share = _hottest(self._evicted).values()
        times = share * len(self._evicted)
        if times <= HOT:
            return None
        return (
            f"Bucket {bucket} has {100 * share:.0f} % of all evictions, {times:.1f} times its share. More "
            "memory helps. If the bucket has many keys, so do more buckets; they do not if one key is that "
            "hot. Such a key can be salted: a random number below n beside the key on one side, and each row "
            "n times, once with each of these numbers, on the other."
        )


def recall(results: int, missed: float | None) -> float | None:
    """The estimated share of the exact results that was found; 1 where there are none, None if unknown.

    >>> from penstock.spark.tally import recall
    >>> recall(30, 10.0), recall(5, -2.0), recall(0, 0.0), recall(7, None)
    (0.75, 1.0, 1.0, None)
    """
    if missed is None:
        return None
    exact = results + max(0.0, missed)
    return results / exact if exact > 0 else 1.0


def _evicted(figures: dict[str, Any]) -> int:
    """Rows that a bucket has evicted, of all streams."""
    return sum(Figures.from_flat(figures).evicted.values())


def _hottest(evicted: dict[int, int]) -> dict[str, Any]:
    """The bucket with the most evictions, and its share of them."""
    whole = sum(evicted.values())
    if not whole:
        return {"hottest_bucket": None, "hottest_share": 0.0}
    bucket = max(evicted, key=lambda each: evicted[each])
    return {"hottest_bucket": bucket, "hottest_share": evicted[bucket] / whole}
