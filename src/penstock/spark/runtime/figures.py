"""The metrics of a batch in a bucket, as numbers that can be added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from penstock.spark.runtime.join_spec import SIDES

PER_STREAM = ("arrived", "evicted", "buffered")
LAST = ("buffered",)  # the last value counts
MOST = ("peak_bytes", "budget_rows", "budget_bytes")  # the maximum counts; all others are added up


def _zeros() -> dict[str, int]:
    return dict.fromkeys(SIDES, 0)


@dataclass
class Figures:
    """Metrics of one batch in one bucket; some are per stream, such as `evicted_left` in flat form.

    >>> from penstock.spark.runtime.figures import Figures
    >>> figures = Figures.of(("seen", "bought"), results=3)
    >>> figures.evicted["seen"] += 2
    >>> figures.evicted_seen, figures.flat()["evicted_bought"]
    (2, 0)
    """

    arrived: dict[str, int] = field(default_factory=_zeros)
    results: int = 0
    missed: float | None = 0.0  # estimated number of results that were missed; None: unknown
    unestimated: int = 0  # rows that may have missed more, because they were too late for the estimate
    evicted: dict[str, int] = field(default_factory=_zeros)
    expired: int = 0
    dropped: int = 0
    crowded: int = 0  # buckets whose arrivals exceed the rates that `drop_rate="unbiased"` assumes
    late: int = 0  # rows behind the progress of their stream
    skipped: int = 0  # rows without a key or a time
    behind_watermark: int = 0  # late rows that a watermark drops
    buffered: dict[str, int] = field(default_factory=_zeros)
    peak_bytes: int = 0
    budget_rows: int = 0  # the budget, in rows or in bytes; 0 if it is given in the other
    budget_bytes: int = 0
    state_written: int = 0
    state_read: int = 0
    replayed: int = 0

    @classmethod
    def of(cls, streams: Iterable[str], **figures: Any) -> Figures:
        """Return metrics of these streams; those not given are 0."""
        streams = list(streams)
        return cls(**{name: dict.fromkeys(streams, 0) for name in PER_STREAM} | figures)

    @classmethod
    def from_flat(cls, flat: Mapping[str, Any]) -> Figures:
        """The inverse of `flat`; missing metrics are 0."""
        streams = streams_of(flat)
        given: dict[str, Any] = {
            name: {stream: flat.get(f"{name}_{stream}") or 0 for stream in streams} for name in PER_STREAM
        }
        plain = [each.name for each in fields(cls) if each.name not in PER_STREAM]
        given |= {name: flat[name] for name in plain if flat.get(name) is not None}
        return cls(**given | ({"missed": None} if flat.get("missed", 0.0) is None else {}))

    def __getattr__(self, name: str) -> int:
        """Return a metric of one stream by its flat name."""
        figure, _, stream = name.partition("_")
        if figure in PER_STREAM and stream in vars(self).get(figure, {}):
            return int(vars(self)[figure][stream])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def flat(self) -> dict[str, Any]:
        """Return all metrics by name, each a number."""
        told: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in PER_STREAM:
                told |= {f"{each.name}_{stream}": number for stream, number in value.items()}
            else:
                told[each.name] = value
        return told

    def add(self, later: Figures) -> None:
        """Add the metrics of a later batch; keep the last of buffered rows and the maximum of memory."""
        for each in fields(self):
            mine, other = getattr(self, each.name), getattr(later, each.name)
            if each.name in LAST:
                setattr(self, each.name, dict(other))
            elif each.name in PER_STREAM:
                setattr(self, each.name, {name: mine.get(name, 0) + count for name, count in other.items()})
            elif each.name in MOST:
                setattr(self, each.name, max(mine, other))
            else:
                setattr(self, each.name, None if mine is None or other is None else mine + other)


def streams_of(flat: Mapping[str, Any]) -> tuple[str, ...]:
    """The streams that flat figures are of.

    >>> from penstock.spark.runtime.figures import streams_of
    >>> streams_of({"evicted_left": 1}), streams_of({"evicted_a": 1, "evicted_b": 0, "results": 5})
    (('left', 'right'), ('a', 'b'))
    """
    named = [name.partition("_") for name in flat]
    found = dict.fromkeys(stream for figure, _, stream in named if figure in PER_STREAM and stream)
    return SIDES if set(found) <= set(SIDES) else tuple(found)
