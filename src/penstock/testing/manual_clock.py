"""A clock that a test sets, for what depends on the time of day."""

from __future__ import annotations


class ManualClock:
    """A clock that stands still until it is set or moved on; `LookupCache` takes it as `clock=`.

    >>> import penstock as ps
    >>> from penstock.testing import ManualClock
    >>> clock = ManualClock()
    >>> fetch = lambda keys: [{"fetched": clock.now} for _ in keys]
    >>> cache = ps.LookupCache(fetch, key="k", budget=9, ttl="10 seconds", clock=clock).start()
    >>> cache.process({"k": [1]}, on="k")["fetched"].to_pylist()
    [0.0]
    >>> clock.advance(11)
    >>> cache.process({"k": [1]}, on="k")["fetched"].to_pylist()
    [11.0]
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = float(now)  # seconds

    def __call__(self) -> float:
        """The present time in seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.now += seconds
