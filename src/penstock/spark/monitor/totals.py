"""Add up the metrics of a join's batches, and derive advice from them."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Any

from penstock.joins.estimate import RecallEstimate, bounded_by, estimate_recall
from penstock.joins.late import MOST_LATE
from penstock.joins.sample_bias import CROWDED
from penstock.spark.runtime.figures import MOST, JoinFigures

REMEMBERED = 1_000  # batches in the history
HOT = 4.0  # a bucket with more than this many times its share of the evictions causes advice


class RunningTotals:
    """The sums of the metrics of a join's batches.

    >>> from penstock.spark.monitor.totals import RunningTotals
    >>> totals = RunningTotals()
    >>> row = {"bucket": 0, "results": 30, "missed": 10.0, "evicted_left": 7, "buffered_left": 4}
    >>> totals.add(row | {"buckets": [row]}, batch=0)
    >>> totals.totals()["results"], totals.totals()["recall"], totals.totals()["evicted_per_bucket"]
    (30, 0.75, {0: 7})
    """

    def __init__(self) -> None:
        self.history: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        self._sums = JoinFigures()
        self._batches = 0
        self._rows = 0
        self._first, self._until = math.inf, -math.inf  # start of the first batch, end of the last one
        self._last: dict[int, dict[str, Any]] = {}  # the last report of each bucket
        self._workers: dict[int, int] = {}  # the memory of each Python worker that had a bucket last
        self._worker_peak, self._worker_most = 0, 0  # of all workers together, and of one
        self._evicted: Counter[int] = Counter()
        self._hits = self._requests = self._malformed = self._failed_keys = 0  # of lookups
        self._waiting: dict[str, int] = {}  # in queues, after the last batch
        self._late_batches = 0  # batches with many late rows
        self._late = (0, 0.0)  # the last of these, and the share of its rows that were late

    def add(self, figures: dict[str, Any], **about: Any) -> None:
        """Add a batch: its metrics from `figures_of`, and further values."""
        buckets = figures.get("buckets") or []
        for each in buckets:
            self._last[each["bucket"]] = each
            self._evicted[each["bucket"]] += _evicted(each)
        batch = JoinFigures.from_flat(figures)
        # A bucket without rows does not report, and keeps its last values.
        last = [JoinFigures.from_flat(each) for each in self._last.values()]
        batch.buffered = {name: sum(each.buffered.get(name, 0) for each in last) for name in batch.buffered}
        for name in MOST:
            setattr(batch, name, sum(getattr(each, name) for each in last))
        self._sums.add(batch)
        workers = self._note_workers(buckets)
        late = late_share(batch)
        if late > MOST_LATE:
            self._late_batches, self._late = self._late_batches + 1, (about.get("batch", self._batches), late)
        self._batches += 1
        self._rows += about.get("rows", 0)
        self._hits += about.get("hits", 0)
        self._requests += about.get("requests", 0)
        self._malformed += about.get("malformed", 0)
        self._failed_keys += about.get("failed_keys", 0)
        self._waiting = about.get("waiting", self._waiting)
        if "began" in about:
            self._first = min(self._first, about["began"])
            self._until = max(self._until, about["began"] + about["seconds"])
        evicted = {each["bucket"]: _evicted(each) for each in buckets}
        self.history.append(
            about
            | _flat(batch)
            | _told("recall", recall_of(batch))
            | _told("overall_recall", recall_of(self._sums))
            | {"late_share": late}
            | workers
            | _hottest(evicted)
        )

    def _note_workers(self, buckets: list[dict[str, Any]]) -> dict[str, Any]:
        """Note the memory of the workers after a batch; return it for the history."""
        for each in buckets:
            if each.get("worker") and each.get("worker_bytes"):
                self._workers[each["worker"]] = each["worker_bytes"]
        having = {each.get("worker") for each in self._last.values()}  # a bucket
        self._workers = {number: size for number, size in self._workers.items() if number in having}
        whole, most = sum(self._workers.values()), max(self._workers.values(), default=0)
        self._worker_peak, self._worker_most = max(whole, self._worker_peak), max(most, self._worker_most)
        return {
            "workers": len(self._workers),
            "worker_bytes": whole or None,
            "worker_most_bytes": most or None,
        }

    def totals(self) -> dict[str, Any]:
        """Return the metrics of all batches: the last value for buffered rows, the maximum for bytes."""
        elapsed = self._until - self._first
        return _flat(self._sums) | {
            "batches": self._batches,
            "rows": self._rows,
            "rows_per_second": self._rows / elapsed if elapsed > 0 else None,
            "hits": self._hits,
            "requests": self._requests,
            "malformed": self._malformed,
            "failed_keys": self._failed_keys,
            "waiting": dict(self._waiting),
            **_told("recall", recall_of(self._sums)),
            "late_share": late_share(self._sums),
            "workers": dict(sorted(self._workers.items())),
            "worker_bytes": self._worker_peak or None,
            "worker_most_bytes": self._worker_most or None,
            **_hottest(self._evicted),
            "evicted_per_bucket": dict(sorted(self._evicted.items())),
            "advice": self.advice(),
        }

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(self._sums.buffered)

    def advice(self) -> str | None:
        """Return advice if many rows are late, a sample is biased, or one bucket has most evictions."""
        return " ".join(filter(None, (self.late_advice(), self.sample_advice(), self._hot_advice()))) or None

    def sample_advice(self) -> str | None:
        """Return advice if the sample of `drop_rate="unbiased"` is biased."""
        return CROWDED if self._sums.crowded else None

    def late_advice(self) -> str | None:
        """Return advice if more than 2 % of the rows of a batch were late."""
        if not self._late_batches:
            return self._unknown_advice()
        batch, share = self._late
        others = (
            f" Many were late in {self._late_batches - 1} earlier batches too."
            if self._late_batches > 1
            else ""
        )
        shown = recall_of(self._sums)
        bound = ""
        if self._sums.unestimated:
            bound = f" Recall is {shown}, because some rows were too late for the estimate."
        return (
            f"In batch {batch}, {100 * share:.0f} % of the rows came late, after their partners may "
            f"have expired.{others}{bound} Write files in order of time, read fewer of them at once "
            "(maxFilesPerTrigger), or raise lateness= or the delay of the watermark."
        )

    def _unknown_advice(self) -> str | None:
        """Return advice if few rows were late, and yet recall is unknown for them."""
        late = self._sums.unestimated
        if not late or recall_of(self._sums).value is not None:
            return None
        return (
            f"Recall is unknown: {late:,} rows came too late to know what they missed, and their keys have "
            "many results. Write files in order of time, or raise lateness= or the delay of the watermark."
        )

    def _hot_advice(self) -> str | None:
        """Return advice if one bucket has far more than its share of the evictions."""
        bucket, share = _hottest(self._evicted).values()
        times = share * len(self._evicted)
        if times <= HOT:
            return None
        return (
            f"Bucket {bucket} has {100 * share:.0f} % of all evictions, {times:.1f} times its share. More "
            "memory helps. More buckets help if the bucket has many keys, but not if a single key is that "
            "hot. You can salt such a key: add a random number below n to the key on one side, and on the "
            "other side repeat each row n times, once with each of these numbers."
        )


def recall_of(figures: JoinFigures) -> RecallEstimate:
    """Return the estimated share of the exact results that was found.

    >>> from penstock.spark.runtime.figures import JoinFigures
    >>> from penstock.spark.monitor.totals import recall_of
    >>> figures = JoinFigures(results=30, missed=10.0, unestimated=1, arrived={"left": 50, "right": 50})
    >>> print(recall_of(figures))
    at most 75.0 %
    """
    found = estimate_recall(
        figures.results + figures.unmatched,
        figures.missed,
        figures.unestimated,
        _came(figures),
        guessed=figures.guessed,
        variance=figures.variance,
    )
    return bounded_by(found, figures.undecided)


def late_share(figures: JoinFigures) -> float:
    """Return the share of the rows that were behind the progress of their stream or the watermark.

    >>> from penstock.spark.runtime.figures import JoinFigures
    >>> from penstock.spark.monitor.totals import late_share
    >>> late_share(JoinFigures(late=3, behind_watermark=2, arrived={"left": 50, "right": 48}))
    0.05
    """
    came = _came(figures)
    return (figures.late + figures.behind_watermark) / came if came else 0.0


def _came(figures: JoinFigures) -> int:
    """Return the number of rows with a key and a time."""
    return sum(figures.arrived.values()) + figures.behind_watermark


def _flat(figures: JoinFigures) -> dict[str, Any]:
    """Return all metrics but the worker of a bucket, which has no sum."""
    return {name: value for name, value in figures.flat().items() if name != "worker"}


def _told(name: str, recall: RecallEstimate) -> dict[str, Any]:
    """Return a recall under this name, and whether it is an upper bound."""
    return {name: recall.value, f"{name}_at_most": recall.at_most}


def _evicted(figures: dict[str, Any]) -> int:
    """Return the number of rows that a bucket has evicted, over all streams."""
    return sum(JoinFigures.from_flat(figures).evicted.values())


def _hottest(evicted: dict[int, int]) -> dict[str, Any]:
    """Return the bucket with the most evictions, and its share of them."""
    whole = sum(evicted.values())
    if not whole:
        return {"hottest_bucket": None, "hottest_share": 0.0}
    bucket = max(evicted, key=lambda each: evicted[each])
    return {"hottest_bucket": bucket, "hottest_share": evicted[bucket] / whole}
